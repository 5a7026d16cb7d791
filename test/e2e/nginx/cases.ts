/** The tests that every proxy must pass with its documented configuration. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { callerHeaders } from '../../../src/identity/verify.ts';
import { type Answer, ask, logIn } from '../../support/gatehouse.ts';
import {
  type Account,
  type HeaderFields,
  identityOf,
  type ProxyRequest,
  type ProxySetup,
  type ReceivedRequest,
  request,
  type Upstream,
} from './setup.ts';

export interface Proxy {
  readonly port: number;
  /** The status of its replies while Gatehouse is unreachable. */
  readonly statusWithoutGatehouse: number;
}

export const bearer = (token: string): HeaderFields => [['Authorization', `Bearer ${token}`]];
export const cookie = (token: string): HeaderFields => [['Cookie', `theme=dark; session=${token}`]];

export const NAMES = Object.keys(callerHeaders({ session: null, key: null, user: null }));

/** All identity headers with values that would impersonate an administrator. */
const FORGED_VALUES = new Map([
  ['X-Auth-Super-Admin', 'true'],
  ['X-Auth-Groups', 'admins'],
]);
const forgedHeaders = (spell: (name: string) => string = (name) => name): HeaderFields =>
  NAMES.map((name) => [spell(name), FORGED_VALUES.get(name) ?? 'forged']);
const FORGERIES: Readonly<Record<string, HeaderFields>> = {
  'as documented': forgedHeaders(),
  'in lower case': forgedHeaders((name) => name.toLowerCase()),
  'in upper case': forgedHeaders((name) => name.toUpperCase()),
  'sent twice': [...forgedHeaders(), ...forgedHeaders()],
};

export async function testForwardAuth(setup: ProxySetup, proxy: Proxy): Promise<void> {
  const access = await createAccess(setup, proxy);
  addRejectionTests(access);
  addIdentityTests(access);
  addForgeryTests(access);
  addPathTests(access);
  addGroupTests(access);
  addSpellingTests(access);
  addContentTests(access);
  addProgramTests(access);
  addRevocationTests(access);
  addAddressTests(access);
}

/** A user with a session and a key, a key without a user, and what the program learns of each. */
interface Access {
  readonly setup: ProxySetup;
  readonly port: number;
  readonly user: Account;
  readonly session: string;
  readonly userKey: { readonly id: string; readonly key: string };
  readonly userlessKey: { readonly id: string; readonly key: string };
  readonly bySession: Identity;
  readonly byUserKey: Identity;
  readonly byUserlessKey: Identity;
  /** Each credential with its identity. */
  readonly identities: ReadonlyArray<readonly [token: string, identity: Identity]>;
  /** Sends a request that must reach the program. */
  passes(sent: ProxyRequest): Promise<ReceivedRequest>;
  /** Sends a request that must not reach the program: every rejection goes through here. */
  rejects(status: number, sent: ProxyRequest): Promise<Answer>;
}

/** Headers by name. */
type Identity = Readonly<Record<string, string>>;

async function createAccess(setup: ProxySetup, { port }: Proxy): Promise<Access> {
  const { url, admin, upstream } = setup;
  const user = await setup.addUser('Ольга, "名前"; 100% (a+b)=c:d\\🔑');
  const session = await logIn(url, user.username, user.password);
  const found = await ask('POST', `${url}/api/auth/session`, { body: { session } });
  const userKey = await setup.addKey(session, {});
  const userlessKey = await setup.addKey(admin, { user_id: null });
  const ofUser = {
    'x-auth-user-id': user.id,
    'x-auth-username': user.username,
    'x-auth-email': user.email,
    'x-auth-super-admin': 'false',
  };
  const bySession = { ...ofUser, 'x-auth-session-id': String(found.json.data.id) };
  const byUserKey = { ...ofUser, 'x-auth-key-id': userKey.id };
  const byUserlessKey = { 'x-auth-super-admin': 'false', 'x-auth-key-id': userlessKey.id };
  const identities = [
    [session, bySession],
    [userKey.key, byUserKey],
    [userlessKey.key, byUserlessKey],
  ] as const;
  return {
    setup,
    port,
    user,
    session,
    userKey,
    userlessKey,
    bySession,
    byUserKey,
    byUserlessKey,
    identities,
    passes: (sent) => expectPassed(upstream, port, sent),
    rejects: (status, sent) => expectRejected(upstream, port, status, sent),
  };
}

