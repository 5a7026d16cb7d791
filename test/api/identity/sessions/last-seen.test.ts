/**
 * A session knows where it comes from and when it was last seen; one that is not seen for too long
 * ends.
 */
import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';
import { ADMIN_PASSWORD, ask, launch, logIn, startGatehouse } from '../../../support/gatehouse.ts';
import { exchange } from '../../../support/socket.ts';
import { BEHIND_PROXY } from '../../../support/logins.ts';
import {
  addUser,
  assertError,
  assertRevoked,
  assertSession,
  assertSuccess,
  isOpen,
  openIdentity,
  PASSWORD,
  sessionOf,
} from '../../../support/users.ts';

const gatehouse = await launch(['identity'], {
  ...BEHIND_PROXY,
  SESSION_IDLE_TTL: '300',
});
const { sql, databaseUrl } = gatehouse;
const { identity } = gatehouse.url;
const recordUse = () => gatehouse.runJobs(/last use/);
const patient = (await startGatehouse({ after }, ['identity'], databaseUrl, BEHIND_PROXY)).url
  .identity;
const ada = await addUser(openIdentity({ after }, databaseUrl), 'ada');

const open = async (username = 'admin', password = ADMIN_PASSWORD) => {
  const token = await logIn(identity, username, password);
  return { token, id: (await sessionOf(identity, token)).id };
};
const lastSeen = (id: string, ago: string) =>
  sql`update identity.sessions set last_seen_at = now() - ${ago}::interval where id = ${id}`;
const seenSeconds = async (id: string): Promise<number> =>
  Number(
    (
      await sql`select extract(epoch from now() - last_seen_at)::float8 as seconds
        from identity.sessions where id = ${id}`
    )[0]?.seconds,
  );
const touch = async (token: string) =>
  assertSuccess(await ask('GET', `${identity}/api/test/`, { bearer: token }));

beforeEach(async () => {
  await sql`delete from identity.sessions`;
});

async function loginAs(headers: Record<string, string>): Promise<string> {
  const answer = await ask('POST', `${identity}/api/auth/login`, {
    body: { username: 'admin', password: ADMIN_PASSWORD },
    headers,
  });
  assertSuccess(answer);
  return answer.json.data.session;
}

async function assertOrigin(token: string, ip: string, userAgent: string | null): Promise<void> {
  const { data } = (await ask('POST', `${identity}/api/auth/session`, { body: { session: token } }))
    .json;
  assertSession(data);
  assert.deepEqual([data.ip, data.user_agent], [ip, userAgent]);
}

test('a session has the address and user agent of its login, cut to 256 characters', async () => {
  await assertOrigin(
    await loginAs({ 'x-forwarded-for': '2001:DB8:0::7', 'user-agent': 'Browser/1.0 (of a test)' }),
    '2001:db8::7',
    'Browser/1.0 (of a test)',
  );
  await assertOrigin(
    await loginAs({
      'x-forwarded-for': '192.0.2.4',
      'user-agent': 'a'.repeat(250) + 'b'.repeat(5_000),
    }),
    '192.0.2.4',
    'a'.repeat(250) + 'b'.repeat(6),
  );
});

test('a session has no user agent if its login sent none', async () => {
  const body = JSON.stringify({ username: 'admin', password: ADMIN_PASSWORD });
  const { json } = await exchange(
    identity,
    ['POST /api/auth/login HTTP/1.1', 'Host: x', `Content-Length: ${Buffer.byteLength(body)}`],
    body,
  );
  await assertOrigin(json.data.session, '127.0.0.1', null);
});

test('address and user agent stay those of the login, whatever later requests say', async () => {
  const token = await loginAs({ 'x-forwarded-for': '192.0.2.4', 'user-agent': 'Browser/1.0' });
  const { id } = await sessionOf(identity, token);
  await lastSeen(id, '2 minutes');
  assertSuccess(
    await ask('GET', `${identity}/api/test/`, {
      bearer: token,
      headers: { 'x-forwarded-for': '192.0.2.5', 'user-agent': 'Another/2' },
    }),
  );
  await recordUse();
  assert.ok((await seenSeconds(id)) < 60);
  await assertOrigin(token, '192.0.2.4', 'Browser/1.0');
});

