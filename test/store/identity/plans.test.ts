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
import { storeUser } from '../../support/stored-users.ts';
import { openIdentity, PASSWORD } from '../../support/users.ts';

const routes = await createRoutes(null);

const file = await createDatabase();
const { sql } = file;
const observatory = await observe({ after }, file);
const { identity } = (await startGatehouse({ after }, ['identity'], observatory.url, BEHIND_PROXY))
  .url;
const idle = (
  await startGatehouse({ after }, ['identity'], observatory.url, {
    ...BEHIND_PROXY,
    SESSION_IDLE_TTL: '3600',
  })
).url.identity;

await fill(file);
let bearer = await logIn(identity);

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

/** A user with a session and a key. */
async function someone() {
  const { user_id, session_id, key_id, session, key } = await storeUser(sql);
  return { id: user_id, session: session_id, keyId: key_id, token: session, key };
}

interface Request {
  readonly path: string;
  readonly body?: unknown;
  readonly as?: string | null;
  readonly status?: number;
}

/** How much a request may read besides the total: the rows of a page, or a part of the list. */
type Measure = 'a page' | 'a part';
type Case = readonly [route: string, measure: Measure, prepare: () => Promise<Request>];

const login = (username: () => string, password: string, status: number): Case => [
  'POST /api/auth/login',
  'a page',
  async () => ({ path: '', body: { username: username(), password }, as: null, status }),
];
const about = (
  route: string,
  request: (one: Awaited<ReturnType<typeof someone>>) => Request,
): Case => [route, 'a page', async () => request(await someone())];
const list = (route: string, measure: Measure, ...queries: string[]): Case[] =>
  queries.map((query) => [route, measure, async () => ({ path: query })]);
const last = (route: string): Case => {
  const path = route.slice('GET '.length);
  return [
    route,
    'a part',
    async () => ({
      path: (await ask('GET', `${identity}${path}?page=1`, { bearer })).json._links.last.slice(
        path.length,
      ),
    }),
  ];
};
const ofUser = (route: string, ...queries: string[]): Case[] =>
  queries.map((query) => [
    route,
    'a page',
    async () => ({ path: `${query}user=${await someId()}` }),
  ]);

