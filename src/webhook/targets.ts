import { sealSecret } from '../platform/crypto/service-secret.ts';
import { invalidBody } from '../platform/http/route/json-body.ts';
import { Failure } from '../platform/http/route/errors.ts';
import {
  boolean,
  dateTime,
  type Infer,
  integer,
  list,
  nullable,
  object,
  optional,
  scalar,
  text,
  uuid,
  withDefault,
  withoutNul,
} from '../platform/http/route/schema.ts';
import type { OperatorCall } from './guard.ts';
import type { WebhookService } from './service.ts';
import {
  COMMAND_FORM,
  FORWARD_SECRET,
  FORWARD_URL,
  isForwardUrl,
  parseCommand,
} from './settings.ts';
import { standardKey } from './signatures.ts';
import { listFailing } from './store/delivery.ts';
import { textOrNull, wholeNumber } from './store/inbox.ts';
import { setTarget } from './store/targets.ts';
import { listTokens } from './store/tokens.ts';
import { describeTarget } from './target.ts';

const commonMembers = {
  events: optional(list(text({ min: 1, max: 1_024, pattern: withoutNul }))),
  timeout_seconds: optional(integer({ min: 1, max: 3_600 })),
  keep_signature: withDefault(boolean(), false),
};
const checkUrl = (url: string) => (isForwardUrl(url) ? null : `must be ${FORWARD_URL}`);
const checkSecret = (secret: string) =>
  standardKey(secret) ? null : `must have ${FORWARD_SECRET}`;

export const targetSchema = object(
  {
    url: text({
      max: 2_048,
      check: checkUrl,
      description: `Gets the events by POST: ${FORWARD_URL}`,
    }),
    secret: optional(
      text({ check: checkSecret, description: `Signs the requests: ${FORWARD_SECRET}` }),
    ),
    ...commonMembers,
  },
  'rejected',
);
/** Only the command line sets a program: an HTTP operator must not run one on the server. */
export const programSchema = object(
  {
    command: scalar({}, `must be ${COMMAND_FORM}`, (input) =>
      typeof input === 'string' ? parseCommand(input) : undefined,
    ),
    ...commonMembers,
  },
  'rejected',
);
export type TargetInput =
  Infer<typeof targetSchema> | (Infer<typeof programSchema> & { secret?: never });

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

export const senderSchema = object({
  id: uuid(),
  name: text(),
  source: text(),
  target: nullable(text({ description: 'Kind and origin or program; null: that of the process' })),
  events: nullable(list(text())),
  timeout_seconds: nullable(wholeNumber),
  is_signed: boolean(),
  keep_signature: boolean(),
  failures: wholeNumber,
  next_probe_at: nullable(dateTime('Set if the target fails, so that it is only probed')),
  last_used_at: nullable(dateTime()),
  refused: wholeNumber,
  last_refusal: textOrNull,
  last_refused_at: nullable(dateTime()),
});

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
