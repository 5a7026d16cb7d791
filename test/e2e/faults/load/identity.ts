/**
 * A client of identity that knows what was acknowledged to it: users, passwords, sessions, keys and
 * their ends.
 */
import { randomBytes } from 'node:crypto';
import { choose, pick } from '../random.ts';
import type { LoadClient } from './load.ts';
import type { Reply, RequestOptions, Requests } from './requests.ts';

interface Credential {
  readonly kind: 'session' | 'key';
  readonly token: string;
  /** `unknown`: its end was requested and not acknowledged. */
  state: 'active' | 'unknown' | 'ended';
  /** What ended it, or should have. */
  endedBy: string;
}

interface Account {
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

interface IdentityState {
  readonly requests: Requests;
  readonly random: () => number;
  /** The number of the client. */
  readonly number: number;
  /** The session of a super administrator. */
  readonly admin: string;
  readonly accounts: Account[];
}

/** Calls identity from the address of this client. */
const send = (
  { requests, number }: IdentityState,
  method: string,
  path: string,
  options: RequestOptions,
): Promise<Reply | null> =>
  requests.send('identity', method, path, { address: `198.51.100.${number}`, ...options });

const newPassword = () => randomBytes(12).toString('base64url');
const withState = (credentials: readonly Credential[], state: Credential['state']) =>
  credentials.filter((credential) => credential.state === state);
const sessionsOf = ({ credentials }: Account) =>
  credentials.filter(({ kind }) => kind === 'session');

const WEIGHTS = {
  'create a user': 2,
  'log in': 5,
  'create a key': 1,
  'use a credential': 12,
  'use an ended credential': 5,
  'use a former password': 0.5,
  'log out': 3,
  revoke: 2,
  'change the password': 1,
  'revoke all': 1,
  'disable the user': 0.5,
} as const;

/** @param admin the session of a super administrator */
export function createIdentityClient(
  requests: Requests,
  random: () => number,
  number: number,
  admin: string,
): LoadClient {
  const accounts: Account[] = [];
  const state: IdentityState = { requests, random, number, admin, accounts };
  return {
    step: () => step(state),
    async check() {
      for (const account of accounts) await checkAccount(state, account);
    },
  };
}

/** Without an active session, the account logs in where an action needs one. */
async function step(state: IdentityState): Promise<void> {
  const { random, accounts } = state;
  const usable = accounts.filter(({ isSettled, login }) => isSettled && login === 'works');
  const account = choose(random, usable);
  if (!account || accounts.length <= 2) return createUser(state);
  const action = pick(random, WEIGHTS);
  const session = choose(random, withState(sessionsOf(account), 'active'));
  switch (action) {
    case 'create a user':
      return createUser(state);
    case 'use an ended credential': {
      const any = choose(random, accounts) ?? account;
      const ended = choose(random, withState(any.credentials, 'ended'));
      return ended && useCredential(state, any, ended);
    }
    case 'use a former password':
      return expectFormerRejected(state, account);
    case 'log in':
      return logIn(state, account);
    case 'use a credential': {
      const active = choose(random, withState(account.credentials, 'active'));
      return active ? useCredential(state, account, active) : logIn(state, account);
    }
    case 'create a key':
      return session ? createKey(state, account, session) : logIn(state, account);
    default:
      return session ? end(state, account, session, action) : logIn(state, account);
  }
}

async function createUser(state: IdentityState): Promise<void> {
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

async function logIn(state: IdentityState, account: Account): Promise<void> {
  const { username, passwords } = account;
  const reply = await send(state, 'POST', '/api/auth/login', {
    about: `right password of ${username}`,
    expected: [200],
    body: { username, password: passwords[0] },
  });
  addCredential(account, 'session', reply?.body.data?.session);
}

async function createKey(state: IdentityState, account: Account, { token }: Credential) {
  const about = `key of ${account.username}`;
  const options = { about, expected: [201], bearer: token, body: { name: 'load' } };
  const reply = await send(state, 'POST', '/api/key/', options);
  addCredential(account, 'key', reply?.body.data?.key);
}

function addCredential({ credentials }: Account, kind: Credential['kind'], token?: string): void {
  if (token) credentials.push({ kind, token, state: 'active', endedBy: '' });
}

async function useCredential(
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

interface End {
  readonly method: string;
  readonly path: string;
  readonly bearer?: string;
  readonly body?: object;
  /** The credentials that it ends, if there are more than the session. */
  readonly all?: readonly Credential[];
}

/** The requests that end credentials. */
const ENDS = {
  'log out': (_state: IdentityState, _account: Account, session: Credential): End => ({
    method: 'POST',
    path: '/api/auth/logout',
    body: { session: session.token },
  }),
  revoke: ({ admin }: IdentityState, _account: Account, session: Credential): End => {
    const encoded = encodeURIComponent(Buffer.from(session.token).toString('base64'));
    return { method: 'DELETE', path: `/api/session/revoke?session=${encoded}`, bearer: admin };
  },
  'revoke all': ({ admin }: IdentityState, account: Account): End => ({
    method: 'DELETE',
    path: `/api/session/revoke/all/user?user=${account.id}`,
    bearer: admin,
    all: sessionsOf(account),
  }),
  'change the password': (_state: IdentityState, account: Account, session: Credential): End => {
    const [current] = account.passwords;
    const password = newPassword();
    account.passwords.push(password);
    return {
      method: 'POST',
      path: '/api/auth/password',
      bearer: session.token,
      body: { current_password: current, new_password: password },
      all: sessionsOf(account),
    };
  },
  'disable the user': ({ admin }: IdentityState, account: Account): End => {
    account.login = 'unknown';
    return {
      method: 'PATCH',
      path: `/api/user/${account.id}`,
      bearer: admin,
      body: { enabled: false },
      all: account.credentials,
    };
  },
};

async function end(
  state: IdentityState,
  account: Account,
  session: Credential,
  how: keyof typeof ENDS,
): Promise<void> {
  const { method, path, all, ...sent } = ENDS[how](state, account, session);
  const open = (all ?? [session]).filter((one) => one.state !== 'ended');
  for (const credential of open) {
    credential.state = 'unknown';
    credential.endedBy = how;
  }
  account.isSettled = all === undefined;
  const about = `"${how}" of ${account.username}`;
  const reply = await send(state, method, path, { about, expected: [200], ...sent });
  if (!reply) return;
  for (const credential of open) credential.state = 'ended';
  account.isSettled = true;
  if (how === 'disable the user') account.login = 'disabled';
  if (how !== 'change the password') return;
  const [former = null, ...passwords] = account.passwords;
  account.former = former;
  account.passwords = passwords;
  addCredential(account, 'session', reply.body.data?.session);
}

/** Each time from another network, so that no throttle answers instead. */
async function expectFormerRejected(
  { requests }: IdentityState,
  { username, former }: Account,
): Promise<void> {
  if (former === null) return;
  const about = `former password of ${username}`;
  const body = { username, password: former };
  await requests.send('identity', 'POST', '/api/auth/login', { about, expected: [401], body });
}

/** Looks an account up, and tries all its passwords and credentials. */
async function checkAccount(state: IdentityState, account: Account): Promise<void> {
  const { requests, admin } = state;
  const { id, username, passwords, login } = account;
  const lookUp = { about: `user ${username}, acknowledged`, expected: [200], bearer: admin };
  const found = await requests.send('identity', 'GET', `/api/user/${id}`, lookUp);
  if (found && found.body.data?.username !== username)
    requests.report(`user ${username}: found as another`);
  let working = 0;
  for (const password of passwords) {
    const about = `password of ${username}`;
    const options = { about, expected: [200, 401], body: { username, password } };
    const reply = await requests.send('identity', 'POST', '/api/auth/login', options);
    if (reply?.status === 200) working += 1;
  }
  if (login === 'works' && working !== 1)
    requests.report(`user ${username}: ${working} of ${passwords.length} passwords work`);
  if (login === 'disabled' && working > 0) requests.report(`disabled user ${username}: can log in`);
  await expectFormerRejected(state, account);
  for (const credential of account.credentials) await useCredential(state, account, credential);
}
