/**
 * No statement of a request reads a table without an index: the plans that PostgreSQL really ran,
 * for every route.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createRoutes } from '../../../src/identity/routes.ts';
import { listUsers } from '../../../src/identity/store/lists.ts';
import { createDatabase } from '../../support/database.ts';
import { ask, logIn, startGatehouse } from '../../support/gatehouse.ts';
import { fill, USERS } from '../../support/plan-rows.ts';
import { observe, type Scan } from '../../support/plans.ts';
import { rounds } from '../../support/rounds.ts';
import { BEHIND_PROXY, newAddress } from '../../support/logins.ts';
import { type Person, storeUser } from '../../support/stored-users.ts';
import { openIdentity, PASSWORD } from '../../support/users.ts';

const routes = await createRoutes(null);

const file = await createDatabase();
const { sql } = file;
const observatory = await observe({ after }, file);
const start = async (settings: Readonly<Record<string, string>> = {}) => {
  const all = { ...BEHIND_PROXY, ...settings };
  return (await startGatehouse({ after }, ['identity'], observatory.url, all)).url.identity;
};
const identity = await start();
const idle = await start({ SESSION_IDLE_TTL: '3600' });

await fill(file);
const bearer = await logIn(identity);

let number = 0;
/** Another one each time, so that the planner's guesses are tried on many values. */
const someName = () => {
  number += 1;
  return `user-${1 + ((number * 7) % USERS)}`;
};
const someId = async () =>
  String((await sql`select id from identity.users where username = ${someName()}`)[0]?.id);
const newUser = () => {
  number += 1;
  const username = `new-${number}`;
  return { username, email: `${username}@example.org`, password: PASSWORD };
};

type Request = Readonly<{
  path?: string;
  body?: unknown;
  as?: string | null;
  status?: number;
}>;
type Case = readonly [route: string, prepare: () => Request | Promise<Request>];

/** With a user who has a session and a key. */
const about = (route: string, request: (one: Person) => Request): Case => [
  route,
  async () => request(await storeUser(sql)),
];
const login = (username: () => string, password: string, status: number): Case => [
  'POST /api/auth/login',
  () => ({ body: { username: username(), password }, as: null, status }),
];
const ofUser = (route: string, ...queries: string[]): Case[] =>
  queries.map((query) => [route, async () => ({ path: `${query}user=${await someId()}` })]);
const changeOwn = (current_password: string, status: number): Case =>
  about('POST /api/auth/password', ({ session }) => ({
    body: { current_password, new_password: 'another passphrase' },
    as: session,
    status,
  }));

const CASES: readonly Case[] = [
  login(someName, PASSWORD, 200),
  login(someName, 'wrong', 401),
  login(() => `no-${someName()}`, 'wrong', 401),
  about('POST /api/auth/logout', ({ session }) => ({ body: { session }, as: null })),
  about('POST /api/auth/session', ({ session }) => ({ body: { session }, as: null })),
  changeOwn(PASSWORD, 200),
  changeOwn('wrong', 401),
  about('GET /api/auth/verify', ({ session }) => ({ as: session })),
  about('GET /api/auth/verify', ({ key }) => ({ as: key })),
  about('GET /api/test/', ({ session }) => ({ as: session })),
  about('GET /api/auth/export', ({ session }) => ({ as: session })),
  about('POST /api/auth/delete', ({ session }) => ({
    body: { password: PASSWORD },
    as: session,
    status: 403,
  })),
  about('GET /api/user/by-name', ({ user_id }) => ({ path: `?name=${user_id}` })),
  ['GET /api/user/by-name', () => ({ path: `?name=${someName()}` })],
  ['GET /api/user/', () => ({ path: `?page=1&username=${someName()}` })],
  ['GET /api/user/', () => ({ path: `?page=1&email=${someName()}@example.org` })],
  ['GET /api/user/', () => ({ path: '?page=1' })],
  about('GET /api/user/', ({ session }) => ({ as: session })),
  ['POST /api/user/', () => ({ body: newUser(), status: 201 })],
  ['POST /api/user/', () => ({ body: { ...newUser(), username: someName() }, status: 409 })],
  about('GET /api/user/{user_id}', ({ user_id }) => ({ path: user_id })),
  about('PATCH /api/user/{user_id}', ({ user_id, session }) => ({
    path: user_id,
    body: { first_name: 'Ada' },
    as: session,
  })),
  ...[() => ({ ...newUser(), password: undefined }), () => ({ enabled: false })].map((body) =>
    about('PATCH /api/user/{user_id}', ({ user_id }) => ({ path: user_id, body: body() })),
  ),
  about('DELETE /api/user/{user_id}', ({ user_id }) => ({ path: user_id })),
  about('POST /api/user/{user_id}/password', ({ user_id }) => ({
    path: user_id,
    body: { password: PASSWORD },
  })),
  about('POST /api/user/{user_id}/secure', ({ user_id }) => ({ path: user_id })),
  about('POST /api/key/', ({ session }) => ({ body: {}, as: session, status: 201 })),
  ['GET /api/key/', () => ({})],
  ...ofUser('GET /api/key/', '?'),
  about('DELETE /api/key/{key_id}/revoke', ({ key_id }) => ({ path: key_id })),
  ['GET /api/session/', () => ({})],
  ...ofUser('GET /api/session/', '?', '?active=true&', '?active=false&'),
  about('GET /api/session/', ({ session }) => ({ as: session })),
  about('GET /api/session/info', ({ session }) => ({ path: `?session=${session}` })),
  about('DELETE /api/session/revoke', ({ session }) => ({ path: `?session=${session}` })),
  about('DELETE /api/session/{session_id}/revoke', ({ session_id }) => ({ path: session_id })),
  about('DELETE /api/session/revoke/all/user', ({ user_id }) => ({ path: `?user=${user_id}` })),
  ['GET /api/audit/', () => ({})],
  ['GET /api/audit/', () => ({ path: '?event=password.set' })],
  ...ofUser('GET /api/audit/', '?', '?event=login.failed&'),
];

