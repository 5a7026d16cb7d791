/**
 * `make bench-sessions`: latency of the bearer check and of the session list with 1,000,000 sessions, in alternation
 * with the same at 10,000. Every reply is checked: its status, the exact total and the sessions of the page.
 */
import { createHash, randomUUID } from 'node:crypto';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import type { Sql } from 'postgres';
import { connect } from '../postgres.ts';
import { createDatabase, withPostgres } from './database.ts';
import { type Client, createClient, median, root, spread, startServices, stopAll } from './service.ts';

const ROUNDS = 9;
const REQUESTS = 100;
/** For pages far from both ends, which read many rows of the index. */
const DEEP_REQUESTS = 5;
const USERS = 10_000;
const SIZES = [10_000, 1_000_000] as const;
/** The users who send requests, and the sessions of each whose token is known. Both databases have the same ones. */
const CALLERS = 25;
const SESSIONS_PER_CALLER = 20;

interface Caller {
  readonly userId: string;
  readonly tokens: readonly string[];
}

const createCaller = (sessions: number): Caller => {
  return { userId: randomUUID(), tokens: Array.from({ length: sessions }, () => `session:${randomUUID()}`) };
};
const administrator = createCaller(10);
const callers = Array.from({ length: CALLERS }, () => createCaller(SESSIONS_PER_CALLER));
const allCallers = [administrator, ...callers];
const known = allCallers.flatMap(({ userId, tokens }) => tokens.map((token) => {
  return { userId, digest: createHash('sha256').update(token).digest('hex') };
}));

/** The expected total and the ids of the expected page. */
interface ExpectedPage {
  readonly total: number;
  readonly ids: readonly string[];
}

interface TestRequest {
  readonly path: string;
  readonly token: string;
  /** A user's id for a bearer check, a page for a list. */
  readonly expected: string | ExpectedPage;
}

interface Case {
  readonly name: string;
  readonly requests: number;
  /** @param number counts the requests of the case */
  request(number: number): TestRequest;
}

interface Subject {
  readonly size: number;
  readonly client: Client;
  readonly cases: readonly Case[];
}

/** Inserts users, the callers among them, and sessions of the past 30 days, of which a tenth is active. */
async function fill(sql: Sql, size: number): Promise<void> {
  await sql`
    insert into identity.users (
      id, username, username_key, email, email_key, first_name, last_name, enabled, verified, super_admin, created_at
    )
    select coalesce(caller.id, gen_random_uuid()), 'user-' || n, 'user-' || n, 'user-' || n || '@example.org',
      'user-' || n || '@example.org', 'Ada', 'Lovelace', true, true, n = 1,
      now() - interval '60 days' + n * interval '1 second'
    from generate_series(1, ${USERS}::int) n
    left join unnest(${allCallers.map(({ userId }) => userId)}::uuid[]) with ordinality as caller (id, position)
      on caller.position = n`;
  // Sessions last for a week. This share of the unexpired ones was not ended, so that a tenth of all is active.
  const active = (size / 10 - known.length) / (size - known.length) / (7 / 30);
  // Sessions that would expire in the next two hours expire later, so that no total changes during the run.
  await sql`
    with created as materialized (
      select now() - random() * interval '30 days' as created_at, 1 + floor(random() * ${USERS})::int as owner,
        random() as fate, random() as delay
      from generate_series(1, ${size - known.length}::int)
    ), dated as (
      select *, created_at + interval '7 days' as expires_at,
        least(now(), created_at + delay * interval '7 days') as last_seen_at
      from created
    ), users as (select id, row_number() over () as n from identity.users)
    insert into identity.sessions (
      id, token_digest, user_id, created_at, updated_at, last_seen_at, expires_at, logged_out, revoked, ip, user_agent
    )
    select gen_random_uuid(), sha256(uuid_send(gen_random_uuid())), users.id, created_at, last_seen_at, last_seen_at,
      case when expires_at between now() and now() + interval '2 hours' then expires_at + interval '2 hours'
        else expires_at end,
      fate > ${active}::float8 and fate < 0.95, fate > ${active}::float8 and fate >= 0.95,
      '203.0.113.' || floor(random() * 256), 'Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0'
    from dated join users on users.n = dated.owner`;
  await sql`
    insert into identity.sessions (id, token_digest, user_id, created_at, updated_at, last_seen_at, expires_at)
    select gen_random_uuid(), decode(digest, 'hex'), user_id, now() - random() * interval '1 day', now(), now(),
      now() + interval '6 days'
    from unnest(
      ${known.map(({ digest }) => digest)}::text[], ${known.map(({ userId }) => userId)}::uuid[]
    ) as known (digest, user_id)`;
  await sql`vacuum analyze`;
}

