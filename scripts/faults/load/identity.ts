/** A client of identity that knows what was acknowledged to it: users, passwords, sessions, keys and their ends. */
import { randomBytes } from 'node:crypto';
import { choose, pick } from '../random.ts';
import type { LoadClient } from './load.ts';
import type { Reply, Requests } from './requests.ts';

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
  /** Once a change of the whole account has failed, it may still happen at any time. Then nothing more is tried. */
  isSettled: boolean;
  readonly credentials: Credential[];
}

const WEIGHTS = {
  'create a user': 2,
  'log in': 5,
  'create a key': 1,
  'use a credential': 12,
  'log out': 3,
  revoke: 2,
  'use an ended credential': 5,
  'change the password': 1,
  'use a former password': 0.5,
  'revoke all of a user': 1,
  'disable a user': 0.5,
} as const;

/** @param admin the session of a super administrator */
export function createIdentityClient(
  requests: Requests,
  random: () => number,
  number: number,
  admin: string,
): LoadClient {
  const accounts: Account[] = [];
  const address = `198.51.100.${number}`;
  const send = (
    method: string,
    path: string,
    about: string,
    expected: number[],
    bearer?: string,
    body?: object,
  ) =>
    requests.send('identity', method, path, {
      about,
      expected,
      address,
      ...(bearer ? { bearer } : {}),
      body,
    });
  const newPassword = () => randomBytes(12).toString('base64url');

  async function createUser(): Promise<void> {
    const username = `u${number}x${randomBytes(6).toString('hex')}`;
    const [password, email] = [newPassword(), `${username}@example.org`];
    const about = `creating ${username}`;
    const reply = await send('POST', '/api/user/', about, [201], admin, {
      username,
      email,
      password,
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

  async function logIn(account: Account): Promise<void> {
    const body = { username: account.username, password: account.passwords[0] };
    const about = `right password of ${account.username}`;
    const reply = await send('POST', '/api/auth/login', about, [200], undefined, body);
    addCredential(account, 'session', reply?.body.data?.session);
  }

  function addCredential(
    account: Account,
    kind: Credential['kind'],
    token: string | undefined,
  ): void {
    if (token) account.credentials.push({ kind, token, state: 'active', endedBy: '' });
  }

  async function use(account: Account, { kind, token, state, endedBy }: Credential): Promise<void> {
    const expected = state === 'active' ? [200] : state === 'ended' ? [401] : [200, 401];
    const about = `${kind} of ${account.username}, ${state}${endedBy && ` by "${endedBy}"`}`;
    const reply = await requests.send('identity', 'GET', '/api/test/', {
      about,
      expected,
      bearer: token,
    });
    checkOwner(account, about, reply);
  }

  function checkOwner(account: Account, about: string, reply: Reply | null): void {
    const owner = reply?.body.data?.user?.id;
    if (reply?.status === 200 && owner !== account.id)
      requests.report(`${about}: answered as user ${owner}`);
  }

  /** @param affected what the request ends @returns whether that was acknowledged */
  async function end(
    affected: readonly Credential[],
    what: string,
    request: () => Promise<Reply | null>,
  ) {
    const open = affected.filter(({ state }) => state !== 'ended');
    for (const credential of open) Object.assign(credential, { state: 'unknown', endedBy: what });
    const reply = await request();
    if (reply) for (const credential of open) credential.state = 'ended';
    return reply;
  }

  const sessionsOf = ({ credentials }: Account) =>
    credentials.filter(({ kind }) => kind === 'session');

  async function changePassword(account: Account, bearer: string): Promise<void> {
    const [current = ''] = account.passwords;
    const body = { current_password: current, new_password: newPassword() };
    account.passwords.push(body.new_password);
    account.isSettled = false;
    const what = 'change of password';
    const about = `changing the password of ${account.username}`;
    const reply = await end(sessionsOf(account), what, () =>
      send('POST', '/api/auth/password', about, [200], bearer, body),
    );
    if (!reply) return;
    Object.assign(account, { passwords: [body.new_password], former: current, isSettled: true });
    addCredential(account, 'session', reply.body.data?.session);
  }

  async function changeAccount(account: Account, what: 'disable' | 'revoke all'): Promise<void> {
    account.isSettled = false;
    const about = `${what} of ${account.username}`;
    if (what === 'disable') account.login = 'unknown';
    const affected = what === 'disable' ? account.credentials : sessionsOf(account);
    const reply = await end(affected, what, () =>
      what === 'disable'
        ? send('PATCH', `/api/user/${account.id}`, about, [200], admin, { enabled: false })
        : send('DELETE', `/api/session/revoke/all/user?user=${account.id}`, about, [200], admin),
    );
    if (!reply) return;
    account.isSettled = true;
    if (what === 'disable') account.login = 'disabled';
  }

  async function endSession(
    account: Account,
    session: Credential,
    what: 'log out' | 'revoke',
  ): Promise<void> {
    const about = `${what} of a session of ${account.username}`;
    const encoded = encodeURIComponent(Buffer.from(session.token).toString('base64'));
    await end([session], what, () =>
      what === 'log out'
        ? send('POST', '/api/auth/logout', about, [200], undefined, { session: session.token })
        : send('DELETE', `/api/session/revoke?session=${encoded}`, about, [200], admin),
    );
  }

  /** Each time from another network, so that no throttle answers instead. */
  async function expectRejected(account: Account, password: string, why: string): Promise<void> {
    const options = { about: `${why} of ${account.username}`, expected: [401] };
    const body = { username: account.username, password };
    await requests.send('identity', 'POST', '/api/auth/login', { ...options, body });
  }

  async function step(): Promise<void> {
    const usable = accounts.filter(({ isSettled, login }) => isSettled && login === 'works');
    const account = choose(random, usable);
    const action = account && accounts.length > 2 ? pick(random, WEIGHTS) : 'create a user';
    if (action === 'create a user' || !account) return createUser();
    const withState = (state: Credential['state']) =>
      choose(
        random,
        account.credentials.filter((credential) => credential.state === state),
      );
    const session = choose(
      random,
      sessionsOf(account).filter(({ state }) => state === 'active'),
    );
    if (action === 'use an ended credential') {
      const other = choose(random, accounts);
      const ended = choose(
        random,
        other?.credentials.filter(({ state }) => state === 'ended') ?? [],
      );
      return other && ended && use(other, ended);
    }
    if (action === 'use a former password') {
      return account.former === null
        ? undefined
        : expectRejected(account, account.former, 'former password');
    }
    if (action === 'revoke all of a user') return changeAccount(account, 'revoke all');
    if (action === 'disable a user') return changeAccount(account, 'disable');
    if (action === 'log in' || !session) return logIn(account);
    if (action === 'use a credential') return use(account, withState('active') ?? session);
    if (action === 'change the password') return changePassword(account, session.token);
    if (action === 'log out' || action === 'revoke') return endSession(account, session, action);
    const reply = await send(
      'POST',
      '/api/key/',
      `key of ${account.username}`,
      [201],
      session.token,
      { name: 'load' },
    );
    return addCredential(account, 'key', reply?.body.data?.key);
  }

  async function checkAccount(account: Account): Promise<void> {
    const { id, username } = account;
    const lookUp = { about: `user ${username}, acknowledged`, expected: [200], bearer: admin };
    const found = await requests.send('identity', 'GET', `/api/user/${id}`, lookUp);
    if (found && found.body.data?.username !== username)
      requests.report(`user ${username}: found as another`);
    const works: string[] = [];
    for (const password of account.passwords) {
      const options = {
        about: `password of ${username}`,
        expected: [200, 401],
        body: { username, password },
      };
      const reply = await requests.send('identity', 'POST', '/api/auth/login', options);
      if (reply?.status === 200) works.push(password);
    }
    if (account.login === 'works' && works.length !== 1) {
      requests.report(
        `user ${username}: ${works.length} of ${account.passwords.length} possible passwords work`,
      );
    }
    if (account.login === 'disabled' && works.length > 0)
      requests.report(`disabled user ${username}: can log in`);
    if (account.former !== null) await expectRejected(account, account.former, 'former password');
    for (const credential of account.credentials) await use(account, credential);
  }

  return {
    step,
    async check() {
      for (const account of accounts) await checkAccount(account);
    },
    summary() {
      const credentials = accounts.flatMap(({ credentials: all }) => all);
      const ended = credentials.filter(({ state }) => state === 'ended').length;
      return { users: accounts.length, credentials: credentials.length, ended };
    },
  };
}
