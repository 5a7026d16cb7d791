/**
 * `make bench-sessions`: what a bearer check and the session list cost with 1,000,000 sessions, in turn with the same at
 * 10,000, on this machine, now. Ratios first, because absolute figures are the machine's. Every answer that is counted
 * is the right one: its status, the exact total and the very sessions of the page.
 */
import { createHash, randomUUID } from 'node:crypto';
import { execFileSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { Sql } from 'postgres';
import { recount } from '../../test/support/totals.ts';
import { connect, databaseUrl, startPostgres } from '../postgres.ts';
import { makeTemporary, removeTemporary } from '../temporary.ts';
import { createClient, median, type Service, spread, startIdentity } from './service.ts';

const ROUNDS = 9;
const REQUESTS = 100;
/** A page far down walks over many rows of the index. */
const DEEP_REQUESTS = 5;
const USERS = 10_000;
const SIZES = [10_000, 1_000_000] as const;
/** The users who ask, and how many sessions of each have a token that is known here. Both databases have the same ones. */
const ASKING_USERS = 25;
const SESSIONS_EACH = 20;

interface Asker {
  readonly userId: string;
  readonly tokens: readonly string[];
}

const asker = (sessions: number): Asker => ({ userId: randomUUID(), tokens: Array.from({ length: sessions }, () => `session:${randomUUID()}`) });
const administrator = asker(10);
const askers = Array.from({ length: ASKING_USERS }, () => asker(SESSIONS_EACH));
const everyAsker = [administrator, ...askers];
const known = everyAsker.flatMap(({ userId, tokens }) => tokens.map((token) => ({ userId, digest: createHash('sha256').update(token).digest('hex') })));

/** What has to be answered: how many there are in all, and the ids of the page. */
interface Expected {
  readonly total: number;
  readonly ids: readonly string[];
}

interface Question {
  readonly name: string;
  readonly requests: number;
  /** The path, who asks, and what must come back: a user's id, or a page. `turn` counts the requests. */
  readonly ask: (turn: number) => { readonly path: string; readonly token: string; readonly expected: string | Expected };
}

interface Subject {
  readonly size: number;
  readonly service: Service;
  readonly client: ReturnType<typeof createClient>;
  readonly questions: readonly Question[];
}

/** Users of one database, the askers among them; then sessions of the past 30 days, of which a tenth is active. */
async function fill(sql: Sql, size: number): Promise<void> {
  await sql`
    insert into identity.users (id, username, username_key, email, email_key, first_name, last_name, enabled, verified, super_admin, created_at)
    select coalesce(asker.id, gen_random_uuid()), 'user-' || n, 'user-' || n, 'user-' || n || '@example.org', 'user-' || n || '@example.org',
      'Ada', 'Lovelace', true, true, n = 1, now() - interval '60 days' + n * interval '1 second'
    from generate_series(1, ${USERS}::int) n
    left join (select id, position from unnest(${everyAsker.map(({ userId }) => userId)}::uuid[]) with ordinality as a (id, position)) asker on asker.position = n`;
  // A session lives for a week here; so many of the younger ones were not ended before that a tenth of all is active.
  const alive = (size / 10 - known.length) / (size - known.length) / (7 / 30);
  // None expires while it is measured.
  await sql`
    with made as materialized (
      select now() - random() * interval '30 days' as created_at, 1 + floor(random() * ${USERS})::int as owner, random() as fate, random() as after
      from generate_series(1, ${size - known.length}::int)
    ), users as (select id, row_number() over () as n from identity.users)
    insert into identity.sessions (id, token_digest, user_id, created_at, updated_at, last_seen_at, expires_at, logged_out, revoked, ip, user_agent)
    select gen_random_uuid(), sha256(uuid_send(gen_random_uuid())), users.id, created_at,
      least(now(), created_at + after * interval '7 days'), least(now(), created_at + after * interval '7 days'),
      created_at + interval '7 days' + case when created_at + interval '7 days' between now() and now() + interval '2 hours' then interval '2 hours' else '0' end,
      fate > ${alive}::float8 and fate < 0.95, fate > ${alive}::float8 and fate >= 0.95,
      '203.0.113.' || floor(random() * 256), 'Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0'
    from made join users on users.n = made.owner`;
  await sql`
    insert into identity.sessions (id, token_digest, user_id, created_at, updated_at, last_seen_at, expires_at)
    select gen_random_uuid(), decode(digest, 'hex'), user_id, now() - random() * interval '1 day', now(), now(), now() + interval '6 days'
    from unnest(${known.map(({ digest }) => digest)}::text[], ${known.map(({ userId }) => userId)}::uuid[]) as known (digest, user_id)`;
  await recount(sql);
  await sql`vacuum analyze`;
}

interface Filter {
  readonly userId?: string;
  readonly active?: boolean;
}

/** The page as one plain statement, and the total as a count: slow, and surely right. */
async function expectedOf(sql: Sql, page: number, limit: number, filter: Filter = {}): Promise<Expected> {
  const where = sql`
    ${filter.userId === undefined ? sql`true` : sql`user_id = ${filter.userId}`}
    and ${filter.active === undefined ? sql`true` : sql`(not revoked and not logged_out and expires_at > now()) = ${filter.active}`}`;
  const [row] = await sql<[{ total: number }]>`select count(*)::int as total from identity.sessions where ${where}`;
  const rows = await sql<Array<{ id: string }>>`
    select id from identity.sessions where ${where} order by created_at desc, id desc limit ${limit} offset ${(page - 1) * limit}`;
  return { total: row.total, ids: rows.map(({ id }) => id) };
}

async function questionsOf(sql: Sql, size: number): Promise<Question[]> {
  const pages = size / 10;
  const { total: active } = await expectedOf(sql, 1, 10, { active: true });
  const ofEach = await Promise.all(askers.map(({ userId }) => expectedOf(sql, 1, 10, { userId })));
  const pick = <T>(values: readonly T[], turn: number): T => {
    const value = values[turn % values.length];
    if (value === undefined) throw new Error('nothing to pick from');
    return value;
  };
  const asAdministrator = async (name: string, page: number, filter: Filter = {}): Promise<Question> => {
    const expected = await expectedOf(sql, page, 10, filter);
    const query = filter.active === undefined ? '' : `&active=${filter.active}`;
    return {
      name,
      requests: page === 1 ? REQUESTS : DEEP_REQUESTS,
      ask: (turn) => ({ path: `/api/session/?page=${page}&limit=10${query}`, token: pick(administrator.tokens, turn), expected }),
    };
  };
  // Each turn another user, and each time round another one of the user's sessions.
  const tokenOf = (turn: number) => pick(pick(askers, turn).tokens, Math.floor(turn / ASKING_USERS));
  return [
    { name: 'bearer check, a user', requests: REQUESTS, ask: (turn) => ({ path: '/api/test/', token: tokenOf(turn), expected: pick(askers, turn).userId }) },
    { name: 'bearer check, administrator', requests: REQUESTS, ask: (turn) => ({ path: '/api/test/', token: pick(administrator.tokens, turn), expected: administrator.userId }) },
    await asAdministrator('page=1&limit=10, administrator', 1),
    { name: 'page=1&limit=10, a user', requests: REQUESTS, ask: (turn) => ({ path: '/api/session/?page=1&limit=10', token: tokenOf(turn), expected: pick(ofEach, turn) }) },
    {
      name: 'the same by user=…, administrator',
      requests: REQUESTS,
      ask: (turn) => ({ path: `/api/session/?page=1&limit=10&user=${pick(askers, turn).userId}`, token: pick(administrator.tokens, turn), expected: pick(ofEach, turn) }),
    },
    await asAdministrator('active=true, page 1', 1, { active: true }),
    await asAdministrator('active=true, the last page', Math.ceil(active / 10), { active: true }),
    await asAdministrator('active=false, the middle page', pages / 2, { active: false }),
    await asAdministrator('the middle page', pages / 2),
    await asAdministrator('the last page', pages),
  ];
}

/** @returns the median of so many requests, in milliseconds */
async function measure({ client }: Subject, { name, requests, ask }: Question, from: number): Promise<number> {
  const times: number[] = [];
  for (let turn = from; turn < from + requests; turn += 1) {
    const { path, token, expected } = ask(turn);
    const { status, text, ms } = await client.ask('GET', path, { authorization: `Bearer ${token}` });
    const said = status === 200 ? JSON.parse(text) : {};
    const found = typeof expected === 'string' ? said.data?.user?.id : { total: said._meta?.pagination?.total, ids: said.data?.map(({ id }: { id: string }) => id) };
    if (JSON.stringify(found) !== JSON.stringify(expected)) throw new Error(`${name}: ${status}, and not what was expected: ${text.slice(0, 500)}`);
    times.push(ms);
  }
  return median(times);
}

async function prepare(server: string, size: number): Promise<Subject> {
  const url = databaseUrl(server, `sessions_${size}`);
  const administration = connect(server);
  await administration`create database ${administration(`sessions_${size}`)}`.finally(() => administration.end());
  const cli = join(dirname(dirname(import.meta.dirname)), 'dist/cli.js');
  execFileSync(process.execPath, [cli, 'migrate', 'identity'], { env: { PATH: process.env.PATH, DATABASE_URL: url }, stdio: ['ignore', 'ignore', 'inherit'] });
  const sql = connect(url);
  try {
    const startedAt = performance.now();
    await fill(sql, size);
    const questions = await questionsOf(sql, size);
    const [row] = await sql<[{ n: number }]>`select count(*)::int as n from identity.sessions where not revoked and not logged_out and expires_at > now()`;
    console.log(`${size} sessions of ${USERS} users, ${row.n} of them active: filled in ${((performance.now() - startedAt) / 1_000).toFixed(0)} s`);
    // Longer than the oldest session here, so that no total changes meanwhile.
    const service = await startIdentity(url, { SESSION_RETENTION: String(90 * 86_400) });
    return { size, service, client: createClient(service), questions };
  } finally {
    await sql.end();
  }
}

const directory = makeTemporary(tmpdir(), 'gatehouse-bench');
const postgres = await startPostgres({ directory: join(directory, 'state'), durable: true });
const subjects: Subject[] = [];
try {
  for (const size of SIZES) subjects.push(await prepare(postgres.url, size));
  const [small, large] = subjects;
  if (!small || !large) throw new Error('two sizes are compared');
  const figures = small.questions.map(({ name }) => ({ name, small: [] as number[], large: [] as number[] }));
  // The first round warms up and is not counted.
  for (let round = 0; round <= ROUNDS; round += 1) {
    for (const [index, figure] of figures.entries()) {
      for (const [subject, times] of [[small, figure.small], [large, figure.large]] as const) {
        const question = subject.questions[index];
        if (!question) throw new Error('both are asked the same');
        const ms = await measure(subject, question, round * question.requests);
        if (round > 0) times.push(ms);
      }
    }
  }
  console.log(`Node ${process.version}, ${process.platform} ${process.arch}, ${ROUNDS} rounds in turn; median (least to most)`);
  for (const { name, ...times } of figures) {
    console.log(`${name.padEnd(36)} ${large.size} / ${small.size}: ${spread(times.large.map((ms, round) => ms / (times.small[round] ?? Number.NaN)))} times`);
  }
  for (const { name, ...times } of figures) console.log(`${name.padEnd(36)} ${small.size}: ${spread(times.small)} ms; ${large.size}: ${spread(times.large)} ms`);
} finally {
  for (const { client, service } of subjects) {
    client.close();
    await service.stop();
  }
  await postgres.stop();
  removeTemporary(directory);
}