interface Filter {
  readonly userId?: string;
  readonly active?: boolean;
}

/** The expected page from an independent implementation: offset and limit, and a count of the rows. */
async function expectedPage(sql: Sql, page: number, limit: number, filter: Filter = {}): Promise<ExpectedPage> {
  const byUser = filter.userId === undefined ? sql`true` : sql`user_id = ${filter.userId}`;
  const isActive = sql`(not revoked and not logged_out and expires_at > now())`;
  const byState = filter.active === undefined ? sql`true` : sql`${isActive} = ${filter.active}`;
  const where = sql`${byUser} and ${byState}`;
  const [row] = await sql<[{ total: number }]>`select count(*)::int as total from identity.sessions where ${where}`;
  const rows = await sql<Array<{ id: string }>>`
    select id from identity.sessions where ${where}
    order by created_at desc, id desc limit ${limit} offset ${(page - 1) * limit}`;
  return { total: row.total, ids: rows.map(({ id }) => id) };
}

function pick<T>(values: readonly T[], number: number): T {
  const value = values[number % values.length];
  if (value === undefined) throw new Error('nothing to pick from');
  return value;
}

/** Each request comes from the next caller, and each pass over the callers uses their next session. */
const callerToken = (number: number) => pick(pick(callers, number).tokens, Math.floor(number / CALLERS));
const administratorToken = (number: number) => pick(administrator.tokens, number);

async function casesOf(sql: Sql, size: number): Promise<Case[]> {
  const pages = size / 10;
  const { total: active } = await expectedPage(sql, 1, 10, { active: true });
  const callerPages = await Promise.all(callers.map(({ userId }) => expectedPage(sql, 1, 10, { userId })));
  const listCase = async (name: string, page: number, filter: Filter = {}): Promise<Case> => {
    const expected = await expectedPage(sql, page, 10, filter);
    const query = filter.active === undefined ? '' : `&active=${filter.active}`;
    const path = `/api/session/?page=${page}&limit=10${query}`;
    const request = (number: number) => ({ path, token: administratorToken(number), expected });
    return { name, requests: page === 1 ? REQUESTS : DEEP_REQUESTS, request };
  };
  return [
    {
      name: 'bearer check, a user',
      requests: REQUESTS,
      request: (n) => ({ path: '/api/test/', token: callerToken(n), expected: pick(callers, n).userId }),
    },
    {
      name: 'bearer check, administrator',
      requests: REQUESTS,
      request: (n) => ({ path: '/api/test/', token: administratorToken(n), expected: administrator.userId }),
    },
    await listCase('page=1&limit=10, administrator', 1),
    {
      name: 'page=1&limit=10, a user',
      requests: REQUESTS,
      request: (n) => {
        return { path: '/api/session/?page=1&limit=10', token: callerToken(n), expected: pick(callerPages, n) };
      },
    },
    {
      name: 'page=1&user=…, administrator',
      requests: REQUESTS,
      request: (n) => {
        const path = `/api/session/?page=1&limit=10&user=${pick(callers, n).userId}`;
        return { path, token: administratorToken(n), expected: pick(callerPages, n) };
      },
    },
    await listCase('active=true, page 1', 1, { active: true }),
    await listCase('active=true, the last page', Math.ceil(active / 10), { active: true }),
    await listCase('active=false, the middle page', pages / 2, { active: false }),
    await listCase('the middle page', pages / 2),
    await listCase('the last page', pages),
  ];
}