async function expectPassed(
  upstream: Upstream,
  port: number,
  sent: ProxyRequest,
): Promise<ReceivedRequest> {
  const count = upstream.requests.length;
  const answer = await request(port, sent);
  assert.equal(answer.status, 200, answer.text);
  assert.equal(upstream.requests.length, count + 1);
  const exposed = [...answer.headers.keys()].filter((name) => name.startsWith('x-auth'));
  assert.deepEqual(exposed, [], 'the identity goes to the program and not to the client');
  const received = upstream.requests[count];
  assert.ok(received);
  return received;
}

async function expectRejected(
  upstream: Upstream,
  port: number,
  status: number,
  sent: ProxyRequest,
): Promise<Answer> {
  const count = upstream.requests.length;
  const answer = await request(port, sent);
  assert.equal(answer.status, status, answer.text);
  assert.equal(upstream.requests.length, count, 'the program received a rejected request');
  return answer;
}

function addRejectionTests({ rejects, user, session, userKey }: Access): void {
  test('a request without a credential gets 401 and a challenge', async () => {
    const answer = await rejects(401, {});
    assert.equal(answer.headers.get('www-authenticate'), 'Bearer');
    await rejects(401, { headers: [['Cookie', 'theme=dark']] });
  });

  test('an invalid credential gets 401', async () => {
    for (const token of ['', `${session}0`, `${userKey.key}0`]) {
      await rejects(401, { headers: bearer(token) });
      await rejects(401, { headers: cookie(token) });
      await rejects(401, { headers: [['X-API-Key', token]] });
    }
    const basic = Buffer.from(`${user.username}:${user.password}`).toString('base64');
    await rejects(401, { headers: [['Authorization', `Basic ${basic}`]] });
  });
}

function addIdentityTests(access: Access): void {
  const { passes, setup, session, userKey, userlessKey } = access;
  const { bySession, byUserKey, byUserlessKey } = access;

  test('a session passes as bearer token and as cookie, with its identity', async () => {
    const encoded = Buffer.from(session).toString('base64');
    for (const headers of [
      bearer(session),
      bearer(encoded),
      cookie(session),
      cookie(session.replace(':', '%3A')),
    ]) {
      assert.deepEqual(identityOf(await passes({ headers })), bySession);
    }
  });

  test('a key passes in both headers, with its identity', async () => {
    for (const [key, expected] of [
      [userKey.key, byUserKey],
      [userlessKey.key, byUserlessKey],
    ] as const) {
      for (const headers of [bearer(key), [['X-API-Key', key]] as const]) {
        assert.deepEqual(identityOf(await passes({ headers })), expected);
      }
    }
  });

  test('names and addresses with any characters decode to the stored values', async () => {
    const longest = `${'名'.repeat(243)}@example.org`;
    const names = ['Zoë, 50 %', '%41dmin', 'a=b; c=d', '🔑', 'x'.repeat(255)].map(
      (name) => [name] as const,
    );
    for (const [name, email] of [...names, ['名'.repeat(255), longest] as const]) {
      const account = await setup.addUser(name, email);
      const token = await logIn(setup.url, account.username, account.password);
      const identity = identityOf(await passes({ headers: bearer(token) }));
      assert.deepEqual(
        [identity['x-auth-username'], identity['x-auth-email']],
        [name, account.email],
      );
    }
  });
}

function addForgeryTests({ passes, rejects, session, identities }: Access): void {
  for (const [how, forged] of Object.entries(FORGERIES)) {
    test(`forged identity headers never reach the program: ${how}`, async () => {
      const before = (fields: HeaderFields) => [...forged, ...fields];
      const after = (fields: HeaderFields) => [...fields, ...forged];
      for (const add of [after, before]) {
        for (const [token, expected] of identities) {
          assert.deepEqual(identityOf(await passes({ headers: add(bearer(token)) })), expected);
        }
        await rejects(401, { headers: add([]) });
        await rejects(403, { path: '/admin', headers: add(bearer(session)) });
        await rejects(403, { path: '/team', headers: add(bearer(session)) });
        for (const headers of [add([]), add(bearer(session))]) {
          assert.deepEqual(
            identityOf(await passes({ path: '/login', headers })),
            {},
            'on a public path',
          );
        }
      }
    });
  }

  test('naming the identity headers in Connection does not remove or forge them', async () => {
    const headers: HeaderFields = [
      ['Connection', ['close', ...NAMES].join(', ')],
      ...forgedHeaders(),
    ];
    for (const [token, expected] of identities) {
      const identity = identityOf(await passes({ headers: [...headers, ...bearer(token)] }));
      const values = new Map<string, string>(Object.entries(expected));
      for (const [name, value] of Object.entries(identity))
        assert.equal(value, values.get(name), name);
    }
    await rejects(401, { headers });
    await rejects(403, { path: '/admin', headers: [...headers, ...bearer(session)] });
  });
}