test('a bearer check writes nothing: it works while every table is locked', async () => {
  const { token, id } = await open();
  const key: string = (await ask('POST', `${identity}/api/key/`, { bearer: token, body: {} })).json
    .data.key;
  await lastSeen(id, '2 minutes');
  await sql.begin(async (locked) => {
    await locked`lock table identity.users, identity.sessions, identity.api_keys,
      identity.throttles, identity.audit in share mode`;
    for (const bearer of [token, key]) {
      for (const path of ['test/', 'auth/verify', 'user/', 'session/', 'key/', 'audit/'])
        assert.equal((await ask('GET', `${identity}/api/${path}`, { bearer })).status, 200, path);
    }
    assertSuccess(await ask('POST', `${identity}/api/auth/session`, { body: { session: token } }));
  });
  // And yet it was seen.
  await recordUse();
  assert.ok((await seenSeconds(id)) < 60);
  const keys = await sql`select from identity.api_keys where last_used_at is not null`;
  assert.equal(keys.length, 1);
});

test('a use is recorded at most once a minute', async () => {
  const recent = await open();
  const last_seen_is_old = await open();
  await lastSeen(recent.id, '40 seconds');
  await lastSeen(last_seen_is_old.id, '61 seconds');
  const versions = async () =>
    Object.fromEntries(
      (await sql`select id, xmin::text as version from identity.sessions`).map(
        ({ id, version }) => [String(id), String(version)],
      ),
    );
  const ends = async () => [
    ...(await sql`select id, expires_at from identity.sessions order by id`),
  ];
  const before = await versions();
  const endsBefore = await ends();
  for (const { token } of [recent, last_seen_is_old]) await touch(token);
  await recordUse();
  assert.deepEqual(await ends(), endsBefore, 'a use extends no session');
  const noted = await versions();
  assert.equal(noted[recent.id], before[recent.id]);
  assert.notEqual(noted[last_seen_is_old.id], before[last_seen_is_old.id]);
  assert.ok((await seenSeconds(last_seen_is_old.id)) < 30);
  for (const { token } of [recent, last_seen_is_old]) await touch(token);
  await recordUse();
  assert.deepEqual(await versions(), noted);
});

test('a session unused for SESSION_IDLE_TTL has ended, and one in use has not', async () => {
  const idle = await open('ada', PASSWORD);
  const used = await open('ada', PASSWORD);
  const root = await open();
  await lastSeen(used.id, '250 seconds');
  await touch(used.token);
  await recordUse();
  assert.ok((await seenSeconds(used.id)) < 60);
  await lastSeen(idle.id, '301 seconds');
  await touch(used.token);
  assert.equal(await isOpen(identity, idle.token), false);
  assertError(
    await ask('POST', `${identity}/api/auth/session`, { body: { session: idle.token } }),
    401,
    'invalid_session',
  );
  assertError(
    await ask('GET', `${identity}/api/auth/verify`, { bearer: idle.token }),
    401,
    'unauthorized',
  );
  // A request does not reactivate it.
  assertSuccess(
    await ask('GET', `${identity}/api/session/info?session=${idle.token}`, { bearer: root.token }),
  );
  await recordUse();
  assert.ok((await seenSeconds(idle.id)) > 300);
  // Where no such limit is set it is an open session like any other.
  assert.equal(await isOpen(patient, idle.token), true);
  assertRevoked(
    await ask('DELETE', `${identity}/api/session/${idle.id}/revoke`, { bearer: root.token }),
    '1 session revoked.',
  );
});