/** @returns the median latency in milliseconds */
async function measure({ client }: Subject, { name, requests, request }: Case, first: number): Promise<number> {
  const times: number[] = [];
  for (let number = first; number < first + requests; number += 1) {
    const { path, token, expected } = request(number);
    const { status, text, ms } = await client.send('GET', path, { authorization: `Bearer ${token}` });
    const { data, _meta: meta } = status === 200 ? JSON.parse(text) : {};
    const page = () => ({ total: meta?.pagination?.total, ids: data?.map(({ id }: { id: string }) => id) });
    const found = typeof expected === 'string' ? data?.user?.id : page();
    if (JSON.stringify(found) !== JSON.stringify(expected)) {
      throw new Error(`${name}: unexpected reply: ${status} ${text.slice(0, 500)}`);
    }
    times.push(ms);
  }
  return median(times);
}

async function prepare(server: string, size: number): Promise<Subject> {
  const url = await createDatabase(server, `sessions_${size}`);
  const env = { PATH: process.env.PATH, DATABASE_URL: url };
  const command = [join(root, 'dist/cli.js'), 'migrate', 'identity'];
  execFileSync(process.execPath, command, { env, stdio: ['ignore', 'ignore', 'inherit'] });
  const sql = connect(url);
  try {
    const startedAt = performance.now();
    await fill(sql, size);
    const cases = await casesOf(sql, size);
    const { total: active } = await expectedPage(sql, 1, 10, { active: true });
    const seconds = ((performance.now() - startedAt) / 1_000).toFixed(0);
    console.log(`${size} sessions of ${USERS} users, ${active} of them active, inserted in ${seconds} s`);
    // Longer than the age of the oldest session, so that none is removed during the run.
    const service = await startServices(['identity'], url, { SESSION_RETENTION: String(90 * 86_400) });
    return { size, client: createClient(service), cases };
  } finally {
    await sql.end();
  }
}

await withPostgres(async (postgres) => {
  const subjects: Subject[] = [];
  try {
    for (const size of SIZES) subjects.push(await prepare(postgres.url, size));
    const [small, large] = subjects;
    if (!small || !large) throw new Error('a comparison needs two sizes');
    const figures = small.cases.map(({ name }) => ({ name, small: [] as number[], large: [] as number[] }));
    // The first round is a warm-up.
    for (let round = 0; round <= ROUNDS; round += 1) {
      for (const [index, figure] of figures.entries()) {
        for (const [subject, times] of [[small, figure.small], [large, figure.large]] as const) {
          const one = subject.cases[index];
          if (!one) throw new Error('no such case');
          const ms = await measure(subject, one, round * one.requests);
          if (round > 0) times.push(ms);
        }
      }
    }
    const machine = `Node ${process.version}, ${process.platform} ${process.arch}`;
    console.log(`${machine}, ${ROUNDS} rounds in alternation; median (min to max)`);
    for (const { name, ...times } of figures) {
      const ratios = times.large.map((ms, round) => ms / (times.small[round] ?? Number.NaN));
      console.log(`${name.padEnd(36)} ${large.size} / ${small.size}: ${spread(ratios)} times`);
    }
    for (const { name, ...times } of figures) {
      const latencies = [`${small.size}: ${spread(times.small)} ms`, `${large.size}: ${spread(times.large)} ms`];
      console.log(`${name.padEnd(36)} ${latencies.join('; ')}`);
    }
  } finally {
    for (const { client } of subjects) client.close();
    await stopAll();
  }
});