/** Other forms of a path, which some programs read as the path itself. */
export const spellingsOf = (path: string): readonly string[] => [
  ...[';x', ';', '%3bx', '%3B', '%3f', '%3Fx', '%23', '%00', '%00x', '%20', '%0a'].map(
    (end) => path + end,
  ),
  ...['/', '//', '/.', '.', ','].map((end) => path + end),
  path.toUpperCase(),
  path.replace(/[a-z]/, (letter) => letter.toUpperCase()),
  ...['/.;', '/;', '/x/..;', '/x/..%3b', '/%2e;', '/%2E%3Bx'].map((start) => start + path),
];

function addPathTests({ setup, passes, rejects, session, identities }: Access): void {
  test('super administrator paths reject other users in every spelling of the path', async () => {
    const encoded = ['/%61dmin', '/%61dmin/x', '/admin%2Fx'];
    for (const path of [
      '/admin',
      '/admin/',
      '/admin/users?x=1',
      '//admin',
      '/./admin',
      '/x/../admin',
      ...encoded,
    ]) {
      await rejects(401, { path });
      for (const [token] of identities) await rejects(403, { path, headers: bearer(token) });
      const identity = identityOf(await passes({ path, headers: bearer(setup.admin) }));
      assert.deepEqual(
        [identity['x-auth-username'], identity['x-auth-super-admin']],
        ['admin', 'true'],
      );
    }
  });

  test("the client's query is not part of the check at Gatehouse", async () => {
    for (const path of ['/?require=super_admin', '/?require=nonsense', '/a%20b/c?x=%2F&y=1']) {
      assert.equal((await passes({ path, headers: bearer(session) })).path, path);
    }
  });

  test('a public path does not open any other path', async () => {
    for (const path of ['/admin/../login', '//login', '/%6cogin']) {
      assert.equal(decodeURIComponent((await passes({ path })).path), '/login');
    }
    for (const path of [
      '/login/../',
      '/login/../admin',
      '/login/x',
      '/loginx',
      '/login%2f..%2fadmin',
    ]) {
      await rejects(401, { path });
    }
  });
}

function addGroupTests({ setup, passes, rejects, identities }: Access): void {
  test('a path for groups opens to their members and keys, and to nobody else', async () => {
    for (const path of ['/team', '/team/wiki?x=1', '//team', '/%74eam', '/TEAM']) {
      await rejects(401, { path });
      for (const [token] of identities) await rejects(403, { path, headers: bearer(token) });
    }
    const member = await setup.addUser('member of the staff');
    const token = await logIn(setup.url, member.username, member.password);
    const setGroups = async (groups: readonly string[]) => {
      const address = `${setup.url}/api/user/${member.id}`;
      const changed = await ask('PATCH', address, { bearer: setup.admin, body: { groups } });
      assert.equal(changed.status, 200, changed.text);
    };
    for (const group of ['staff', 'admins']) {
      await setGroups([group]);
      const userKey = await setup.addKey(token, {});
      const userless = await setup.addKey(setup.admin, { user_id: null, groups: [group] });
      for (const headers of [token, userKey.key, userless.key].map(bearer)) {
        const identity = identityOf(await passes({ path: '/team', headers }));
        assert.equal(identity['x-auth-groups'], group);
      }
      await setGroups(['visitors']);
      await rejects(403, { path: '/team', headers: bearer(token) });
      await rejects(403, { path: '/team', headers: bearer(userKey.key) });
    }
  });
}

function addSpellingTests({ setup, port, session }: Access): void {
  for (const path of ['/admin', '/team'].flatMap(spellingsOf)) {
    test(`${path} does not avoid the rule of a program that ignores what is added`, async () => {
      const { upstream } = setup;
      const before = upstream.requests.length;
      for (const headers of [[], bearer(session)]) {
        const { status } = await request(port, { path, headers });
        assert.ok([400, 401, 403].includes(status), String(status));
      }
      assert.equal(upstream.requests.length, before, 'the program received nothing');
    });
  }

  test('a spelling of a public path opens no other path', async () => {
    const { upstream } = setup;
    for (const path of spellingsOf('/login')) {
      const before = upstream.requests.length;
      const { status } = await request(port, { path });
      const received = upstream.requests.slice(before).map((one) => one.path);
      const isPublic = status === 200 && received.join() === '/login';
      assert.ok(isPublic || ([400, 401].includes(status) && received.length === 0), path);
    }
  });
}

