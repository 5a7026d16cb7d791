import { sealSecret } from '../crypto/service-secret.ts';
import type { Database } from '../db/pool.ts';
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
  text,
  uuid,
  withDefault,
  withoutNul,
} from '../http/schema.ts';
import type { Operator } from './guard.ts';
import type { SigningKeys, WebhookService } from './service.ts';
import { targetKeyOf } from './service.ts';
import {
  checkForwardUrl,
  type Command,
  FORWARD_SECRET,
  type OwnTarget,
  ownTarget,
} from './settings.ts';
import { standardKey } from './signatures.ts';
import { listFailing } from './store/delivery.ts';
import { setTarget } from './store/targets.ts';
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

/** A program is set by command alone: an operator over HTTP must not run one on the server. */
export const targetSchema = object(
  {
    url: text({ max: 2_048, check: checkUrl, description: 'The events are sent to it by POST' }),
    secret: optional(text({ check: checkSecret, description: 'Signs the requests' })),
    ...options,
  },
  'rejected',
);
export type NewTarget = Omit<Infer<typeof targetSchema>, 'url'> &
  Readonly<{ url: string } | { command: Command }>;

const NO_KEY = 'needs WEBHOOK_SECRET, under which it is stored';
const NO_TOKEN = { message: 'There is no active token of a sender with this id.' };

/** @returns a failure if the target could not be set */
export async function checkTarget(
  given: NewTarget | null,
  allowPrivate: boolean,
  keys: SigningKeys | readonly [],
) {
  if (given && 'url' in given && !allowPrivate) {
    const { hasPrivateAddress, PRIVATE_TARGET } = await import('./targets/forward.ts');
    if (hasPrivateAddress(new URL(given.url))) return invalidBody(PRIVATE_TARGET, '/url');
  }
  const lacksKey = given?.secret !== undefined && keys.length === 0;
  return lacksKey ? invalidBody(NO_KEY, '/secret') : null;
}

/**
 * Sets the target of a token.
 * @param given null for the target of the process
 * @param allowPrivate WEBHOOK_FORWARD_ALLOW_PRIVATE
 */
export async function changeTarget(
  database: Database,
  id: string,
  given: NewTarget | null,
  allowPrivate: boolean,
  keys: SigningKeys | readonly [],
) {
  const problem = await checkTarget(given, allowPrivate, keys);
  if (problem) return problem;
  const { events = null, timeout_seconds = null, secret, keep_signature = false } = given ?? {};
  const [key] = keys;
  const sealed = secret !== undefined && key ? sealSecret(key, secret) : null;
  const common = { events, timeout_seconds, is_signed: sealed !== null };
  const target = given && ownOf(given, common);
  const isSet = await setTarget(database, id, target, keep_signature, sealed);
  return isSet ? null : new Failure('not_found', NO_TOKEN);
}

const ownOf = (
  given: NewTarget,
  common: Pick<OwnTarget, 'events' | 'timeout_seconds' | 'is_signed'>,
): OwnTarget =>
  'url' in given ? { ...common, url: given.url } : { ...common, command: given.command };

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
    data: senders.map(({ target: own, ...token }) => {
      const settings = own && ownTarget(own, null, false);
      const state = settings ? failing.get(targetKeyOf(settings)) : undefined;
      const { id, name, source, keep_signature, last_used_at } = token;
      const { refused, last_refusal, last_refused_at } = token;
      return {
        ...{ id, name, source, keep_signature, last_used_at },
        ...{ refused, last_refusal, last_refused_at },
        target: settings && `${settings.kind} ${settings.label}`,
        events: own?.events ? [...own.events] : null,
        timeout_seconds: own?.timeout_seconds ?? null,
        is_signed: own?.is_signed ?? false,
        failures: state?.failures ?? 0,
        next_probe_at: state?.is_open ? state.probe_at : null,
      };
    }),
  };
}

export const putTarget = (
  { path, body, caller }: OperatorCall<TokenPath, Infer<typeof targetSchema>>,
  service: WebhookService,
) => change(path.id, body, caller, service);

export const removeTarget = (
  { path, caller }: OperatorCall<TokenPath, null>,
  service: WebhookService,
) => change(path.id, null, caller, service);

async function change(
  id: string,
  given: NewTarget | null,
  { id: by }: Operator,
  { database, allowPrivate, signingKeys, notifyWorker, log }: WebhookService,
) {
  const [key, ...earlier] = signingKeys;
  const keys: Parameters<typeof changeTarget>[4] = key ? [key, ...earlier] : [];
  const failure = await changeTarget(database, id, given, allowPrivate, keys);
  if (failure) return failure;
  log.warn(given ? 'target set' : 'target removed', { token_id: id, by });
  notifyWorker();
  return { data: { id } };
}
export const changedSchema = object({ id: uuid() });
