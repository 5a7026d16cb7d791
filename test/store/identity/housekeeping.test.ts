/**
 * What the background jobs remove, in small batches, and what they leave; any number of replicas
 * may run them at once.
 */
import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';
import { createIdentity } from '../../../src/identity/service.ts';
import { COMMAND_LINE } from '../../../src/identity/store/audit.ts';
import { createJobs, writeLastSeen } from '../../../src/identity/store/housekeeping.ts';
import { readNotices } from '../../../src/identity/store/notices.ts';
import { removeUser } from '../../../src/identity/users.ts';
import { createMetrics } from '../../../src/platform/runtime/metrics.ts';
import { createDatabase } from '../../support/database.ts';
import { quiet } from '../../support/service-context.ts';
import { storeUser } from '../../support/stored-users.ts';
import { addUser, IDENTITY_OPTIONS, openIdentity } from '../../support/users.ts';

const { url, sql } = await createDatabase();

/** A replica's jobs, and what it counts. */
function startReplica() {
  const metrics = createMetrics();
  const database = openIdentity({ after }, url);
  const jobs = createJobs(createIdentity(IDENTITY_OPTIONS, database, quiet({ metrics })));
  const run = async (name: string): Promise<boolean> => {
    const job = jobs.find((one) => one.name === name) ?? assert.fail(name);
    return (await job.batch()) === true;
  };
  const counted = (table: string) =>
    new RegExp(`^gatehouse_rows_removed_total\\{table="identity\\.${table}"\\} (\\d+)$`, 'm');
  return {
    database,
    run,
    metrics: () => metrics.text(),
    remove: (table: string) => run(`remove from identity.${table}`),
    removed: (table: string) => Number(counted(table).exec(metrics.text())?.[1] ?? 0),
  };
}

const one = startReplica();
const two = startReplica();
const replicas = [one, two];
const ada = await addUser(one.database, 'ada');
const grace = await addUser(one.database, 'grace');

beforeEach(async () => {
  for (const table of ['sessions', 'throttles', 'audit'])
    await sql`delete from ${sql(`identity.${table}`)}`;
});

/** Sessions of two users by turns. `kind` goes where the user agent would be. */
async function addSessions(
  kind: string,
  rows: number,
  { expired = '-1 hour', changed = '2 hours', created = '60 days', flag = '' } = {},
): Promise<void> {
  await sql`
    insert into identity.sessions (id, token_digest, user_id, revoked, logged_out, expires_at,
      created_at, updated_at, last_seen_at, user_agent)
    select gen_random_uuid(), decode(replace(gen_random_uuid()::text, '-', ''), 'hex'),
      case when n % 2 = 0 then ${ada}::uuid else ${grace}::uuid end, ${flag === 'revoked'},
      ${flag === 'logged out'}, now() - ${expired}::interval, now() - ${created}::interval,
      now() - ${changed}::interval, now() - interval '60 days', ${kind}
    from generate_series(1, ${rows}) n`;
}
const kinds = async (): Promise<Record<string, number>> => {
  const rows = await sql<Array<{ kind: string; n: number }>>`
    select user_agent as kind, count(*)::int as n from identity.sessions group by 1`;
  return Object.fromEntries(rows.map(({ kind, n }) => [kind, n]));
};
const left = async (table: string) => (await sql`select from ${sql(`identity.${table}`)}`).length;

test('sessions that ended before the retention are removed, and no others', async () => {
  await addSessions('expired', 3, { expired: '25 hours' });
  await addSessions('expired lately', 3, { expired: '23 hours' });
  for (const flag of ['revoked', 'logged out']) {
    await addSessions(flag, 3, { flag, changed: '25 hours' });
    await addSessions(`${flag} lately`, 3, { flag, changed: '23 hours' });
    const both = { flag, changed: '23 hours', expired: '25 hours' };
    await addSessions(`${flag} lately, and expired before`, 3, both);
  }
  await addSessions('open for long', 3, { changed: '60 days' });
  assert.equal(await one.remove('sessions'), false);
  assert.deepEqual(await kinds(), {
    'expired lately': 3,
    'revoked lately': 3,
    'logged out lately': 3,
    'open for long': 3,
  });
  assert.equal(one.removed('sessions'), 15);
});