test('each check of a token counts as a use, and a look at a session by another caller does not', async () => {
  const root = await open();
  const body = (token: string) => ({ body: { session: token } });
  const checks: ReadonlyArray<
    readonly [what: string, check: (token: string) => Promise<{ status: number }>]
  > = [
    ['POST /api/auth/session', (token) => ask('POST', `${identity}/api/auth/session`, body(token))],
    [
      'GET /api/auth/verify',
      (token) => ask('GET', `${identity}/api/auth/verify`, { bearer: token }),
    ],
    [
      'GET /api/auth/verify by cookie',
      (token) =>
        ask('GET', `${identity}/api/auth/verify`, { headers: { cookie: `session=${token}` } }),
    ],
    [
      'GET /api/session/info about itself',
      (token) => ask('GET', `${identity}/api/session/info?session=${token}`, { bearer: token }),
    ],
  ];
  const looked = await open('ada', PASSWORD);
  await lastSeen(looked.id, '250 seconds');
  assertSuccess(
    await ask('GET', `${identity}/api/session/info?session=${looked.token}`, {
      bearer: root.token,
    }),
  );
  for (const [what, check] of checks) {
    const used = await open('ada', PASSWORD);
    await lastSeen(used.id, '250 seconds');
    assert.equal((await check(used.token)).status, 200, what);
    await recordUse();
    assert.ok((await seenSeconds(used.id)) < 60, what);
  }
  assert.ok((await seenSeconds(looked.id)) > 240);
});

async function listSessions(bearer: string, query: string, at: string) {
  const answer = await ask('GET', `${at}/api/session/?${query}`, { bearer });
  assertSuccess(answer, 'paged');
  const sessions: Array<Parameters<typeof assertSession>[0] & { id: string }> = answer.json.data;
  sessions.forEach(assertSession);
  const { total } = answer.json._meta.pagination;
  return { ids: sessions.map(({ id }) => id), total, links: answer.json._links };
}

test('active=true and active=false part the list, totals and pages included', async () => {
  const root = await open();
  const revoked = await open();
  const loggedOut = await open();
  const expired = await open('ada', PASSWORD);
  const idle = await open('ada', PASSWORD);
  const alive = await open('ada', PASSWORD);
  const own = await open();
  assertSuccess(
    await ask('DELETE', `${identity}/api/session/${revoked.id}/revoke`, { bearer: root.token }),
  );
  assertSuccess(
    await ask('POST', `${identity}/api/auth/logout`, { body: { session: loggedOut.token } }),
  );
  await sql`update identity.sessions set expires_at = now() - interval '1 second'
    where id = ${expired.id}`;
  await lastSeen(idle.id, '301 seconds');
  const list = (query: string, at = identity) => listSessions(root.token, query, at);
  const parts: ReadonlyArray<readonly [query: string, expected: ReadonlyArray<{ id: string }>]> = [
    ['', [own, alive, idle, expired, loggedOut, revoked, root]],
    ['active=true', [own, alive, root]],
    ['active=false', [idle, expired, loggedOut, revoked]],
    [`active=true&user=${ada}`, [alive]],
    [`active=false&user=${ada}`, [idle, expired]],
    [`user=${ada}`, [alive, idle, expired]],
  ];
  for (const [query, expected] of parts) {
    const ids = expected.map(({ id }) => id);
    const { links: _links, ...found } = await list(query);
    assert.deepEqual(found, { ids, total: ids.length }, query);
    for (let page = 1; page <= ids.length; page += 1) {
      const one = await list(`page=${page}&limit=1&${query}`);
      assert.deepEqual(
        [one.ids, one.total],
        [ids.slice(page - 1, page), ids.length],
        `${query}, page ${page}`,
      );
    }
  }
  const { links } = await list('active=false&limit=2');
  assert.equal(links.next, '/api/session/?page=2&limit=2&active=false');
  // Without an idle limit only that one changes sides.
  assert.deepEqual(
    (await list('active=true', patient)).ids,
    [own, alive, idle, root].map(({ id }) => id),
  );
  assert.deepEqual(
    (await list('active=false', patient)).ids,
    [expired, loggedOut, revoked].map(({ id }) => id),
  );
});

test('active=true lists only the sessions of the user', async () => {
  const alive = await open('ada', PASSWORD);
  const ofAda = await ask('GET', `${identity}/api/session/?active=true`, { bearer: alive.token });
  assert.deepEqual(
    ofAda.json.data.map(({ id }: { id: string }) => id),
    [alive.id],
  );
});
