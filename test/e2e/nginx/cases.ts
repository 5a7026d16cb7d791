/** The tests that every proxy must pass with its documented configuration. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ask, logIn } from '../../support/gatehouse.ts';
import {
  type Access,
  bearer,
  cookie,
  createAccess,
  expectPassed,
  expectRejected,
  NAMES,
  type Proxy,
} from './access.ts';
import { addGroupTests, addPathTests, addSpellingTests } from './path-cases.ts';
import { type HeaderFields, identityOf, type ProxySetup, request } from './setup.ts';

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