test('sessions that ended with all of a user, or of everyone, are removed after the retention', async () => {
  const end = (userId: string | null, ago: string) =>
    userId === null
      ? sql`update identity.global_revocation set sessions_end_at = now() - ${ago}::interval`
      : sql`update identity.users set sessions_end_at = now() - ${ago}::interval
        where id = ${userId}`;
  // The sessions were created 60 days ago, half of them by each user.
  await addSessions('open', 6);
  await addSessions('of later logins', 2, { created: '1 second' });
  for (const [userId, ago, owners] of [
    [ada, '25 hours', [grace, grace, grace]],
    [grace, '23 hours', [grace, grace, grace]],
    [null, '23 hours', [grace, grace, grace]],
    [null, '25 hours', []],
  ] as const) {
    await end(userId, ago);
    assert.equal(await one.remove('sessions'), false);
    const rows = await sql`select user_id from identity.sessions where user_agent = 'open'`;
    assert.deepEqual(
      rows.map(({ user_id }) => user_id),
      owners,
    );
  }
  assert.deepEqual(await kinds(), { 'of later logins': 2 });
  await sql`update identity.users set sessions_end_at = null`;
  await sql`update identity.global_revocation set sessions_end_at = null`;
});

const addAudit = (event: string, rows: number, ago: string) => sql`
  insert into identity.audit (id, created_at, event, via, user_id, count, detail)
  select gen_random_uuid(), now() - ${ago}::interval, ${event}, 'nobody', ${ada}, 1, ''
  from generate_series(1, ${rows})`;

/** The end of 1,300 rows was a minute ago, and that of three is in a minute. */
const end = sql`now() + make_interval(secs => 60 * (case when n <= 1300 then -1 else 1 end))
  from generate_series(1, 1303) n`;
/**
 * Of each table, 1,300 rows that are to go, and some that are not.
 * `test/store/db/throttle.test.ts` has which throttles go.
 */
const LARGE: ReadonlyArray<readonly [table: string, kept: number, fill: () => Promise<unknown>]> = [
  [
    'sessions',
    5,
    async () => {
      await addSessions('expired', 700, { expired: '40 days' });
      await addSessions('revoked', 600, { flag: 'revoked', changed: '40 days' });
      await addSessions('open', 5);
    },
  ],
  [
    'audit',
    4,
    async () => {
      await addAudit('user.created', 1_300, '169 hours');
      await addAudit('user.changed', 4, '167 hours');
    },
  ],
  [
    'throttles',
    3,
    async () => sql`
      insert into identity.throttles (key, attempts, window_ends_at)
      select decode(md5(n::text), 'hex'), 1, ${end}`,
  ],
  [
    'pending_sign_ins',
    3,
    async () => sql`
      insert into identity.pending_sign_ins (token_digest, user_id, password_digest, expires_at)
      select decode(md5(n::text), 'hex'), ${ada}::uuid, '\\x00', ${end}`,
  ],
  [
    'used_challenges',
    3,
    async () => sql`
      insert into identity.used_challenges (digest, expires_at)
      select decode(md5(n::text), 'hex'), ${end}`,
  ],
];

for (const [table, kept, fill] of LARGE) {
  test(`rows of ${table} go in batches of 500, and are removed and counted once by replicas`, async () => {
    const removed = () => replicas.reduce((sum, one) => sum + one.removed(table), 0);
    const before = removed();
    await fill();
    const steps: Array<boolean | number> = [];
    for (let more = true; more; steps.push(more, await left(table))) more = await one.remove(table);
    assert.deepEqual(steps, [true, 800 + kept, true, 300 + kept, false, kept]);
    await sql`delete from ${sql(`identity.${table}`)}`;
    await fill();
    while ((await left(table)) > kept)
      await Promise.all(replicas.map(({ remove }) => remove(table)));
    assert.equal(removed() - before, 2_600);
  });
}

test('the names and address of a deleted user are erased after the retention, and nothing else', async () => {
  const old = await addUser(one.database, 'old');
  const recent = await addUser(one.database, 'recent');
  const kept = await addUser(one.database, 'kept');
  for (const [ago, id] of Object.entries({ '25 hours': old, '23 hours': recent })) {
    await removeUser(one.database, COMMAND_LINE, id);
    await sql`update identity.users set deleted_at = now() - ${ago}::interval where id = ${id}`;
  }
  const rows = async () => {
    const found = await sql`
      select * from identity.users where id in ${sql([old, recent, kept])} order by id`;
    return found.map((row) => ({ ...row }));
  };
  const before = await rows();
  const withHash = before.filter((row) => row.password_hash !== null).map(({ id }) => id);
  assert.deepEqual(withHash, [kept], 'the hash goes at once');
  const texts = ['username', 'username_key', 'email', 'email_key', 'first_name', 'last_name'];
  const erased = Object.fromEntries(texts.map((name) => [name, '']));
  const runs = await Promise.all(replicas.map(({ run }) => run('erase deleted users')));
  assert.deepEqual(runs, [false, false]);
  assert.deepEqual(
    await rows(),
    before.map((row) => (row.id === old ? { ...row, ...erased } : row)),
  );
});