function addContentTests({ passes, rejects, session, bySession }: Access): void {
  test('a body reaches the program complete, or not at all when the request is rejected', async () => {
    const body = JSON.stringify({ text: 'ß'.repeat(100_000) });
    for (const chunked of [false, true]) {
      for (const method of ['POST', 'PUT', 'PATCH', 'DELETE']) {
        const received = await passes({ method, body, chunked, headers: cookie(session) });
        assert.equal(received.method, method);
        assert.ok(received.body === body, 'the body is unchanged');
        assert.deepEqual(identityOf(received), bySession);
      }
      await rejects(401, { method: 'POST', body, chunked });
      await rejects(403, {
        method: 'POST',
        path: '/admin',
        body,
        chunked,
        headers: bearer(session),
      });
    }
    assert.equal((await passes({ method: 'HEAD', headers: cookie(session) })).method, 'HEAD');
  });
}

const HEADERS_LIMIT = 16 * 1024;

function addProgramTests({ setup, port, passes, rejects, session, bySession }: Access): void {
  const ofPrograms = Array.from({ length: 5 }, (_, index) => `p${index}=${'x'.repeat(4_000)}`);

  test('cookies of programs that are larger than Gatehouse accepts do not stop a request', async () => {
    const own = `session=${session}`;
    for (const cookies of [
      [own, ...ofPrograms],
      [...ofPrograms, own],
      [...ofPrograms.slice(0, 2), `my${own}x`, own, ...ofPrograms.slice(2)],
    ]) {
      const cookie = cookies.join('; ');
      assert.ok(cookie.length > HEADERS_LIMIT);
      const received = await passes({ headers: [['Cookie', cookie]] });
      assert.deepEqual(identityOf(received), bySession);
      const reached = received.headers.find(([name]) => name.toLowerCase() === 'cookie');
      assert.equal(reached?.[1], cookie, 'the program has its own');
    }
    for (const cookies of [ofPrograms, [own, ...ofPrograms, own], [`x="`, ...ofPrograms, own, own]])
      await rejects(401, { headers: [['Cookie', cookies.join('; ')]] });
  });

  test('a WebSocket reaches the program with the identity, and without one gets 401', async () => {
    const upgrade: HeaderFields = [
      ['Connection', 'Upgrade'],
      ['Upgrade', 'websocket'],
      ['Sec-WebSocket-Version', '13'],
      ['Sec-WebSocket-Key', 'dGhlIHNhbXBsZSBub25jZQ=='],
    ];
    const { upstream } = setup;
    await rejects(401, { path: '/socket', headers: upgrade });
    const before = upstream.requests.length;
    const headers = [...upgrade, ...cookie(session)];
    assert.equal((await request(port, { path: '/socket', headers })).status, 101);
    const [received, ...others] = upstream.requests.slice(before);
    assert.ok(received && others.length === 0);
    assert.deepEqual(identityOf(received), bySession);
  });

  test('OPTIONS needs a credential like any other method, and so does a preflight', async () => {
    await rejects(401, { method: 'OPTIONS' });
    await rejects(401, { method: 'OPTIONS', headers: PREFLIGHT });
    await rejects(403, { method: 'OPTIONS', path: '/admin', headers: bearer(session) });
    assert.equal((await passes({ method: 'OPTIONS', headers: bearer(session) })).method, 'OPTIONS');
  });

  test('the program sees the port that the browser asked for', async () => {
    const received = await passes({ host: 'app.example.org:8443', headers: bearer(session) });
    const host = received.headers.find(([name]) => name.toLowerCase() === 'host');
    assert.equal(host?.[1], 'app.example.org:8443');
  });
}

/** What a browser asks before a script sends a request to another origin. */
const PREFLIGHT: HeaderFields = [
  ['Origin', 'https://other.example.org'],
  ['Access-Control-Request-Method', 'PUT'],
];

