/** What every proxy must do with its documented configuration. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Answer, ask, logIn } from '../../test/support/gatehouse.ts';
import { type Account, type Fields, type House, identityOf, type Seen, type Visit, visit } from './house.ts';

export interface Proxy {
  readonly port: number;
  /** What it answers where Gatehouse does not. */
  readonly withoutGatehouse: number;
}

export const bearer = (token: string): Fields => [['Authorization', `Bearer ${token}`]];
export const cookie = (token: string): Fields => [['Cookie', `theme=dark; session=${token}`]];

export const NAMES = ['X-Auth-User-Id', 'X-Auth-Username', 'X-Auth-Email', 'X-Auth-Super-Admin', 'X-Auth-Session-Id', 'X-Auth-Key-Id'];
/** What a client would write into each header to become somebody else. */
const spelled = (spell: (name: string) => string): Fields => NAMES.map((name) => [spell(name), name === 'X-Auth-Super-Admin' ? 'true' : 'forged']);
const FORGERIES: Readonly<Record<string, Fields>> = {
  'as we spell them': spelled((name) => name),
  'in small letters': spelled((name) => name.toLowerCase()),
  'in capitals': spelled((name) => name.toUpperCase()),
  'twice each': [...spelled((name) => name), ...spelled((name) => name)],
};

