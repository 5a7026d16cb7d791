import { unsealServiceSecret } from '../platform/crypto/service-secret.ts';
import { Failure } from '../platform/http/route/errors.ts';
import type { Call } from '../platform/http/route/route.ts';
import type { WebhookService } from './service.ts';
import { checkSignature, isInWindow, type Scheme, secondsOf, type Verdicts } from './signatures.ts';
import { type JsonObject, memberAt, type Source } from './sources.ts';
import type { KnownToken } from './store/tokens.ts';

/** An event, as raw bytes, with the token that it was sent with. */
export type ReceiveCall = Call<KnownToken, unknown, unknown, Buffer>;

const NO_SECRET =
  'This token has no active signing secret. Confirm the secret of its sender: gatehouse token confirm';
const SIGNATURE_MESSAGES = {
  'no signature':
    "The request is not signed as the token's source signs. Check the source and the sender's secret.",
  'wrong signature':
    "The signature is wrong. Check that the sender's signing secret is the one given with the token.",
  'too old': "The signature's time differs by more than five minutes: a replay, or a wrong clock.",
};

/**
 * Wrong signatures of a network count as guesses. A cached token was accepted a moment ago; if its
 * signature is wrong, the token is looked up and this is repeated.
 * @param verdicts of this request: a secret is not checked again
 * @returns the id of the signing secret that verifies the signature
 */
export async function verifyWithinLimit(
  scheme: Scheme,
  call: ReceiveCall,
  service: WebhookService,
  verdicts: Verdicts,
) {
  const { caller, request } = call;
  if (caller.isCached) return verifySignature(scheme, call, service, verdicts);
  let outcome: ReturnType<typeof verifySignature> | null = null;
  const found = await service.checkCredential(request.network, {
    kind: 'signature',
    key: `signature by ${caller.id}`,
    message: SIGNATURE_MESSAGES['wrong signature'],
    async find() {
      outcome = verifySignature(scheme, call, service, verdicts);
      const isWrong = outcome instanceof Failure && outcome.code === 'unauthorized';
      return isWrong ? null : outcome;
    },
  });
  return outcome ?? found;
}

/** @returns as `verifyWithinLimit` */
function verifySignature(
  scheme: Scheme,
  { request, body: raw, caller }: ReceiveCall,
  service: WebhookService,
  verdicts: Verdicts,
) {
  const opened = caller.secrets.flatMap((sealed) => {
    const secret = unsealServiceSecret(service.signingKeys, sealed);
    return secret === null ? [] : [{ id: sealed.id, secret }];
  });
  const verdict = checkSignature(
    scheme,
    request.headers,
    raw,
    opened,
    Date.now() / 1_000,
    verdicts,
  );
  if (verdict.kind === 'valid') return verdict.secretId;
  // The signature may belong to a secret that cannot be opened. Then the sender made no mistake.
  const isUnknown = verdict.kind === 'wrong signature' && opened.length < caller.secrets.length;
  if (isUnknown) return keyUnknown(caller, service);
  return notAccepted(caller.secrets.length === 0 ? NO_SECRET : SIGNATURE_MESSAGES[verdict.kind]);
}

const notAccepted = (message: string) =>
  new Failure('unauthorized', { message, credential: 'signature' });

/** @returns a failure if the body, whose signature holds, was signed too long ago */
export function checkSignedTime({ time }: Source, body: JsonObject) {
  if (time === undefined) return null;
  const at = secondsOf(memberAt(body, time));
  if (at !== null && isInWindow(at, Date.now() / 1_000)) return null;
  return notAccepted(SIGNATURE_MESSAGES['too old']);
}

export const UNKNOWN_KEY =
  'WEBHOOK_SECRET is missing or wrong: signing secrets are sealed under another one';

export function keyUnknown({ id, isCached }: KnownToken, { log }: WebhookService) {
  if (!isCached) log.error(UNKNOWN_KEY, { token_id: id });
  return new Failure('key_unknown', {
    message:
      "The server cannot open this sender's signing secret. Nothing was stored. Tell the operator.",
  });
}
