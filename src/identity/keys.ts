import { randomUUID } from 'node:crypto';
import type { Database } from '../platform/db/pool.ts';
import { Failure } from '../platform/http/route/errors.ts';
import {
  type Infer,
  nullable,
  object,
  oneOf,
  optional,
  timestamp,
  uuid,
  type Values,
  withDefault,
} from '../platform/http/route/schema.ts';
import { type ApiKey, viewKey } from './model.ts';
import {
  type Caller,
  forbidden,
  type IdentityCall,
  invalid,
  may,
  refusalOf,
  unknown,
} from './policy.ts';
import type { IdentityService } from './service.ts';
import { type Actor, actorOf } from './store/audit.ts';
import { findKeyById, insertKey, type KeyInput, revokeKey } from './store/keys.ts';
import { createApiKey } from './token.ts';
import { groups, rights, scopes, shownName } from './rules.ts';

export const newKeySchema = object(
  {
    user_id: optional(
      nullable(uuid('Whose rights the key has; if omitted, yours; null for a key without a user')),
    ),
    expires_at: optional(nullable(timestamp('When the key expires; omitted or null: never'))),
    name: withDefault(shownName(255, 0, { description: 'What the key is for' }), ''),
    groups: withDefault(groups, []), // only of a key without a user
    rights: withDefault(nullable(rights), null),
    scopes: withDefault(scopes, []),
    provision_groups: withDefault(groups, []),
  },
  'rejected',
);

/** @returns the key's view with the whole key, which is not stored */
export async function createKey(database: Database, actor: Actor, input: KeyInput) {
  const isOfUser = input.user_id !== null;
  const provisions = input.rights?.includes('provision') ?? false;
  if (isOfUser && input.groups.length > 0) {
    return invalid('/groups', 'must be empty for the key of a user, who has groups already');
  }
  if (isOfUser && provisions) {
    return invalid('/rights', 'must not have provision for the key of a user');
  }
  if (!provisions && input.provision_groups.length > 0) {
    return invalid('/provision_groups', 'must be empty without the right provision');
  }
  const beyond = actor.caller && beyondMaker(actor.caller, input);
  if (beyond) return beyond;
  const id = randomUUID();
  const key = createApiKey();
  const count = await insertKey(database, actor, input, id, key);
  if (count === 0) return invalid('/expires_at', 'must be in the future');
  const row = count === null ? null : await findKeyById(database, id);
  return row ? { ...viewKey(row), key } : unknown('user');
}

/** Why a key would have more than its maker, or null. Only administrators and keys give scopes. */
function beyondMaker({ user, key }: Caller, { rights, scopes }: KeyInput) {
  if (user?.super_admin) return null;
  const own = key?.scopes ?? [];
  if (!scopes.every((name) => own.includes(name))) return beyond('/scopes', own);
  if (!key || rights?.every((right) => key.rights?.includes(right))) return null;
  return beyond('/rights', key.rights ?? []);
}

const beyond = (path: string, own: readonly string[]) =>
  new Failure('forbidden', {
    fields: [{ path, message: `must name only those of its maker: ${own.join(', ') || 'none'}` }],
  });

type NewKey = Infer<typeof newKeySchema>;

export async function create(
  { caller, body, request }: IdentityCall<unknown, unknown, NewKey>,
  { database }: IdentityService,
) {
  const user_id = body.user_id === undefined ? (caller.user?.id ?? null) : body.user_id;
  const refused = refusalOf(caller, 'create a key', user_id);
  if (refused) return refused;
  const key = await createKey(database, actorOf(caller, request), { ...body, user_id });
  return key instanceof Failure ? key : { data: key };
}

export const revokeQuery = { with_made: optional(oneOf('true', 'false')) };
type Revocation = Partial<Values<typeof revokeQuery>>;

/** @param call `with_made`: whether to revoke the keys that it made, too */
export async function revoke(
  { caller, path, query, request }: IdentityCall<{ key_id: string }, Revocation>,
  { database }: IdentityService,
) {
  const key = await findKeyById(database, path.key_id);
  if (!key) return unknown('key');
  if (!may(caller, 'revoke a key', key.user_id)) return forbidden(caller);
  const withMade = query.with_made === 'true';
  const revoked = await revokeKey(database, actorOf(caller, request), key, withMade);
  const message = revoked.own === 1 ? 'Key revoked.' : 'The key was revoked before.';
  return { data: { message: `${message}${madeText(revoked.made)}`, status: 'REVOKED' as const } };
}

/** @returns a sentence about the revoked keys that another made, after a space; empty for none */
export const madeText = (count: number) =>
  count === 0 ? '' : ` Keys that it made and that were revoked: ${count}.`;

/** For lists: what a key may do, its scopes, its groups, and those that it gives to users. */
export const rightsText = ({ rights, scopes, groups, provision_groups }: ApiKey) =>
  [
    ...(rights ?? ['all']),
    ...scopes,
    ...groups.map((name) => `group:${name}`),
    ...provision_groups.map((name) => `gives group:${name}`),
  ].join(', ') || 'nothing';
