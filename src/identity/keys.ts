import { randomUUID } from 'node:crypto';
import { digest } from '../crypto/token.ts';
import type { Database } from '../db/pool.ts';
import { Failure } from '../http/errors.ts';
import {
  type Infer,
  nullable,
  object,
  optional,
  text,
  timestamp,
  uuid,
  withDefault,
} from '../http/shape.ts';
import { actorOf } from './audit.ts';
import { viewKey } from './model.ts';
import { pageReply } from './paging.ts';
import { type Ask, forbidden, may } from './policy.ts';
import type { IdentityService } from './service.ts';
import type { Actor } from './store/audit.ts';
import { findKeyById, insertKey, type KeyRequest, listKeys, revokeKey } from './store/keys.ts';
import type { Page } from './store/rows.ts';
import { createApiKey, maskedKey } from './token.ts';
import { controlCharError } from './rules.ts';
import { unknownUser } from './users.ts';

export const newKeyShape = object(
  {
    user_id: optional(
      nullable(uuid('Whose rights the key has; if omitted, yours; null for a key without a user')),
    ),
    expires_at: optional(nullable(timestamp('When the key expires; omitted or null: never'))),
    name: withDefault(
      text({ max: 255, check: controlCharError, description: 'What the key is for' }),
      '',
    ),
  },
  'rejected',
);

/** @returns the key's view with the whole key, which is not stored */
export async function createKey(database: Database, actor: Actor, wanted: KeyRequest) {
  const [id, key] = [randomUUID(), createApiKey()];
  const isInserted = await insertKey(database, actor, {
    ...wanted,
    id,
    digest: digest(key),
    prefix: maskedKey(key),
  });
  const stored = isInserted ? await findKeyById(database, id) : null;
  if (stored) return { ...viewKey(stored), key };
  if (isInserted === null) return unknownUser();
  return new Failure('invalid_body', {
    fields: [{ path: '/expires_at', message: 'must be in the future' }],
  });
}

type NewKey = Infer<typeof newKeyShape>;

export async function create(
  { caller, body, request }: Ask<unknown, unknown, NewKey>,
  { database }: IdentityService,
) {
  const userId = body.user_id === undefined ? (caller.user?.id ?? null) : body.user_id;
  if (!may(caller, 'create a key', userId)) return forbidden(caller);
  const wanted = { userId, expiresAt: body.expires_at ?? null, name: body.name };
  const key = await createKey(database, actorOf(caller, request), wanted);
  return key instanceof Failure ? key : { data: key };
}

type ListQuery = Page & { user: string | undefined };

export async function list(
  { caller, query, request }: Ask<unknown, ListQuery>,
  { database }: IdentityService,
) {
  const mayListAll = may(caller, 'list keys of every user');
  const userId = query.user ?? (mayListAll ? null : (caller.user?.id ?? null));
  if (!mayListAll && !may(caller, 'list keys of a user', userId)) return forbidden(caller);
  return pageReply(request.path, query, await listKeys(database, query, userId), viewKey);
}

export async function revoke(
  { caller, path, request }: Ask<{ key_id: string }>,
  { database }: IdentityService,
) {
  const key = await findKeyById(database, path.key_id);
  if (!key) return new Failure('not_found', { message: 'There is no key with this id.' });
  if (!may(caller, 'revoke a key', key.user_id)) return forbidden(caller);
  const count = await revokeKey(database, actorOf(caller, request), key);
  const message = count === 1 ? 'Key revoked.' : 'The key was revoked before.';
  return { data: { message, status: 'REVOKED' as const } };
}
