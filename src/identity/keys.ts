import { randomUUID } from 'node:crypto';
import type { Database } from '../platform/db/pool.ts';
import { Failure } from '../platform/http/route/errors.ts';
import {
  type Infer,
  nullable,
  object,
  optional,
  timestamp,
  uuid,
  withDefault,
} from '../platform/http/route/schema.ts';
import { viewKey } from './model.ts';
import { forbidden, type IdentityCall, invalid, may, refusalOf, unknown } from './policy.ts';
import type { IdentityService } from './service.ts';
import { type Actor, actorOf } from './store/audit.ts';
import { findKeyById, insertKey, type KeyInput, revokeKey } from './store/keys.ts';
import { createApiKey } from './token.ts';
import { groups, shownName } from './rules.ts';

export const newKeySchema = object(
  {
    user_id: optional(
      nullable(uuid('Whose rights the key has; if omitted, yours; null for a key without a user')),
    ),
    expires_at: optional(nullable(timestamp('When the key expires; omitted or null: never'))),
    name: withDefault(shownName(255, 0, { description: 'What the key is for' }), ''),
    groups: withDefault(groups, []), // only of a key without a user
  },
  'rejected',
);

/** @returns the key's view with the whole key, which is not stored */
export async function createKey(database: Database, actor: Actor, input: KeyInput) {
  if (input.user_id !== null && input.groups.length > 0) {
    return invalid('/groups', 'must be empty for the key of a user, who has groups already');
  }
  const id = randomUUID();
  const key = createApiKey();
  const count = await insertKey(database, actor, input, id, key);
  if (count === 0) return invalid('/expires_at', 'must be in the future');
  const row = count === null ? null : await findKeyById(database, id);
  return row ? { ...viewKey(row), key } : unknown('user');
}

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

export async function revoke(
  { caller, path, request }: IdentityCall<{ key_id: string }>,
  { database }: IdentityService,
) {
  const key = await findKeyById(database, path.key_id);
  if (!key) return unknown('key');
  if (!may(caller, 'revoke a key', key.user_id)) return forbidden(caller);
  const count = await revokeKey(database, actorOf(caller, request), key);
  const message = count === 1 ? 'Key revoked.' : 'The key was revoked before.';
  return { data: { message, status: 'REVOKED' as const } };
}
