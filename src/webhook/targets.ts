import { sealSecret } from '../platform/crypto/service-secret.ts';
import type { Failure } from '../platform/http/route/errors.ts';
import { invalidBody } from '../platform/http/route/json-body.ts';
import { hasPrivateAddress } from '../platform/http/wire/private-address.ts';
import type { TargetInput } from './schemas.ts';
import type { WebhookService } from './service.ts';
import type { TargetChange } from './store/targets.ts';

export const NO_TOKEN = 'There is no active token of a sender with this id.';
export const NO_PLACE = 'the token has no target of its own yet, so it needs a URL or a program';

/**
 * The first signing key, if there is one, seals the secret. A program gets no signed requests.
 * @returns what `setTarget` stores; a failure if the target could not be used
 */
export async function prepareTarget(
  { url, command, events, timeout_seconds, secret, keep_signature }: TargetInput,
  { delivery, signingKeys: [key] }: Pick<WebhookService, 'delivery' | 'signingKeys'>,
): Promise<TargetChange | Failure<'invalid_body'>> {
  if (url !== undefined && !delivery.allowPrivate) {
    if (hasPrivateAddress(new URL(url))) {
      return invalidBody(
        'must not be a private address; set WEBHOOK_FORWARD_ALLOW_PRIVATE=on to allow it',
        '/url',
      );
    }
  }
  if (secret && !key)
    return invalidBody('needs WEBHOOK_SECRET, under which it is stored', '/secret');
  const change = { events, timeout_seconds, keepSignature: keep_signature };
  if (command) return { ...change, place: { command }, secret: null };
  const place = url === undefined ? undefined : { url };
  if (!secret || !key) return { ...change, place, secret: secret === null ? null : undefined };
  return { ...change, place, secret: sealSecret(key, secret) };
}
