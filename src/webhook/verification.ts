import type { IncomingHttpHeaders } from 'node:http';
import { unsealServiceSecret } from '../platform/crypto/service-secret.ts';
import type { Call } from '../platform/http/route/route.ts';
import type { Sender, WebhookService } from './service.ts';
import { signedPartOf } from './body.ts';
import {
  checkSignature,
  missingHeaders,
  namesIn,
  type Scheme,
  type Verdicts,
} from './signatures.ts';

/** An event, as raw bytes, with the token that it was sent with. */
export type ReceiveCall = Call<Sender, unknown, unknown, Buffer>;

export const UNKNOWN_KEY =
  'WEBHOOK_SECRET is missing or wrong: signing secrets are sealed under another one';
export const TOO_OLD =
  "The signature's time is too old, or more than five minutes ahead: a replay, or a wrong clock.";
const MESSAGES = {
  'no secret':
    'This token has no active signing secret. Confirm the secret of its sender: gatehouse token confirm',
  'wrong signature':
    "The signature is wrong. Check that the sender's signing secret is the one given with the token.",
  'too old': TOO_OLD,
};

/**
 * @param verdicts of this request: a secret is not checked again
 * @returns if valid, the signing secret and its id, null for a source that does not sign
 */
export function verifySignature(
  { request, body: raw, caller }: ReceiveCall,
  { signingKeys }: WebhookService,
  verdicts: Verdicts,
) {
  const { secrets, format } = caller;
  const { scheme, maxAge } = format;
  if (scheme === null) return { kind: 'valid', secretId: null, secret: null } as const;
  const opened = secrets.flatMap((sealed) => {
    const secret = unsealServiceSecret(signingKeys, sealed);
    return secret === null ? [] : [{ id: sealed.id, secret }];
  });
  const now = Date.now() / 1_000;
  const signed = signedPartOf(format, request.headers, raw);
  const rule = { scheme, maxAge };
  const verdict = checkSignature(rule, request.headers, signed, opened, now, verdicts);
  if (verdict.kind === 'valid') return verdict;
  // The signature may belong to a secret that cannot be opened. Then the sender made no mistake.
  const isUnknown = verdict.kind === 'wrong signature' && opened.length < secrets.length;
  if (isUnknown) return { kind: 'key unknown' } as const;
  const reason = secrets.length === 0 ? 'no secret' : verdict.kind;
  const message = reason === 'no signature' ? notSigned(scheme, request.headers) : MESSAGES[reason];
  return { kind: 'refused', message } as const;
}

function notSigned(scheme: Scheme, headers: IncomingHttpHeaders) {
  const missing = missingHeaders(scheme, headers);
  const problem =
    missing.length > 0
      ? `lacks the header ${missing.join(' and ')}`
      : `has no signature of the expected form in the header ${namesIn(scheme, headers).header}`;
  return `The request ${problem}. Check the token's source, and that its sender signs.`;
}
