/** The tests that every proxy must pass with its documented configuration. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { logIn } from '../../support/gatehouse.ts';
import { PASSWORD } from '../../support/users.ts';
import {
  bearer,
  type HeaderFields,
  NAMES,
  type ProxyRequest,
  type ProxySetup,
  type ReceivedRequest,
  request,
  valueOf,
} from './setup.ts';

const cookie = (token: string): HeaderFields => [['Cookie', `theme=dark; session=${token}`]];

/**
 * The identity that a program reads from a request: every header that some language or framework
 * would normalize to an `X-Auth-…` name. An empty value counts as none.
 */
function identityOf({ headers }: ReceivedRequest): Record<string, string> {
  const identity: Record<string, string> = {};
  for (const [name, value] of headers) {
    if (!/^x[^a-z0-9]auth[^a-z0-9]/i.test(name) || value === '') continue;
    const key = name.toLowerCase();
    assert.match(value, /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/);
    assert.doesNotMatch(value, /[,;:"\\()<>[\]]/);
    identity[key] = key in identity ? `${identity[key]} and ${value}` : decodeURIComponent(value);
  }
  return identity;
}

/** Sends requests through a proxy, and looks at what the program behind it has received. */
function watch({ upstream: { requests } }: ProxySetup, port: number) {
  /** A request that must reach the program. */
  async function passes(sent: ProxyRequest): Promise<ReceivedRequest> {
    const count = requests.length;
    const answer = await request(port, sent);
    assert.deepEqual([answer.status, requests.length], [200, count + 1], answer.text);
    const exposed = [...answer.headers.keys()].filter((name) => name.startsWith('x-auth'));
    assert.deepEqual(exposed, [], 'the identity goes to the program and not to the client');
    return requests[count] ?? assert.fail();
  }
  return {
    passes,
    identify: async (sent: ProxyRequest) => identityOf(await passes(sent)),
    /** A request that must not reach the program: every rejection goes through here. */
    async rejects(expected: number | readonly number[], sent: ProxyRequest) {
      const count = requests.length;
      const answer = await request(port, sent);
      assert.ok([expected].flat().includes(answer.status), `${sent.path}: ${answer.status}`);
      assert.equal(requests.length, count, `the program received ${sent.path}`);
      return answer;
    },
  };
}

export type Access = Awaited<ReturnType<typeof createAccess>>;

/**
 * A user with a session and a key, a key without a user, and what the program learns of each. Name
 * and address are as long as possible.
 */
export async function createAccess(setup: ProxySetup, port: number) {
  const user = await setup.addMember({
    username: 'Ольга, "名前"; 100% (a+b)=c:d\\🔑'.padEnd(255, '名'),
    email: `${'名'.repeat(243)}@example.org`,
  });
  const session = await logIn(setup.url, user.username, PASSWORD);
  const found = await setup.call('POST', '/api/auth/session', { session });
  const userKey = await setup.addKey(session, {});
  const userlessKey = await setup.addKey(setup.admin, { user_id: null });
  const ofUser = {
    'x-auth-user-id': user.id,
    'x-auth-username': user.username,
    'x-auth-email': user.email,
    'x-auth-super-admin': 'false',
  };
  const bySession = { ...ofUser, 'x-auth-session-id': String(found.id) };
  /** Each credential with its identity. */
  const identities = [
    [session, bySession],
    [userKey.key, { ...ofUser, 'x-auth-key-id': userKey.id }],
    [userlessKey.key, { 'x-auth-super-admin': 'false', 'x-auth-key-id': userlessKey.id }],
  ] as const;
  return { setup, port, session, bySession, identities, ...watch(setup, port) };
}

/**
 * @param status of replies while Gatehouse is unreachable
 * @param marks what stands in a name in place of a hyphen, and the proxy removes
 */
export function testForwardAuth(access: Access, status: number, marks: readonly string[]): void {
  addCredentialTests(access);
  addForgeryTests(access, marks);
  addPathTests(access);
  addGroupTest(access);
  addContentTests(access);
  addEndTests(access, status);
}

function addCredentialTests({ identify, rejects, session, identities }: Access): void {
  test('a request without a valid credential gets 401 and a challenge', async () => {
    const { headers } = await rejects(401, { headers: [['Cookie', 'theme=dark']] });
    assert.equal(headers.get('www-authenticate'), 'Bearer');
    const wrong = `${session}0`;
    for (const headers of [bearer(wrong), cookie(wrong), [['X-API-Key', wrong]] as const])
      await rejects(401, { headers });
  });

  test('a session and a key pass in each of their headers, with their identity', async () => {
    for (const [token, expected] of identities) {
      const other = token === session ? cookie(token) : ([['X-API-Key', token]] as const);
      for (const headers of [bearer(token), other])
        assert.deepEqual(await identify({ headers }), expected);
    }
  });
}

/** All identity headers with values that would impersonate an administrator. */
const FORGED_VALUES = new Map([
  ['X-Auth-Super-Admin', 'true'],
  ['X-Auth-Groups', 'admins'],
]);
const forgedHeaders = (spell: (name: string) => string = (name) => name): HeaderFields =>
  NAMES.map((name) => [spell(name), FORGED_VALUES.get(name) ?? 'forged']);
const FORGERIES = [
  forgedHeaders(),
  forgedHeaders((name) => name.toLowerCase()),
  [...forgedHeaders(), ...forgedHeaders()],
];

function addForgeryTests(
  { setup, identify, rejects, session, identities }: Access,
  marks: readonly string[],
): void {
  test('forged identity headers never reach the program, in lower case and twice neither', async () => {
    const added = FORGERIES.flatMap((forged) => [
      (fields: HeaderFields) => [...fields, ...forged],
      (fields: HeaderFields) => [...forged, ...fields],
    ]);
    for (const add of added) {
      for (const [token, expected] of identities)
        assert.deepEqual(await identify({ headers: add(bearer(token)) }), expected);
      await rejects(401, { headers: add([]) });
      for (const path of ['/admin', '/team'])
        await rejects(403, { path, headers: add(bearer(session)) });
      for (const headers of [add([]), add(bearer(session))])
        assert.deepEqual(await identify({ path: '/login', headers }), {}, 'on a public path');
    }
  });

  test('headers that some languages normalize to ours never reach the program', async () => {
    const own = NAMES.map((name) => name.toLowerCase());
    const spellings = marks.flatMap((mark) => [
      (name: string) => name.replaceAll('-', mark),
      (name: string) => name.replaceAll('-', mark).toLowerCase(),
      (name: string) => name.replace('Auth-', `Auth${mark}`),
      (name: string) => name.replace('X-', `x${mark}`),
    ]);
    for (const [path, user] of [
      ['/', 'admin'],
      ['/login', undefined],
    ] as const) {
      for (const spell of spellings) {
        const headers = [...forgedHeaders(spell), ...bearer(setup.admin)];
        const identity = await identify({ path, headers });
        assert.equal(identity['x-auth-username'], user);
        const others = Object.keys(identity).filter((name) => !own.includes(name));
        assert.deepEqual(others, [], spell('X-Auth-Email'));
      }
    }
  });

  test('naming the identity headers in Connection does not remove or forge them', async () => {
    const named = ['Connection', ['close', ...NAMES].join(', ')] as const;
    const headers = [named, ...forgedHeaders()];
    for (const [token, expected] of identities) {
      const identity = await identify({ headers: [...headers, ...bearer(token)] });
      assert.deepEqual({ ...expected, ...identity }, expected);
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

function addPathTests({ setup, port, passes, identify, rejects, session, identities }: Access) {
  const { requests } = setup.upstream;

  test('super administrator paths reject other users in every spelling of the path', async () => {
    const plain = ['/admin', '/admin/', '/admin/users?x=1', '//admin', '/./admin', '/x/../admin'];
    for (const path of [...plain, '/%61dmin', '/%61dmin/x', '/admin%2Fx']) {
      await rejects(401, { path });
      for (const [token] of identities) await rejects(403, { path, headers: bearer(token) });
      const identity = await identify({ path, headers: bearer(setup.admin) });
      assert.equal(identity['x-auth-super-admin'], 'true');
    }
  });

  test("the client's query is not part of the check at Gatehouse", async () => {
    for (const path of ['/?require=super_admin', '/?require=nonsense', '/a%20b/c?x=%2F&y=1'])
      assert.equal((await passes({ path, headers: bearer(session) })).path, path);
  });

  test('a public path does not open any other path', async () => {
    for (const path of ['/admin/../login', '//login', '/%6cogin'])
      assert.equal(decodeURIComponent((await passes({ path })).path), '/login');
    const others = ['/login/../', '/login/../admin', '/login/x', '/loginx', '/login%2f..%2fadmin'];
    for (const path of others) await rejects(401, { path });
    for (const path of spellingsOf('/login')) {
      const before = requests.length;
      const { status } = await request(port, { path });
      const received = requests.slice(before).map((one) => one.path);
      const isPublic = status === 200 && received.join() === '/login';
      assert.ok(isPublic || ([400, 401].includes(status) && received.length === 0), path);
    }
  });

  test('no spelling of a path avoids its rule at a program that ignores what is added', async () => {
    for (const path of ['/admin', '/team'].flatMap(spellingsOf)) {
      for (const headers of [[], bearer(session)])
        await rejects([400, 401, 403], { path, headers });
    }
  });
}

function addGroupTest({ setup, identify, rejects, identities }: Access): void {
  test('a path for groups opens to their members, and to nobody else', async () => {
    for (const path of ['/team', '/team/wiki?x=1', '//team', '/%74eam', '/TEAM']) {
      await rejects(401, { path });
      for (const [token] of identities) await rejects(403, { path, headers: bearer(token) });
    }
    for (const groups of ['staff', 'admins', 'visitors']) {
      const { key } = await setup.addKey(setup.admin, { user_id: null, groups: [groups] });
      const sent = { path: '/team', headers: bearer(key) };
      if (groups === 'visitors') await rejects(403, sent);
      else assert.equal((await identify(sent))['x-auth-groups'], groups);
    }
  });
}

/** What a browser asks before a script sends a request to another origin. */
const PREFLIGHT: HeaderFields = [
  ['Origin', 'https://other.example.org'],
  ['Access-Control-Request-Method', 'PUT'],
];

function addContentTests({ setup, port, passes, rejects, session, bySession }: Access): void {
  test('a body reaches the program complete, or not at all when the request is rejected', async () => {
    const sent = { method: 'POST', body: JSON.stringify({ text: 'ß'.repeat(100_000) }) };
    for (const chunked of [false, true]) {
      const received = await passes({ ...sent, chunked, headers: cookie(session) });
      assert.ok(received.body === sent.body, 'the body is unchanged');
      assert.deepEqual([received.method, identityOf(received)], ['POST', bySession]);
      await rejects(401, { ...sent, chunked });
      await rejects(403, { ...sent, path: '/admin', chunked, headers: bearer(session) });
    }
    assert.equal((await passes({ method: 'HEAD', headers: cookie(session) })).method, 'HEAD');
  });

  test('cookies of programs that are larger than the 16 KiB that Gatehouse accepts do not stop a request', async () => {
    const ofPrograms = Array.from({ length: 5 }, (_, index) => `p${index}=${'x'.repeat(4_000)}`);
    const own = `session=${session}`;
    for (const cookies of [
      [own, ...ofPrograms],
      [...ofPrograms.slice(0, 2), `my${own}x`, own, ...ofPrograms.slice(2)],
    ]) {
      const all = cookies.join('; ');
      const received = await passes({ headers: [['Cookie', all]] });
      assert.deepEqual(identityOf(received), bySession);
      assert.equal(valueOf(received, 'cookie'), all, 'the program has its own');
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
    await rejects(401, { path: '/socket', headers: upgrade });
    const before = setup.upstream.requests.length;
    const headers = [...upgrade, ...cookie(session)];
    assert.equal((await request(port, { path: '/socket', headers })).status, 101);
    const received = setup.upstream.requests.slice(before);
    assert.deepEqual(received.map(identityOf), [bySession]);
  });

  test('OPTIONS needs a credential like any other method, and so does a preflight', async () => {
    for (const headers of [[], PREFLIGHT]) await rejects(401, { method: 'OPTIONS', headers });
    await rejects(403, { method: 'OPTIONS', path: '/admin', headers: bearer(session) });
    assert.equal((await passes({ method: 'OPTIONS', headers: bearer(session) })).method, 'OPTIONS');
  });
}

/** @param port of a proxy with the exception that the documents describe */
export async function assertPreflights(setup: ProxySetup, port: number): Promise<void> {
  const { identify, rejects } = watch(setup, port);
  for (const path of ['/', '/admin', '/login']) {
    const headers = [...PREFLIGHT, ...forgedHeaders()];
    assert.deepEqual(await identify({ method: 'OPTIONS', path, headers }), {}, path);
  }
  for (const headers of [[], PREFLIGHT.slice(0, 1), PREFLIGHT.slice(1)])
    await rejects(401, { method: 'OPTIONS', headers });
  await rejects(401, { method: 'PUT', headers: PREFLIGHT });
  const identity = await identify({ headers: bearer(setup.admin) });
  assert.equal(identity['x-auth-username'], 'admin');
}

/** The last of all: the second one stops Gatehouse. */
function addEndTests({ setup, port, passes, rejects, session }: Access, status: number): void {
  // All of 127.0.0.0/8 is local only there.
  const skip = process.platform === 'linux' ? false : 'needs Linux';

  test("the client's real address is seen, and the host that it asked for", { skip }, async () => {
    const forgeries: HeaderFields[] = [
      [],
      [
        ['X-Forwarded-For', '192.0.2.1, 127.0.0.1'],
        ['X-Real-IP', '192.0.2.1'],
        ['Forwarded', 'for=192.0.2.1'],
      ],
    ];
    for (const forged of forgeries) {
      const sent = { from: '127.0.0.2', headers: [...bearer(session), ...forged] };
      const answer = await request(port, { ...sent, host: 'id.example.org', path: '/api/test/' });
      assert.deepEqual([answer.status, answer.json.data.ip], [200, '127.0.0.2']);
      const host = 'app.example.org:8443';
      const { headers } = await passes({ ...sent, host });
      const named = headers.filter(([name]) => /^(x-forwarded-for|host)$/i.test(name));
      assert.deepEqual(named.map(([, value]) => value).sort(), ['127.0.0.2', host]);
    }
  });

  test('while Gatehouse is unreachable, guarded paths fail and public paths work', async () => {
    const { admin, gatehouse } = setup;
    await passes({ headers: bearer(admin) });
    await gatehouse.stop();
    for (const path of ['/', '/admin']) {
      for (const headers of [bearer(admin), cookie(admin), [], forgedHeaders()])
        await rejects(status, { path, headers });
    }
    await passes({ path: '/login' });
  });
}
