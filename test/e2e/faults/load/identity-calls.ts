/** What a client of identity calls, with what each acknowledged reply changes in its accounts. */
import { randomBytes } from 'node:crypto';
import type { Reply, Requests } from './requests.ts';

export interface Credential {
  readonly kind: 'session' | 'key';
  readonly token: string;
  /** `unknown`: its end was requested and not acknowledged. */
  state: 'active' | 'unknown' | 'ended';
  /** What ended it, or should have. */
  endedBy: string;
}

export interface Account {
  readonly id: string;
  readonly username: string;
  /** The acknowledged one, and one that a failed change may have set. */
  passwords: string[];
  former: string | null;
  login: 'works' | 'unknown' | 'disabled';
  /**
   * Once a change of the whole account has failed, it may still happen at any time. Then nothing
   * more is tried.
   */
  isSettled: boolean;
  readonly credentials: Credential[];
}

export interface IdentityState {
  readonly requests: Requests;
  /** The number of the client. */
  readonly number: number;
  /** The session of a super administrator. */
  readonly admin: string;
  readonly accounts: Account[];
}

interface CallOptions {
  readonly about: string;
  readonly expected: readonly number[];
  readonly bearer?: string;
  readonly body?: object;
}

/** Calls identity from the address of this client. */
const send = (
  { requests, number }: IdentityState,
  method: string,
  path: string,
  options: CallOptions,
): Promise<Reply | null> =>
  requests.send('identity', method, path, { ...options, address: `198.51.100.${number}` });

const newPassword = () => randomBytes(12).toString('base64url');

export const sessionsOf = ({ credentials }: Account): Credential[] =>
  credentials.filter(({ kind }) => kind === 'session');

export async function createUser(state: IdentityState): Promise<void> {
  const { admin, number, accounts } = state;
  const username = `u${number}x${randomBytes(6).toString('hex')}`;
  const password = newPassword();
  const reply = await send(state, 'POST', '/api/user/', {
    about: `creating ${username}`,
    expected: [201],
    bearer: admin,
    body: { username, email: `${username}@example.org`, password },
  });
  const id = reply?.body.data?.id;
  if (!id) return;
  accounts.push({
    id,
    username,
    passwords: [password],
    former: null,
    login: 'works',
    isSettled: true,
    credentials: [],
  });
}

export async function logIn(state: IdentityState, account: Account): Promise<void> {
  const { username, passwords } = account;
  const reply = await send(state, 'POST', '/api/auth/login', {
    about: `right password of ${username}`,
    expected: [200],
    body: { username, password: passwords[0] },
  });
  addCredential(account, 'session', reply?.body.data?.session);
}

export async function createKey(
  state: IdentityState,
  account: Account,
  session: Credential,
): Promise<void> {
  const reply = await send(state, 'POST', '/api/key/', {
    about: `key of ${account.username}`,
    expected: [201],
    bearer: session.token,
    body: { name: 'load' },
  });
  addCredential(account, 'key', reply?.body.data?.key);
}

function addCredential(
  account: Account,
  kind: Credential['kind'],
  token: string | undefined,
): void {
  if (token) account.credentials.push({ kind, token, state: 'active', endedBy: '' });
}

export async function useCredential(
  { requests }: IdentityState,
  account: Account,
  { kind, token, state, endedBy }: Credential,
): Promise<void> {
  const expected = { active: [200], ended: [401], unknown: [200, 401] }[state];
  const about = `${kind} of ${account.username}, ${state}${endedBy && ` by "${endedBy}"`}`;
  const options = { about, expected, bearer: token };
  const reply = await requests.send('identity', 'GET', '/api/test/', options);
  const owner = reply?.body.data?.user?.id;
  if (reply?.status === 200 && owner !== account.id) {
    requests.report(`${about}: answered as user ${owner}`);
  }
}

/** @param affected what the request ends */
async function end(
  affected: readonly Credential[],
  what: string,
  request: () => Promise<Reply | null>,
): Promise<Reply | null> {
  const open = affected.filter(({ state }) => state !== 'ended');
  for (const credential of open) {
    credential.state = 'unknown';
    credential.endedBy = what;
  }
  const reply = await request();
  if (!reply) return null;
  for (const credential of open) credential.state = 'ended';
  return reply;
}

