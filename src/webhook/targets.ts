import type { ServerKey } from '../crypto/envelope.ts';
import { sealSecret } from '../crypto/service-secret.ts';
import type { Call } from '../http/route.ts';
import { invalidBody } from '../http/json-body.ts';
import { Failure } from '../http/errors.ts';
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
} from '../http/schema.ts';
import type { Operator } from './guard.ts';
import type { WebhookService } from './service.ts';
import {
  checkForwardUrl,
  COMMAND_FORM,
  FORWARD_SECRET,
  type OwnTarget,
  ownTarget,
  parseCommand,
} from './settings.ts';
import { standardKey } from './signatures.ts';
import { listFailing } from './store/delivery.ts';
import { NO_OWN_TARGET, setTarget, type TokenTarget } from './store/targets.ts';
import { listTokens } from './store/tokens.ts';

const pattern = text({ min: 1, max: 1_024, check: withoutNul });
const options = {
  events: optional(list(pattern)),
  timeout_seconds: optional(integer({ min: 1, max: 3_600 })),
  keep_signature: withDefault(boolean(), false),
};
const checkUrl = (url: string) => {
  const problem = checkForwardUrl(url);
  return problem === null ? null : `must be ${problem}`;
};
const checkSecret = (secret: string) =>
  standardKey(secret) ? null : `must have ${FORWARD_SECRET}`;

const NOT_PRIVATE =
  'must not be a private address; set WEBHOOK_FORWARD_ALLOW_PRIVATE=on to allow it';

/** A program is set by command alone: an operator over HTTP must not run one on the server. */
export const targetSchema = object(
  {
    url: text({ max: 2_048, check: checkUrl, description: 'The events are sent to it by POST' }),
    secret: optional(text({ check: checkSecret, description: 'Signs the requests' })),
    ...options,
  },
  'rejected',
);
export const programSchema = object(
  {
    command: scalar({}, `must be ${COMMAND_FORM}`, (input) =>
      typeof input === 'string' ? (parseCommand(input) ?? undefined) : undefined,
    ),
    ...options,
  },
  'rejected',
);
type NewTarget = Infer<typeof targetSchema> | (Infer<typeof programSchema> & { secret?: never });

const NO_KEY = 'needs WEBHOOK_SECRET, under which it is stored';
export const NO_TOKEN = 'There is no active token of a sender with this id.';

/**
 * @param key of WEBHOOK_SECRET, if it is set; seals the secret
 * @returns what `setTarget` stores; a failure if the target could not be used
 */
export async function prepareTarget(
  given: NewTarget,
  allowPrivate: boolean,
  key: ServerKey | undefined,
) {
  const { events = null, timeout_seconds = null, secret, keep_signature, ...place } = given;
  if ('url' in place && !allowPrivate) {
    const { hasPrivateAddress } = await import('./targets/forward.ts');
    if (hasPrivateAddress(new URL(place.url))) return invalidBody(NOT_PRIVATE, '/url');
  }
  if (secret !== undefined && !key) return invalidBody(NO_KEY, '/secret');
  const sealed = secret !== undefined && key ? sealSecret(key, secret) : null;
  const target: OwnTarget = {
    events,
    timeout_seconds,
    is_signed: sealed !== null,
    ...place,
  };
  return { target, keepSignature: keep_signature, secret: sealed };
}

const textOrNull = nullable(text());
const count = integer({ min: 0, max: Number.MAX_SAFE_INTEGER });
export const senderSchema = object({
  id: uuid(),
  name: text(),
  source: text(),
  target: nullable(text({ description: 'Kind and origin or program; null: that of the process' })),
  events: nullable(list(text())),
  timeout_seconds: nullable(count),
  is_signed: boolean(),
  keep_signature: boolean(),
  failures: count,
  next_probe_at: nullable(dateTime('Set if the target fails, so that it is only probed')),
  last_used_at: nullable(dateTime()),
  refused: count,
  last_refusal: textOrNull,
  last_refused_at: nullable(dateTime()),
});

type OperatorCall<Path, Body> = Call<Operator, Path, unknown, Body>;
type TokenPath = { readonly id: string };

/** The active tokens of senders, with their targets. */
export async function listSenders(_call: unknown, { database }: WebhookService) {
  const tokens = await listTokens(database);
  const failing = new Map((await listFailing(database)).map((row) => [row.target, row]));
  const senders = tokens.filter(({ role, revoked_at }) => role === 'sender' && !revoked_at);
  return {
    data: senders.map((token) => {
      const own = token.target;
      const described = own && ownTarget(own, null, false);
      const state = described ? failing.get(described.key) : undefined;
      const { id, name, source, keep_signature, last_used_at } = token;
      const { refused, last_refusal, last_refused_at } = token;
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
  { path, body, caller }: OperatorCall<TokenPath, Infer<typeof targetSchema>>,
  service: WebhookService,
) {
  const { delivery, signingKeys } = service;
  const prepared = await prepareTarget(body, delivery.allowPrivate, signingKeys[0]);
  return prepared instanceof Failure ? prepared : change(path.id, prepared, caller, service);
}

export const removeTarget = (
  { path, caller }: OperatorCall<TokenPath, null>,
  service: WebhookService,
) => change(path.id, NO_OWN_TARGET, caller, service);

async function change(
  id: string,
  given: TokenTarget,
  { id: by }: Operator,
  { database, notifyWorker, log }: WebhookService,
) {
  const isKnown = await setTarget(database, id, given);
  if (!isKnown) return new Failure('not_found', { message: NO_TOKEN });
  log.warn(given.target ? 'target set' : 'target removed', { token_id: id, by });
  notifyWorker();
  return { data: { id } };
}

export const changedSchema = object({ id: uuid() });