/** With the exception that the documents describe. */
export async function testPreflights({ upstream, admin }: ProxySetup, port: number): Promise<void> {
  for (const path of ['/', '/admin', '/login']) {
    const forged = [...PREFLIGHT, ...forgedHeaders()];
    const received = await expectPassed(upstream, port, {
      method: 'OPTIONS',
      path,
      headers: forged,
    });
    assert.deepEqual([received.method, identityOf(received)], ['OPTIONS', {}], path);
  }
  for (const headers of [[], PREFLIGHT.slice(0, 1), PREFLIGHT.slice(1)])
    await expectRejected(upstream, port, 401, { method: 'OPTIONS', headers });
  for (const method of ['GET', 'PUT', 'POST'])
    await expectRejected(upstream, port, 401, { method, headers: PREFLIGHT });
  const identity = identityOf(await expectPassed(upstream, port, { headers: bearer(admin) }));
  assert.equal(identity['x-auth-username'], 'admin');
}

function addRevocationTests({ setup, passes, rejects, user }: Access): void {
  const { url } = setup;

  test('a revoked session is rejected on the next request', async () => {
    const token = await logIn(url, user.username, user.password);
    await passes({ headers: cookie(token) });
    const revoked = await ask('DELETE', `${url}/api/session/revoke?session=${token}`, {
      bearer: token,
    });
    assert.equal(revoked.status, 200);
    await rejects(401, { headers: cookie(token) });
    await rejects(401, { headers: bearer(token) });
  });
}

function addAddressTests({ setup, port, passes, session }: Access): void {
  const needsLinux = {
    skip: process.platform === 'linux' ? false : 'needs Linux, where all of 127.0.0.0/8 is local',
  };
  const atGatehouse = { host: 'id.example.org' };
  test("Gatehouse and the program see the client's real address", needsLinux, async () => {
    const single: HeaderFields = [['X-Forwarded-For', '192.0.2.1']];
    const several: HeaderFields = [
      ['X-Forwarded-For', '192.0.2.1, 127.0.0.1'],
      ['X-Real-IP', '192.0.2.1'],
      ['Forwarded', 'for=192.0.2.1'],
    ];
    for (const forged of [[], single, several]) {
      const sent = { from: '127.0.0.2', headers: [...bearer(session), ...forged] };
      const answer = await request(port, { ...atGatehouse, ...sent, path: '/api/test/' });
      assert.deepEqual([answer.status, answer.json.data.ip], [200, '127.0.0.2']);
      const { headers } = await passes(sent);
      const addresses = headers
        .filter(([name]) => name.toLowerCase() === 'x-forwarded-for')
        .map(([, value]) => value);
      assert.deepEqual(addresses, ['127.0.0.2']);
    }
  });

  test(
    'failed logins throttle their own address and no other behind the proxy',
    needsLinux,
    async () => {
      const { username, password } = await setup.addUser('a target');
      const attempt = async (from: string, tried: string, index: number) => {
        const headers: HeaderFields = [['X-Forwarded-For', `192.0.2.${index}`]];
        const body = JSON.stringify({ username, password: tried });
        const login = {
          ...atGatehouse,
          from,
          method: 'POST',
          path: '/api/auth/login',
          headers,
          body,
        };
        return (await request(port, login)).status;
      };
      const statuses = [];
      for (let index = 0; index < 6; index += 1)
        statuses.push(await attempt('127.0.0.3', 'wrong', index));
      assert.deepEqual(statuses, [401, 401, 401, 401, 401, 429]);
      assert.equal(await attempt('127.0.0.3', password, 7), 429);
      assert.equal(await attempt('127.0.0.4', password, 8), 200);
    },
  );
}

/** Must be called last: it stops Gatehouse. */
export function testFailingClosed({ gatehouse, upstream, admin }: ProxySetup, proxy: Proxy): void {
  test('while Gatehouse is unreachable, guarded paths fail and public paths work', async () => {
    const count = upstream.requests.length;
    assert.equal((await request(proxy.port, { headers: bearer(admin) })).status, 200);
    await gatehouse.stop();
    for (const path of ['/', '/admin']) {
      for (const headers of [bearer(admin), cookie(admin), [], forgedHeaders()]) {
        assert.equal(
          (await request(proxy.port, { path, headers })).status,
          proxy.statusWithoutGatehouse,
        );
      }
    }
    assert.equal((await request(proxy.port, { path: '/login' })).status, 200);
    assert.deepEqual(
      upstream.requests.slice(count).map(({ path }) => path),
      ['/', '/login'],
    );
  });
}
