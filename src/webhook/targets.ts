import { sealSecret } from '../platform/crypto/service-secret.ts';
import { invalidBody } from '../platform/http/route/json-body.ts';
import { Failure } from '../platform/http/route/errors.ts';
import type { Infer } from '../platform/http/route/schema.ts';
import type { OperatorCall } from './guard.ts';
import type { TargetInput, targetSchema } from './schemas.ts';
import type { WebhookService } from './service.ts';
import { listFailing } from './store/delivery.ts';
import { setTarget } from './store/targets.ts';
import { listTokens } from './store/tokens.ts';
import { describeTarget } from './target.ts';

export const NO_TOKEN = 'There is no active token of a sender with this id.';

/**
 * The first signing key, if there is one, seals the secret.
 * @returns what `setTarget` stores; a failure if the target could not be used
 */
export async function prepareTarget(
  given: TargetInput,
  { delivery, signingKeys: [key] }: Pick<WebhookService, 'delivery' | 'signingKeys'>,
) {
  const { events = null, timeout_seconds = null, secret, keep_signature, ...destination } = given;
  if ('url' in destination && !delivery.allowPrivate) {
    const { hasPrivateAddress } = await import('./targets/forward.ts');
    if (hasPrivateAddress(new URL(destination.url))) {
      return invalidBody(
        'must not be a private address; set WEBHOOK_FORWARD_ALLOW_PRIVATE=on to allow it',
        '/url',
      );
    }
  }
  if (secret !== undefined && !key)
    return invalidBody('needs WEBHOOK_SECRET, under which it is stored', '/secret');
  const sealed = secret !== undefined && key ? sealSecret(key, secret) : null;
  return {
    target: { events, timeout_seconds, is_signed: sealed !== null, ...destination },
    keepSignature: keep_signature,
    secret: sealed,
  };
}

/** The active tokens of senders, with their targets. */
export async function listSenders(_call: unknown, { database }: WebhookService) {
  const tokens = await listTokens(database);
  const failing = await listFailing(database);
  const senders = tokens.filter(({ role, revoked_at }) => role === 'sender' && !revoked_at);
  return {
    data: senders.map((token) => {
      const { id, name, source, target: own, keep_signature, last_used_at } = token;
      const { refused, last_refusal, last_refused_at } = token;
      const described = own && describeTarget(own);
      const state = failing.find(({ target }) => target === described?.key);
      return {
        id,
        name,
        source,
        keep_signature,
        last_used_at,
        refused,
        last_refusal,
        last_refused_at,
        target: described?.name ?? null,
        events: own?.events ? [...own.events] : null,
        timeout_seconds: own?.timeout_seconds ?? null,
        is_signed: own?.is_signed ?? false,
        failures: state?.failures ?? 0,
        next_probe_at: state?.is_open ? state.probe_at : null,
      };
    }),
  };
}

export async function putTarget(
  call: OperatorCall<{ id: string }, Infer<typeof targetSchema>>,
  service: WebhookService,
) {
  const prepared = await prepareTarget(call.body, service);
  return prepared instanceof Failure ? prepared : storeTarget(call, prepared, service);
}

export const removeTarget = (call: OperatorCall<{ id: string }>, service: WebhookService) =>
  storeTarget(call, null, service);

async function storeTarget(
  { path: { id }, caller }: OperatorCall<{ id: string }, unknown>,
  given: Parameters<typeof setTarget>[2],
  { database, notifyWorker, log }: WebhookService,
) {
  const isKnown = await setTarget(database, id, given);
  if (!isKnown) return new Failure('not_found', { message: NO_TOKEN });
  log.warn(given ? 'target set' : 'target removed', { token_id: id, by: caller.id });
  notifyWorker();
  return { data: { id } };
}