test('deleted users are erased in batches of 500, each once', async () => {
  await sql`
    insert into identity.users (id, username, username_key, email, email_key, first_name,
      last_name, enabled, verified, super_admin, deleted_at)
    select gen_random_uuid(), 'gone', 'gone', 'gone@example.org', 'gone@example.org', 'Gone', '',
      true, false, false, now() - interval '2 days'
    from generate_series(1, 700)`;
  const gone = async () => (await sql`select from identity.users where username = 'gone'`).length;
  const steps = [await one.run('erase deleted users'), await gone()];
  steps.push(await one.run('erase deleted users'), await gone());
  assert.deepEqual(steps, [true, 200, false, 0]);
  const versions = async () => [
    ...(await sql`select id, xmin::text from identity.users where username = '' order by id`),
  ];
  const erased = await versions();
  assert.equal(await two.run('erase deleted users'), false);
  assert.deepEqual(await versions(), erased);
});

test('a use of a session or key is written once a minute by all replicas, and extends nothing', async () => {
  const { session_id, key_id } = await storeUser(sql);
  const { key_id: unused } = await storeUser(sql);
  const versions = async () =>
    (
      await sql`
        select xmin::text, expires_at from identity.sessions where id = ${session_id}
        union all select xmin::text, expires_at from identity.api_keys where id = ${key_id}`
    ).map((row) => ({ ...row }));
  await sql`update identity.sessions set last_seen_at = now() - interval '61 seconds'`;
  const [session, key] = await versions();
  const write = ({ database }: typeof one, idleSeconds = 0) =>
    writeLastSeen({ database, idleSeconds }, [session_id, key_id]);
  await write(one, 60);
  assert.deepEqual((await versions())[0], session, 'no idle session is revived');
  await write(one);
  const written = await versions();
  assert.notEqual(written[0]?.xmin, session?.xmin);
  assert.notEqual(written[1]?.xmin, key?.xmin);
  assert.deepEqual(written[0]?.expires_at, session?.expires_at);
  await sql`update identity.sessions set last_seen_at = now() - interval '59 seconds'`;
  const recent = await versions();
  for (const replica of [two, one]) await write(replica);
  assert.deepEqual(await versions(), recent);
  // A minute later, it counts as news again.
  await sql`
    update identity.api_keys set last_used_at = now() - interval '61 seconds'
    where id = ${key_id}`;
  await write(two);
  assert.notEqual((await versions())[1]?.xmin, written[1]?.xmin);
  const [other] = await sql`select last_used_at from identity.api_keys where id = ${unused}`;
  assert.equal(other?.last_used_at, null);
});

test('generated passwords that expire within six hours are counted', async () => {
  for (const [hours, state] of [
    [19, sql`password_generated = true`],
    [23, sql`password_generated = true`],
    [17, sql`password_generated = true`],
    [25, sql`password_generated = true`],
    [19, sql`password_generated = false`],
    [19, sql`password_generated = true, enabled = false`],
    [19, sql`password_generated = true, deleted_at = now()`],
  ] as const) {
    const { user_id } = await storeUser(sql);
    await sql`update identity.users set password_set_at = now() - make_interval(hours => ${hours}),
      ${state} where id = ${user_id}`;
  }
  await one.run('count the generated passwords that expire soon');
  assert.match(one.metrics(), /^gatehouse_temporary_passwords_ending 2$/m);
});

test('notices cover the given time, and failures only in large numbers', async () => {
  const since = '2030-01-01T00:00:00Z';
  const until = '2030-01-02T00:00:00Z';
  const read = () => readNotices(one.database, since, until);
  const add = (event: string, at: string, count = 1) => sql`
    insert into identity.audit (id, created_at, event, via, user_id, count, detail)
    select gen_random_uuid(), ${at}, ${event}, 'nobody', ${ada}, 1, ''
    from generate_series(1, ${count})`;
  for (const at of [since, '2030-01-02T00:00:01Z']) await add('link.used', at);
  await add('login.failed', until, 9);
  assert.deepEqual(await read(), []);
  await add('link.used', until);
  await add('factor.failed', until);
  const told = ['links used: 1, for 1 accounts', 'wrong passwords and codes: 10, for 1 accounts'];
  assert.deepEqual(await read(), told);
});