const CASES: readonly Case[] = [
  login(someName, PASSWORD, 200),
  login(someName, 'wrong', 401),
  login(() => `no-${someName()}`, 'wrong', 401),
  about('POST /api/auth/logout', ({ token }) => ({ path: '', body: { session: token }, as: null })),
  about('POST /api/auth/session', ({ token }) => ({
    path: '',
    body: { session: token },
    as: null,
  })),
  about('POST /api/auth/password', ({ token }) => ({
    path: '',
    body: { current_password: PASSWORD, new_password: 'another passphrase' },
    as: token,
  })),
  about('POST /api/auth/password', ({ token }) => ({
    path: '',
    body: { current_password: 'wrong', new_password: PASSWORD },
    as: token,
    status: 401,
  })),
  about('GET /api/auth/verify', ({ token }) => ({ path: '', as: token })),
  about('GET /api/auth/verify', ({ key }) => ({ path: '', as: key })),
  about('GET /api/test/', ({ token }) => ({ path: '', as: token })),
  about('GET /api/auth/export', ({ token }) => ({ path: '', as: token })),
  about('POST /api/auth/delete', ({ token }) => ({
    path: '',
    body: { password: PASSWORD },
    as: token,
    status: 403,
  })),
  about('GET /api/user/by-name', ({ id }) => ({ path: `?name=${id}` })),
  ['GET /api/user/by-name', 'a page', async () => ({ path: `?name=${someName()}` })],
  ['GET /api/user/', 'a page', async () => ({ path: `?page=1&username=${someName()}` })],
  ['GET /api/user/', 'a page', async () => ({ path: `?page=1&email=${someName()}@example.org` })],
  ...list('GET /api/user/', 'a page', '?page=1'),
  last('GET /api/user/'),
  ...list('GET /api/user/', 'a part', '', '?page=150'),
  about('GET /api/user/', ({ token }) => ({ path: '', as: token })),
  ['POST /api/user/', 'a page', async () => ({ path: '', body: newUser(), status: 201 })],
  [
    'POST /api/user/',
    'a page',
    async () => ({ path: '', body: { ...newUser(), username: someName() }, status: 409 }),
  ],
  about('GET /api/user/{user_id}', ({ id }) => ({ path: id })),
  about('PATCH /api/user/{user_id}', ({ id, token }) => ({
    path: id,
    body: { first_name: 'Ada' },
    as: token,
  })),
  about('PATCH /api/user/{user_id}', ({ id }) => ({
    path: id,
    body: { ...newUser(), password: undefined },
  })),
  about('PATCH /api/user/{user_id}', ({ id }) => ({ path: id, body: { enabled: false } })),
  about('DELETE /api/user/{user_id}', ({ id }) => ({ path: id })),
  about('POST /api/user/{user_id}/password', ({ id }) => ({
    path: id,
    body: { password: PASSWORD },
  })),
  about('POST /api/user/{user_id}/secure', ({ id }) => ({ path: id })),
  about('POST /api/key/', ({ token }) => ({ path: '', body: {}, as: token, status: 201 })),
  ...list('GET /api/key/', 'a page', ''),
  last('GET /api/key/'),
  ...list('GET /api/key/', 'a part', '?page=150'),
  ...ofUser('GET /api/key/', '?'),
  about('DELETE /api/key/{key_id}/revoke', ({ keyId }) => ({ path: keyId })),
  ...list('GET /api/session/', 'a page', ''),
  last('GET /api/session/'),
  ...list(
    'GET /api/session/',
    'a part',
    '?page=1000',
    '?active=true',
    '?active=true&page=20',
    '?active=false',
    '?active=false&page=900',
  ),
  ...ofUser('GET /api/session/', '?', '?active=true&', '?active=false&'),
  about('GET /api/session/', ({ token }) => ({ path: '', as: token })),
  about('GET /api/session/info', ({ token }) => ({ path: `?session=${token}` })),
  about('DELETE /api/session/revoke', ({ token }) => ({ path: `?session=${token}` })),
  about('DELETE /api/session/{session_id}/revoke', ({ session }) => ({ path: session })),
  about('DELETE /api/session/revoke/all/user', ({ id }) => ({ path: `?user=${id}` })),
  ...list('GET /api/audit/', 'a page', '', '?event=password.set'),
  last('GET /api/audit/'),
  ...list(
    'GET /api/audit/',
    'a part',
    '?page=1000',
    '?event=login.succeeded',
    '?event=login.failed&page=100',
    '?event=user.changed',
  ),
  ...ofUser('GET /api/audit/', '?', '?event=login.failed&'),
  ['DELETE /api/session/revoke/all', 'a part', async () => ({ path: '' })],
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
async function scansOf(at: string, [route, , prepare]: Case): Promise<Scan[]> {
  const { path, body, as = bearer, status = 200 } = await prepare();
  const [method = '', pattern = ''] = route.split(' ');
  const target = pattern.includes('{') ? pattern.replace(/\{\w+\}/, path) : pattern + path;
  observatory.scans();
  const answer = await ask(method, at + target, {
    ...(as === null ? {} : { bearer: as }),
    ...(body === undefined ? {} : { body }),
    headers: { 'x-forwarded-for': newAddress() },
  });
  assert.equal(answer.status, status, `${method} ${target}: ${answer.text.slice(0, 300)}`);
  const found = observatory.scans();
  if (route.endsWith('/revoke/all')) bearer = await logIn(identity);
  return found;
}

/** What they read in a way they must not. */
async function faultsOf(at: string, cases: readonly Case[]): Promise<string[]> {
  const errors = new Map<string, number>();
  for (const one of cases) {
    for (let round = 1; round <= ROUNDS; round += 1) {
      for (const { node, table, rows, statement } of await scansOf(at, one)) {
        const isIndexed =
          WITHOUT_INDEX.includes(table) || /^(Index (Only )?|Bitmap Heap )Scan$/.test(node);
        if (one[1] === 'a part' || IS_TOTAL.test(statement) || (isIndexed && rows <= PAGE))
          continue;
        const told = `${one[0]}: ${node} of ${table} for: ${statement.slice(0, 300)}`;
        errors.set(told, Math.max(rows, errors.get(told) ?? 0));
      }
    }
  }
  return [...errors].map(([told, rows]) => `${rows} rows, ${told}`);
}

test('every route that has a guard or a body is tried here', () => {
  const without = ['/readyz', '/livez', '/openapi.json', '/openapi', '/', '/pages/{file}'];
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
  assert.deepEqual(
    await faultsOf(
      idle,
      CASES.filter(([route]) => routesOfSessions.test(route)),
    ),
    [],
  );
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
      const all = await scansOf(identity, [
        'GET /api/session/',
        'a part',
        async () => ({ path: query }),
      ]);
      const counts = all.filter(
        ({ statement, table }) => IS_TOTAL.test(statement) && table === 'identity.sessions',
      );
      assert.deepEqual([...new Set(counts.map(({ node }) => node))], ['Index Only Scan'], query);
      const blocks = counts.reduce((sum, scan) => sum + scan.blocks, 0);
      assert.ok(blocks <= most, `${query}: ${blocks} blocks, at most ${most}`);
    }
  }
  await sql`delete from identity.sessions where ip is null and expires_at > now()`;
  await sql`vacuum analyze identity.sessions`;
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

test('a missing index would be seen', async () => {
  await sql`drop index identity.sessions_newest_of_user`;
  assert.notDeepEqual(await faultsOf(identity, ofUser('GET /api/session/', '?')), []);
});