export async function changePassword(
  state: IdentityState,
  account: Account,
  bearer: string,
): Promise<void> {
  const [current = ''] = account.passwords;
  const body = { current_password: current, new_password: newPassword() };
  account.passwords.push(body.new_password);
  account.isSettled = false;
  const about = `changing the password of ${account.username}`;
  const options = { about, expected: [200], bearer, body };
  const reply = await end(sessionsOf(account), 'change of password', () =>
    send(state, 'POST', '/api/auth/password', options),
  );
  if (!reply) return;
  account.passwords = [body.new_password];
  account.former = current;
  account.isSettled = true;
  addCredential(account, 'session', reply.body.data?.session);
}

export async function disableUser(state: IdentityState, account: Account): Promise<void> {
  account.isSettled = false;
  account.login = 'unknown';
  const options = {
    about: `disable of ${account.username}`,
    expected: [200],
    bearer: state.admin,
    body: { enabled: false },
  };
  const reply = await end(account.credentials, 'disable', () =>
    send(state, 'PATCH', `/api/user/${account.id}`, options),
  );
  if (!reply) return;
  account.isSettled = true;
  account.login = 'disabled';
}

export async function revokeAll(state: IdentityState, account: Account): Promise<void> {
  account.isSettled = false;
  const about = `revoke all of ${account.username}`;
  const options = { about, expected: [200], bearer: state.admin };
  const reply = await end(sessionsOf(account), 'revoke all', () =>
    send(state, 'DELETE', `/api/session/revoke/all/user?user=${account.id}`, options),
  );
  if (reply) account.isSettled = true;
}

export async function logOut(
  state: IdentityState,
  account: Account,
  session: Credential,
): Promise<void> {
  const about = `log out of a session of ${account.username}`;
  const options = { about, expected: [200], body: { session: session.token } };
  await end([session], 'log out', () => send(state, 'POST', '/api/auth/logout', options));
}

export async function revoke(
  state: IdentityState,
  account: Account,
  session: Credential,
): Promise<void> {
  const about = `revoke of a session of ${account.username}`;
  const encoded = encodeURIComponent(Buffer.from(session.token).toString('base64'));
  const options = { about, expected: [200], bearer: state.admin };
  await end([session], 'revoke', () =>
    send(state, 'DELETE', `/api/session/revoke?session=${encoded}`, options),
  );
}

/** Each time from another network, so that no throttle answers instead. */
export async function expectFormerRejected(
  { requests }: IdentityState,
  { username, former }: Account,
): Promise<void> {
  if (former === null) return;
  const about = `former password of ${username}`;
  const body = { username, password: former };
  await requests.send('identity', 'POST', '/api/auth/login', { about, expected: [401], body });
}

/** Looks an account up, and tries all its passwords and credentials. */
export async function checkAccount(state: IdentityState, account: Account): Promise<void> {
  const { requests, admin } = state;
  const { id, username } = account;
  const lookUp = { about: `user ${username}, acknowledged`, expected: [200], bearer: admin };
  const found = await requests.send('identity', 'GET', `/api/user/${id}`, lookUp);
  if (found && found.body.data?.username !== username) {
    requests.report(`user ${username}: found as another`);
  }
  const working = await countWorkingPasswords(state, account);
  if (account.login === 'works' && working !== 1) {
    const { length } = account.passwords;
    requests.report(`user ${username}: ${working} of ${length} possible passwords work`);
  }
  if (account.login === 'disabled' && working > 0) {
    requests.report(`disabled user ${username}: can log in`);
  }
  await expectFormerRejected(state, account);
  for (const credential of account.credentials) await useCredential(state, account, credential);
}

async function countWorkingPasswords(
  { requests }: IdentityState,
  { username, passwords }: Account,
): Promise<number> {
  let working = 0;
  for (const password of passwords) {
    const about = `password of ${username}`;
    const options = { about, expected: [200, 401], body: { username, password } };
    const reply = await requests.send('identity', 'POST', '/api/auth/login', options);
    if (reply?.status === 200) working += 1;
  }
  return working;
}