/**
 * A statement is planned for its values five times before PostgreSQL may settle on one plan for
 * all.
 */
const ROUNDS = rounds(2, 6);
/** The users of a page, their sessions, and some that do not match. */
const PAGE = 60;
/** The total of a list reads the whole list, by an index or not. */
const IS_TOTAL = /^select (count\(\*\)|coalesce\(sum\(n\), 0\))::int4 as (total|count) from/;
/** Tables of one row. */
const WITHOUT_INDEX = [
  'identity.throttle_secret',
  'identity.global_revocation',
  'identity.migrations', // read by a job
];

/** One request, whose preparation does not count. @returns what it read */
async function scansOf(at: string, [route, prepare]: Case): Promise<Scan[]> {
  const { path = '', body, as = bearer, status = 200 } = await prepare();
  const [method = '', pattern = ''] = route.split(' ');
  const target = pattern.includes('{') ? pattern.replace(/\{\w+\}/, path) : pattern + path;
  observatory.scans();
  const answer = await ask(method, at + target, {
    ...(as === null ? {} : { bearer: as }),
    ...(body === undefined ? {} : { body }),
    headers: { 'x-forwarded-for': newAddress() },
  });
  assert.equal(answer.status, status, `${method} ${target}: ${answer.text.slice(0, 300)}`);
  return observatory.scans();
}

/** What they read in a way they must not. */
async function faultsOf(at: string, cases: readonly Case[]): Promise<string[]> {
  const errors = new Map<string, number>();
  for (const one of cases) {
    for (let round = 1; round <= ROUNDS; round += 1) {
      for (const { node, table, rows, statement } of await scansOf(at, one)) {
        const isIndexed =
          WITHOUT_INDEX.includes(table) || /^(Index (Only )?|Bitmap Heap )Scan$/.test(node);
        if (IS_TOTAL.test(statement) || (isIndexed && rows <= PAGE)) continue;
        const told = `${one[0]}: ${node} of ${table} for: ${statement.slice(0, 300)}`;
        errors.set(told, Math.max(rows, errors.get(told) ?? 0));
      }
    }
  }
  return [...errors].map(([told, rows]) => `${rows} rows, ${told}`);
}

test('every route that has a guard or a body is tried here, but the end of all sessions', () => {
  const open = ['/readyz', '/livez', '/openapi.json', '/openapi', '/', '/pages/{file}'];
  const without = [...open, '/api/session/revoke/all'];
  const all = routes
    .filter(({ pattern }) => !without.includes(pattern))
    .map(({ method, pattern }) => `${method} ${pattern}`);
  assert.deepEqual([...new Set(CASES.map(([route]) => route))].sort(), [...all].sort());
});

test('each route reads every table by an index, and no more than a page besides the total', async () => {
  assert.deepEqual(await faultsOf(identity, CASES), []);
});

test('an idle limit, which changes the statements about sessions, leaves that as it is', async () => {
  const routesOfSessions = /^(GET \/api\/(session|test)\/|POST \/api\/auth\/session)/;
  const cases = CASES.filter(([route]) => routesOfSessions.test(route));
  assert.deepEqual(await faultsOf(idle, cases), []);
});

test('the count of active sessions reads narrow indexes alone', async () => {
  const open = 90_000;
  const own = 10_000;
  const one = await someId();
  await sql`
    insert into identity.sessions (id, token_digest, user_id, expires_at, user_agent)
    select gen_random_uuid(), sha256(('open ' || n)::bytea), case when n <= ${own} then
      ${one}::uuid else owner.id end,
      now() + n * interval '1 second', rpad('a browser', 110, '.')
    from generate_series(1, ${open}) n
    join (select id, row_number() over () as place
      from identity.users) owner on owner.place = 1 + n % ${USERS}`;
  await sql`vacuum analyze identity.sessions`;
  // 40 bytes for each session of all, 120 for each of one user, and a look at those who have ended
  // theirs.
  const cases = [
    ['?active=true', (open * 40) / 8_192 + 400],
    [`?active=true&user=${one}`, (own * 120) / 8_192 + 20],
  ] as const;
  for (const [query, most] of cases) {
    for (let round = 1; round <= ROUNDS; round += 1) {
      const all = await scansOf(identity, ['GET /api/session/', () => ({ path: query })]);
      const counts = all.filter(
        ({ statement, table }) => IS_TOTAL.test(statement) && table === 'identity.sessions',
      );
      assert.deepEqual([...new Set(counts.map(({ node }) => node))], ['Index Only Scan'], query);
      const blocks = counts.reduce((sum, scan) => sum + scan.blocks, 0);
      assert.ok(blocks <= most, `${query}: ${blocks} blocks, at most ${most}`);
    }
  }
});

test('a total of users by state, role and factor is read from an index alone', async () => {
  const database = openIdentity({ after }, observatory.url);
  // The tests above have changed users: an index alone does not say whether a row is visible.
  await sql`vacuum analyze identity.users`;
  for (const filter of [
    {},
    { state: 'active' },
    { role: 'super_admin' },
    { second_factor: 'off' },
  ] as const) {
    observatory.scans();
    await listUsers(database, { page: 1, limit: 20 }, filter, 'username');
    const counts = observatory.scans().filter(({ statement }) => IS_TOTAL.test(statement));
    const nodes = [...new Set(counts.map(({ node }) => node))];
    assert.deepEqual(nodes, ['Index Only Scan'], JSON.stringify(filter));
  }
});
