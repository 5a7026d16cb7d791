/**
 * A session knows where it comes from and when it was last seen; one that is not seen for too long
 * ends. And the list of sessions that are active, and of those that have ended.
 */
import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';
import { ADMIN_PASSWORD, ask, launch, logIn, startGatehouse } from '../../../support/gatehouse.ts';
import { BEHIND_PROXY } from '../../../support/logins.ts';
import { exchange } from '../../../support/socket.ts';
import {
  addUser,
  assertError,
  assertRevoked,
  assertSession,
  assertSuccess,
  assertUser,
  isOpen,
  openIdentity,
  PASSWORD,
  sessionOf,
} from '../../../support/users.ts';

const { identity, runJobs, sql, databaseUrl } = await launch(['identity'], {
  ...BEHIND_PROXY,
  SESSION_IDLE_TTL: '300',
});
const recordUse = () => runJobs(/last use/);
const patient = (await startGatehouse({ after }, ['identity'], databaseUrl, BEHIND_PROXY)).url
  .identity;
const ada = await addUser(openIdentity({ after }, databaseUrl), 'ada');

async function open(username = 'admin', password = ADMIN_PASSWORD) {
  const token = await logIn(identity, username, password);
  return { token, id: (await sessionOf(identity, token)).id };
}
type Open = Awaited<ReturnType<typeof open>>;
const openAda = () => open('ada', PASSWORD);
const lastSeen = ({ id }: Open, ago: string) =>
  sql`update identity.sessions set last_seen_at = now() - ${ago}::interval where id = ${id}`;
const assertSeen = async ({ id }: Open, isSeen = true) => {
  const found = await sql`select from identity.sessions
    where id = ${id} and last_seen_at > now() - interval '1 minute'`;
  assert.equal(found.length === 1, isSeen);
};
const read = (path: string, { token: bearer }: Open, headers = {}, url = identity) =>
  ask('GET', `${url}/api/${path}`, { bearer, headers });
const lookUp = ({ token }: Open) =>
  ask('POST', `${identity}/api/auth/session`, { body: { session: token } });

beforeEach(() => sql`delete from identity.sessions`);

test('a session keeps the address and the user agent of its login, cut to 256 characters', async () => {
  const body = JSON.stringify({ username: 'admin', password: ADMIN_PASSWORD });
  const LOGINS = [
    ['2001:DB8:0::7', 'Browser/1.0 (of a test)', '2001:db8::7', 'Browser/1.0 (of a test)'],
    ['192.0.2.4', 'a'.repeat(250) + 'b'.repeat(5_000), '192.0.2.4', `${'a'.repeat(250)}bbbbbb`],
    ['192.0.2.5', null, '192.0.2.5', null],
  ] as const;
  for (const [address, userAgent, ...kept] of LOGINS) {
    const head = [
      'POST /api/auth/login HTTP/1.1',
      'Host: x',
      `X-Forwarded-For: ${address}`,
      ...(userAgent === null ? [] : [`User-Agent: ${userAgent}`]),
      `Content-Length: ${Buffer.byteLength(body)}`,
    ];
    const { session: token } = (await exchange(identity, head, body)).json.data;
    const session = { token, id: (await sessionOf(identity, token)).id };
    await lastSeen(session, '2 minutes');
    const other = { 'x-forwarded-for': '192.0.2.9', 'user-agent': 'Another/2' };
    const { user, ip } = (await read('test/', session, other)).json.data;
    assertUser(user);
    assert.deepEqual([user.username, ip], ['admin', '192.0.2.9']);
    await recordUse();
    await assertSeen(session);
    const { data } = (await lookUp(session)).json;
    assertSession(data);
    assert.deepEqual([data.ip, data.user_agent], kept);
  }
});

