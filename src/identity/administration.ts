import { hashPassword } from '../crypto/password.ts';
import type { Call, Reply } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import type { Infer } from '../http/shape.ts';
import { actorOf } from './guard.ts';
import { FIRST_PAGE, pageReply } from './paging.ts';
import { type Caller, forbidden, may } from './policy.ts';
import type { User } from './rules.ts';
import type { IdentityService } from './service.ts';
import { type changeShape, type deletionShape, type userShape, viewUser } from './shapes.ts';
import { eachUser, findUser, listUsers } from './store/users.ts';
import { changeUser, createUser, isOwnAffair, type NewUser, type Passwords, removeUser, setPassword, type UserChange } from './users.ts';

type Ask<Path, Query, Body> = Call<Caller, Path, Query, Body>;
type UserView = Infer<typeof userShape>;
type OfUser = { user_id: string };

/** A super administrator sees every user, everybody else themselves. A page only where one is asked for. */
export async function list({ caller, query, request }: Ask<unknown, { page: number | undefined; limit: number | undefined }, null>, { database }: IdentityService): Promise<Reply<UserView[]>> {
  const { page, limit } = query;
  const asked = page === undefined && limit === undefined ? null : { page: page ?? FIRST_PAGE.page, limit: limit ?? FIRST_PAGE.limit };
  if (may(caller, 'list every user')) {
    return asked ? pageReply(request.path, asked, await listUsers(database, asked), viewUser, {}) : { items: viewEach(eachUser(database)) };
  }
  const self = caller.user ? [caller.user] : [];
  if (!asked) return { data: self.map(viewUser) };
  return pageReply(request.path, asked, { rows: asked.page === 1 ? self : [], total: self.length }, viewUser, {});
}

async function* viewEach(batches: AsyncIterable<readonly User[]>): AsyncGenerator<UserView[]> {
  for await (const batch of batches) yield batch.map(viewUser);
}

const reply = <F extends Failure>(outcome: User | F): Reply<UserView> | F => (outcome instanceof Failure ? outcome : { data: viewUser(outcome) });

/** New passwords go through the same gate as logins, before those of strangers. */
const passwordsOf = ({ hashing, passwords }: IdentityService): Passwords => ({
  minLength: passwords.minLength,
  hash: (password) => hashing.run(() => hashPassword(password, passwords.cost), true),
});

export async function create({ caller, body, request }: Ask<unknown, unknown, NewUser>, service: IdentityService): Promise<Reply<UserView> | Failure<'forbidden' | 'conflict' | 'invalid_body'>> {
  if (!may(caller, 'create a user') || (body.super_admin && !may(caller, 'make a super administrator'))) return forbidden(caller);
  return reply(await createUser(service.database, actorOf(caller, request), body, passwordsOf(service)));
}

export async function show({ caller, path }: Ask<OfUser, unknown, null>, { database }: IdentityService): Promise<Reply<UserView> | Failure<'forbidden' | 'not_found'>> {
  if (!may(caller, 'read a user', path.user_id)) return forbidden(caller);
  const user = await findUser(database, path.user_id);
  return reply(user ?? new Failure('not_found', { message: 'There is no user with this id.' }));
}

/** Judged by what is asked for: one forbidden member, and nothing is changed. */
export async function change({ caller, path, body, request }: Ask<OfUser, unknown, UserChange>, { database }: IdentityService): Promise<Reply<UserView> | Failure<'forbidden' | 'not_found' | 'conflict'>> {
  const action = body.super_admin === true ? 'make a super administrator' : isOwnAffair(body) ? 'change the names of a user' : 'change a user';
  if (!may(caller, action, path.user_id)) return forbidden(caller);
  return reply(await changeUser(database, actorOf(caller, request), path.user_id, body));
}

export async function remove({ caller, path, request }: Ask<OfUser, unknown, null>, { database }: IdentityService): Promise<Reply<Infer<typeof deletionShape>> | Failure<'forbidden' | 'not_found' | 'conflict'>> {
  if (!may(caller, 'delete a user')) return forbidden(caller);
  const outcome = await removeUser(database, actorOf(caller, request), path.user_id);
  return outcome instanceof Failure ? outcome : { data: { message: 'User deleted. Sessions and keys have ended.', status: 'DELETED' } };
}

export async function setPasswordOf(
  { caller, path, body, request }: Ask<OfUser, unknown, { password: string }>,
  service: IdentityService,
): Promise<Reply<Infer<typeof changeShape>> | Failure<'forbidden' | 'not_found' | 'conflict' | 'invalid_body'>> {
  if (!may(caller, 'set the password of a user')) return forbidden(caller);
  const outcome = await setPassword(service.database, actorOf(caller, request), path.user_id, body.password, passwordsOf(service));
  return outcome instanceof Failure ? outcome : { data: { message: "Password set. The user's sessions have ended.", status: 'CHANGED' } };
}

/** The caller's own record, and where the call came from. */
export async function test({ request, caller }: Ask<unknown, unknown, null>): Promise<Reply<{ ip: string; user: UserView }> | Failure<'forbidden'>> {
  const { user } = caller;
  if (!user || !may(caller, 'read oneself', user.id)) return new Failure('forbidden', { message: 'This key acts for no user.' });
  return { data: { ip: request.address, user: viewUser(user) } };
}
