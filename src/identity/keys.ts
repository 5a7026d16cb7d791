import { randomUUID } from 'node:crypto';
import { digest } from '../crypto/token.ts';
import type { Database } from '../db/pool.ts';
import type { Call, Reply } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import { timestamp, nullable, object, optional, withDefault, type Infer, text, uuid } from '../http/shape.ts';
import { actorOf } from './guard.ts';
import { type Page, pageReply } from './paging.ts';
import { type Caller, forbidden, may } from './policy.ts';
import { controlCharError } from './rules.ts';
import type { IdentityService } from './service.ts';
import { type keyShape, type revocationShape, viewKey } from './shapes.ts';
import type { Actor } from './store/audit.ts';
import { findKeyById, insertKey, listKeys, revokeKey } from './store/keys.ts';
import { findUser } from './store/users.ts';
import { createApiKey, maskedKey } from './token.ts';

type KeyView = Infer<typeof keyShape>;

export const newKeyShape = object(
  {
    user_id: optional(nullable(uuid('Whose rights the key has; left out: your own; null: those of a program, which acts for nobody'))),
    expires_at: optional(nullable(timestamp('When the key ends; left out or null: never'))),
    name: withDefault(text({ max: 255, check: controlCharError, description: 'What the key is for' }), ''),
  },
  'refused',
);

/** @returns the key as it is shown, whole this one time */
export async function createKey(
  database: Database,
  actor: Actor,
  wish: { readonly userId: string | null; readonly expiresAt: Date | null; readonly name: string },
): Promise<KeyView | Failure<'not_found' | 'invalid_body'>> {
  const key = createApiKey();
  const id = randomUUID();
  const isMade = await insertKey(database, actor, { ...wish, id, digest: digest(key), prefix: maskedKey(key) });
  const stored = isMade ? await findKeyById(database, id) : null;
  if (stored) return { ...viewKey(stored), key };
  if (wish.userId !== null && !(await findUser(database, wish.userId))) return new Failure('not_found', { message: 'There is no user with this id.' });
  return new Failure('invalid_body', { fields: [{ path: '/expires_at', message: 'must lie in the future' }] });
}

export async function create(
  { caller, body, request }: Call<Caller, unknown, unknown, Infer<typeof newKeyShape>>,
  { database }: IdentityService,
): Promise<Reply<KeyView> | Failure<'forbidden' | 'not_found' | 'invalid_body'>> {
  const userId = body.user_id === undefined ? (caller.user?.id ?? null) : body.user_id;
  if (!may(caller, 'create a key', userId)) return forbidden(caller);
  const key = await createKey(database, actorOf(caller, request), { userId, expiresAt: body.expires_at ?? null, name: body.name });
  return key instanceof Failure ? key : { data: key };
}

export async function list(
  { caller, query, request }: Call<Caller, unknown, Page & { user: string | undefined }, null>,
  { database }: IdentityService,
): Promise<Reply<KeyView[]> | Failure<'forbidden'>> {
  const { user } = query;
  const everybody = may(caller, 'list keys of every user');
  const userId = user ?? (everybody ? null : (caller.user?.id ?? null));
  if (!everybody && !may(caller, 'list keys of a user', userId)) return forbidden(caller);
  return pageReply(request.path, query, await listKeys(database, query, userId), viewKey, { user });
}

export async function revoke(
  { caller, path, request }: Call<Caller, { key_id: string }, unknown, null>,
  { database }: IdentityService,
): Promise<Reply<Infer<typeof revocationShape>> | Failure<'forbidden' | 'not_found'>> {
  const key = await findKeyById(database, path.key_id);
  if (!key) return new Failure('not_found', { message: 'There is no key with this id.' });
  if (!may(caller, 'revoke a key', key.user_id)) return forbidden(caller);
  const count = await revokeKey(database, { event: 'key.revoked', actor: actorOf(caller, request) }, key.id);
  return { data: { message: count === 1 ? 'Key revoked.' : 'The key was revoked before.', status: 'REVOKED' } };
}