test('a bearer check writes nothing: it works while every table is locked', async () => {
  const session = await open();
  const made = await ask('POST', `${identity}/api/key/`, { bearer: session.token, body: {} });
  await lastSeen(session, '2 minutes');
  await sql.begin(async (locked) => {
    await locked`lock table identity.users, identity.sessions, identity.api_keys,
      identity.throttles, identity.audit in share mode`;
    for (const token of [session.token, made.json.data.key]) {
      for (const path of ['test/', 'auth/verify', 'user/', 'session/', 'key/', 'audit/'])
        assert.equal((await read(path, { ...session, token })).status, 200, path);
    }
    assertSuccess(await lookUp(session));
  });
  // And yet it was seen.
  await recordUse();
  await assertSeen(session);
  const keys = await sql`select from identity.api_keys where last_used_at is not null`;
  assert.equal(keys.length, 1);
});

test('a session unused for SESSION_IDLE_TTL has ended, and one in use has not', async () => {
  const idle = await openAda();
  const used = await openAda();
  const root = await open();
  await lastSeen(used, '250 seconds');
  await lastSeen(idle, '301 seconds');
  assert.equal(await isOpen(identity, idle.token), false);
  assertError(await lookUp(idle), 401, 'invalid_session');
  assert.equal(await isOpen(identity, used.token), true);
  // Where no such limit is set it is an open session like any other.
  assert.equal(await isOpen(patient, idle.token), true);
  const path = `${identity}/api/session/${idle.id}/revoke`;
  assertRevoked(await ask('DELETE', path, { bearer: root.token }), '1 session revoked.');
});

test('each check of a token counts as a use, and a look at a session by another caller does not', async () => {
  const looked = await openAda();
  await lastSeen(looked, '250 seconds');
  assertSuccess(await read(`session/info?session=${looked.token}`, await open()));
  for (const check of [
    lookUp,
    (session: Open) => read('auth/verify', session),
    ({ token }: Open) =>
      ask('GET', `${identity}/api/auth/verify`, { headers: { cookie: `session=${token}` } }),
    (session: Open) => read(`session/info?session=${session.token}`, session),
  ]) {
    const used = await openAda();
    await lastSeen(used, '250 seconds');
    assert.equal((await check(used)).status, 200, String(check));
    await recordUse();
    await assertSeen(used);
  }
  await assertSeen(looked, false);
});

/** The ids of a list, whose total must be their number. */
async function idsOf(query: string, session: Open, url = identity) {
  const answer = await read(`session/?limit=100&${query}`, session, {}, url);
  assertSuccess(answer, 'paged');
  answer.json.data.forEach(assertSession);
  const ids: string[] = answer.json.data.map(({ id }: Open) => id);
  assert.equal(answer.json._meta.pagination.total, ids.length);
  return ids;
}

test('active=true and active=false part the list, totals and links included', async () => {
  const root = await open();
  const revoked = await open();
  const out = await open();
  const expired = await openAda();
  const idle = await openAda();
  const alive = await openAda();
  const bearer = root.token;
  await ask('DELETE', `${identity}/api/session/${revoked.id}/revoke`, { bearer });
  await ask('POST', `${identity}/api/auth/logout`, { body: { session: out.token } });
  await sql`update identity.sessions set expires_at = now() where id = ${expired.id}`;
  await lastSeen(idle, '301 seconds');
  const PARTS: ReadonlyArray<readonly [query: string, expected: readonly Open[], url?: string]> = [
    ['', [alive, idle, expired, out, revoked, root]],
    ['active=true', [alive, root]],
    ['active=false', [idle, expired, out, revoked]],
    [`active=true&user=${ada}`, [alive]],
    [`active=false&user=${ada}`, [idle, expired]],
    // Without an idle limit only that one changes sides.
    ['active=true', [alive, idle, root], patient],
    ['active=false', [expired, out, revoked], patient],
  ];
  for (const [query, expected, url] of PARTS) {
    const ids = expected.map(({ id }) => id);
    assert.deepEqual(await idsOf(query, root, url), ids, query);
  }
  const { json } = await read('session/?active=false&limit=2', root);
  assert.equal(json._links.next, '/api/session/?page=2&limit=2&active=false');
  // Whoever is no super administrator lists their own sessions, with any filter.
  assert.deepEqual(await idsOf('active=true', alive), [alive.id]);
  for (const query of ['', `user=${ada}`, `user=${ada.toUpperCase()}`])
    assert.deepEqual(await idsOf(query, alive), [alive.id, idle.id, expired.id], query);
});