export async function proveForwardAuth(house: House, proxy: Proxy): Promise<void> {
  const { program, url, admin } = house;
  const user = await house.addUser('Ольга, "名前"; 100% (a+b)=c:d\\🔑');
  const session = await logIn(url, user.username, user.password);
  const sessionId: string = (await ask('POST', `${url}/api/auth/session`, { body: { session } })).json.data.id;
  const ownKey = await house.addKey(session, {});
  const programKey = await house.addKey(admin, { user_id: null });

  const person = (one: Account) => ({ 'x-auth-user-id': one.id, 'x-auth-username': one.username, 'x-auth-email': one.email, 'x-auth-super-admin': 'false' });
  const bySession = { ...person(user), 'x-auth-session-id': sessionId };
  const byOwnKey = { ...person(user), 'x-auth-key-id': ownKey.id };
  const byProgramKey = { 'x-auth-super-admin': 'false', 'x-auth-key-id': programKey.id };

  const passed = async (what: Visit): Promise<Seen> => {
    const count = program.seen.length;
    const answer = await visit(proxy.port, what);
    assert.equal(answer.status, 200, answer.text);
    assert.equal(program.seen.length, count + 1);
    assert.deepEqual([...answer.headers.keys()].filter((name) => name.startsWith('x-auth')), [], 'who it is, is told to the program and not to the client');
    const seen = program.seen[count];
    assert.ok(seen);
    return seen;
  };
  /** Every refusal in these tests goes through here: none of them may have reached the program. */
  const refused = async (status: number, what: Visit): Promise<Answer> => {
    const count = program.seen.length;
    const answer = await visit(proxy.port, what);
    assert.equal(answer.status, status, answer.text);
    assert.equal(program.seen.length, count, 'the program saw a request that was refused');
    return answer;
  };

  test('a request without a credential is refused with a challenge', async () => {
    const answer = await refused(401, {});
    assert.equal(answer.headers.get('www-authenticate'), 'Bearer');
    await refused(401, { headers: [['Cookie', 'theme=dark']] });
  });

  test('a credential that opens nothing is refused', async () => {
    for (const token of ['', 'session:', 'session:00000000-0000-4000-8000-000000000000', `${session}0`, `${ownKey.key}0`, ownKey.key.slice(0, -1)]) {
      await refused(401, { headers: bearer(token) });
      await refused(401, { headers: cookie(token) });
      await refused(401, { headers: [['X-API-Key', token]] });
    }
    await refused(401, { headers: [['Authorization', `Basic ${Buffer.from(`${user.username}:${user.password}`).toString('base64')}`]] });
  });

  test('a good cookie does not save a bad header, nor one of two cookies', async () => {
    await refused(401, { headers: [...bearer('session:wrong'), ...cookie(session)] });
    await refused(401, { headers: [['X-API-Key', 'key:wrong'], ...cookie(session)] });
    await refused(401, { headers: [['Cookie', `session=${session}; session=planted`]] });
  });

  test('a session passes as a bearer credential and as a cookie, and the program learns whose it is', async () => {
    const encoded = Buffer.from(session).toString('base64');
    for (const headers of [bearer(session), bearer(encoded), cookie(session), cookie(session.replace(':', '%3A'))]) {
      assert.deepEqual(identityOf(await passed({ headers })), bySession);
    }
  });

  test('a key passes in either header, and the program learns whose it is', async () => {
    for (const headers of [bearer(ownKey.key), [['X-API-Key', ownKey.key]] as const]) assert.deepEqual(identityOf(await passed({ headers })), byOwnKey);
    for (const headers of [bearer(programKey.key), [['X-API-Key', programKey.key]] as const]) assert.deepEqual(identityOf(await passed({ headers })), byProgramKey);
  });

  for (const [how, forged] of Object.entries(FORGERIES)) {
    test(`headers that a client forges ${how} never reach the program`, async () => {
      for (const order of [(good: Fields) => [...good, ...forged], (good: Fields) => [...forged, ...good]]) {
        assert.deepEqual(identityOf(await passed({ headers: order(bearer(session)) })), bySession);
        assert.deepEqual(identityOf(await passed({ headers: order(bearer(ownKey.key)) })), byOwnKey);
        assert.deepEqual(identityOf(await passed({ headers: order(bearer(programKey.key)) })), byProgramKey);
        await refused(401, { headers: order([]) });
        await refused(403, { path: '/admin', headers: order(bearer(session)) });
        assert.deepEqual(identityOf(await passed({ path: '/login', headers: order([]) })), {}, 'on an open path');
        assert.deepEqual(identityOf(await passed({ path: '/login', headers: order(bearer(session)) })), {}, 'on an open path');
      }
    });
  }

  test('a client that names our headers in Connection gains nothing by it', async () => {
    const headers: Fields = [['Connection', ['close', ...NAMES].join(', ')], ...spelled((name) => name)];
    for (const [good, truth] of [[session, bySession], [ownKey.key, byOwnKey], [programKey.key, byProgramKey]] as const) {
      const told = identityOf(await passed({ headers: [...headers, ...bearer(good)] }));
      for (const [name, value] of Object.entries(told)) assert.equal(value, new Map(Object.entries(truth)).get(name), name);
    }
    await refused(401, { headers });
    await refused(403, { path: '/admin', headers: [...headers, ...bearer(session)] });
  });

  test('what is for super administrators is for nobody else, however the path is written', async () => {
    for (const path of ['/admin', '/admin/', '/admin/users?x=1', '//admin', '/./admin', '/x/../admin', '/%61dmin', '/%61dmin/x', '/admin%2Fx']) {
      await refused(401, { path });
      for (const token of [session, ownKey.key, programKey.key]) await refused(403, { path, headers: bearer(token) });
      const told = identityOf(await passed({ path, headers: bearer(admin) }));
      assert.deepEqual([told['x-auth-username'], told['x-auth-super-admin']], ['admin', 'true']);
    }
  });

  test('what the client asks for is not asked of Gatehouse', async () => {
    for (const path of ['/?require=super_admin', '/?require=nonsense', '/a%20b/c?x=%2F&y=1']) {
      assert.equal((await passed({ path, headers: bearer(session) })).path, path);
    }
  });

  test('an open path is open for nothing else', async () => {
    for (const path of ['/admin/../login', '//login', '/%6cogin']) assert.equal(decodeURIComponent((await passed({ path })).path), '/login');
    for (const path of ['/login/../', '/login/../admin', '/login/x', '/loginx', '/login%2f..%2fadmin']) await refused(401, { path });
  });

  test('a body goes to the program whole, and to nobody when the sender is refused', async () => {
    const body = JSON.stringify({ text: 'ß'.repeat(100_000) });
    for (const chunked of [false, true]) {
      for (const method of ['POST', 'PUT', 'PATCH', 'DELETE']) {
        const seen = await passed({ method, body, chunked, headers: cookie(session) });
        assert.equal(seen.method, method);
        assert.ok(seen.body === body, 'the body arrived as it was sent');
        assert.deepEqual(identityOf(seen), bySession);
      }
      await refused(401, { method: 'POST', body, chunked });
      await refused(403, { method: 'POST', path: '/admin', body, chunked, headers: bearer(session) });
    }
    assert.equal((await passed({ method: 'HEAD', headers: cookie(session) })).method, 'HEAD');
  });

  test('a name with letters, commas and quotes of any kind comes as one line and decodes to what is stored', async () => {
    const longest = `${'名'.repeat(243)}@example.org`;
    for (const [name, email] of [['Zoë, 50 %'], ['%41dmin'], ['a=b; c=d'], ['🔑'], ['x'.repeat(255)], ['名'.repeat(255), longest]] as const) {
      const one = await house.addUser(name, email);
      const told = identityOf(await passed({ headers: bearer(await logIn(url, one.username, one.password)) }));
      assert.deepEqual([told['x-auth-username'], told['x-auth-email']], [name, one.email]);
    }
  });

  test('a session that was revoked opens nothing on the next request', async () => {
    const token = await logIn(url, user.username, user.password);
    await passed({ headers: cookie(token) });
    assert.equal((await ask('DELETE', `${url}/api/session/revoke?session=${token}`, { bearer: token })).status, 200);
    await refused(401, { headers: cookie(token) });
    await refused(401, { headers: bearer(token) });
  });

  test('a user who was disabled, or is an administrator no more, is refused on the next request', async () => {
    const one = await house.addUser('somebody');
    const change = async (body: unknown) => assert.equal((await ask('PATCH', `${url}/api/user/${one.id}`, { bearer: admin, body })).status, 200);
    const token = await logIn(url, one.username, one.password);
    const { key } = await house.addKey(token, {});
    await change({ super_admin: true });
    for (const good of [token, key]) await passed({ path: '/admin', headers: bearer(good) });
    await change({ super_admin: false });
    for (const good of [token, key]) await refused(403, { path: '/admin', headers: bearer(good) });
    for (const good of [token, key]) await passed({ headers: bearer(good) });
    await change({ enabled: false });
    for (const good of [token, key]) await refused(401, { headers: bearer(good) });
  });

  const elsewhere = { skip: process.platform === 'linux' ? false : 'only Linux leads every address of 127.0.0.0/8 to itself' };
  const atGatehouse = { host: 'id.example.org' };
  test('Gatehouse and the program see the address of the client and not the one that it invents', elsewhere, async () => {
    for (const forged of [[], [['X-Forwarded-For', '192.0.2.1']], [['X-Forwarded-For', '192.0.2.1, 127.0.0.1'], ['X-Real-IP', '192.0.2.1'], ['Forwarded', 'for=192.0.2.1']]] as const) {
      const headers = [...bearer(session), ...forged];
      const answer = await visit(proxy.port, { ...atGatehouse, from: '127.0.0.2', path: '/api/test/', headers });
      assert.deepEqual([answer.status, answer.json.data.ip], [200, '127.0.0.2']);
      const addresses = (await passed({ from: '127.0.0.2', headers })).headers.filter(([name]) => name.toLowerCase() === 'x-forwarded-for');
      assert.deepEqual(addresses.map(([, value]) => value), ['127.0.0.2']);
    }
  });

  test('failed logins slow down the address that they come from, and no other behind the same proxy', elsewhere, async () => {
    const one = await house.addUser('a target');
    const tryOut = async (from: string, password: string, index: number) => {
      const headers: Fields = [['X-Forwarded-For', `192.0.2.${index}`]];
      return (await visit(proxy.port, { ...atGatehouse, from, method: 'POST', path: '/api/auth/login', headers, body: JSON.stringify({ username: one.username, password }) })).status;
    };
    const statuses = [];
    for (let index = 0; index < 6; index += 1) statuses.push(await tryOut('127.0.0.3', 'wrong', index));
    assert.deepEqual(statuses, [401, 401, 401, 401, 401, 429]);
    assert.equal(await tryOut('127.0.0.3', one.password, 7), 429);
    assert.equal(await tryOut('127.0.0.4', one.password, 8), 200);
  });
}

/** To be called last: Gatehouse does not come back. */
export function proveFailingClosed({ gatehouse, program, admin }: House, proxy: Proxy): void {
  test('while Gatehouse is away nobody passes, and what needs no credential goes on', async () => {
    const count = program.seen.length;
    assert.equal((await visit(proxy.port, { headers: bearer(admin) })).status, 200);
    await gatehouse.stop();
    for (const path of ['/', '/admin']) {
      for (const headers of [bearer(admin), cookie(admin), [], spelled((name) => name)]) {
        assert.equal((await visit(proxy.port, { path, headers })).status, proxy.withoutGatehouse);
      }
    }
    assert.equal((await visit(proxy.port, { path: '/login' })).status, 200);
    assert.deepEqual(program.seen.slice(count).map(({ path }) => path), ['/', '/login']);
  });
}
