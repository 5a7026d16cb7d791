/**
 * What the background jobs remove, in small batches, and what they leave; any number of replicas
 * may run them at once.
 */
import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';
import { migrate } from '../../../src/platform/db/schema.ts';
import { SCHEMA } from '../../../src/identity/migrations.ts';
import { createIdentity } from '../../../src/identity/service.ts';
import { COMMAND_LINE } from '../../../src/identity/store/audit.ts';
import { createJobs, writeLastSeen } from '../../../src/identity/store/housekeeping.ts';
import { removeUser } from '../../../src/identity/users.ts';
import { createMetrics } from '../../../src/platform/runtime/metrics.ts';
import { createDatabase } from '../../support/database.ts';
import { quiet } from '../../support/service-context.ts';
import { addUser, CHEAP, openIdentity } from '../../support/users.ts';

const { url, sql } = await createDatabase();
const portal = {
  origin: 'https://login.example.org',
  host: 'login.example.org',
  hasOidc: false,
  hasPasskeys: true,
  returnOrigins: [],
  cookieDomain: null,
  requireSecondFactor: 'off' as const,
  staySeconds: 0,
  linkSeconds: 3_600,
};
const options = {
  passwords: CHEAP,
  sessionSeconds: 3_600,
  idleSeconds: 600,
  portal,
  factorSecrets: [],
  selfDeletion: false,
  retentionSeconds: 86_400,
  auditSeconds: 7 * 86_400,
};

/** A replica's jobs, by name, and what it counts. */
function startReplica() {
  const metrics = createMetrics();
  const database = openIdentity({ after }, url);
  const context = quiet({ metrics });
  const service = createIdentity(options, database, context);
  const all = new Map(createJobs(service).map((job) => [job.name, job]));
  const run = async (name: string): Promise<boolean> => {
    const job = all.get(name);
    assert.ok(job, name);
    return (await job.batch()) === true;
  };
  const removed = (table: string) =>
    Number(
      new RegExp(
        `^gatehouse_rows_removed_total\\{table="identity\\.${table}"\\} (\\d+)$`,
        'm',
      ).exec(metrics.text())?.[1] ?? 0,
    );
  return { database, run, removed, names: [...all.keys()] };
}

const replicas = [startReplica(), startReplica(), startReplica()];
const [one = startReplica(), two = startReplica()] = replicas;
await migrate(one.database, SCHEMA);
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
  { expired = '-1 hour', changed = '2 hours', flags = [] as string[] } = {},
): Promise<void> {
  await sql`
    insert into identity.sessions (id, token_digest, user_id, revoked, logged_out, expires_at,
      created_at, updated_at, last_seen_at, user_agent)
    select gen_random_uuid(), decode(replace(gen_random_uuid()::text, '-', ''), 'hex'),
      case when n % 2 = 0 then ${ada}::uuid else ${grace}::uuid end,
      ${flags.includes('revoked')}, ${flags.includes('logged out')}, now() - ${expired}::interval,
        now() - interval '60 days',
      now() - ${changed}::interval, now() - interval '60 days', ${kind}
    from generate_series(1, ${rows}) n`;
}

const kinds = async (): Promise<Record<string, number>> =>
  Object.fromEntries(
    (
      await sql`select user_agent as kind, count(*)::int as n from identity.sessions group by 1`
    ).map(({ kind, n }) => [String(kind), Number(n)]),
  );

test('there is a job for each table that grows, and one that records the last use', () => {
  assert.deepEqual(one.names, [
    'remove from identity.sessions',
    'remove from identity.throttles',
    'remove from identity.audit',
    'remove from identity.pending_sign_ins',
    'remove from identity.used_challenges',
    'erase deleted users',
    'record last use',
    'count the generated passwords that expire soon',
  ]);
});

test('sessions that ended before the retention are removed, and no others', async () => {
  await addSessions('expired', 3, { expired: '25 hours' });
  await addSessions('expired lately', 3, { expired: '23 hours' });
  for (const flag of ['revoked', 'logged out']) {
    await addSessions(flag, 3, { flags: [flag], changed: '25 hours' });
    await addSessions(`${flag} lately`, 3, { flags: [flag], changed: '23 hours' });
    await addSessions(`${flag} lately, and expired before`, 3, {
      flags: [flag],
      changed: '23 hours',
      expired: '25 hours',
    });
  }
  await addSessions('open for long', 3, { changed: '60 days' });
  assert.equal(await one.run('remove from identity.sessions'), false);
  assert.deepEqual(await kinds(), {
    'expired lately': 3,
    'revoked lately': 3,
    'logged out lately': 3,
    'open for long': 3,
  });
  assert.equal(one.removed('sessions'), 15);
});

test('sessions that ended with all of a user, or of everyone, are removed after the retention', async () => {
  const ended = (userId: string | null, ago: string) =>
    userId === null
      ? sql`update identity.global_revocation set sessions_end_at = now() - ${ago}::interval`
      : sql`update identity.users set sessions_end_at = now() - ${ago}::interval
        where id = ${userId}`;
  // The sessions were created 60 days ago, half of them by each user.
  await addSessions('open', 6);
  await ended(ada, '25 hours');
  await ended(grace, '23 hours');
  assert.equal(await one.run('remove from identity.sessions'), false);
  assert.deepEqual(
    [...(await sql`select distinct user_id from identity.sessions`)],
    [{ user_id: grace }],
  );
  assert.equal((await kinds()).open, 3);
  await ended(null, '23 hours');
  await one.run('remove from identity.sessions');
  assert.equal((await kinds()).open, 3);
  await ended(null, '25 hours');
  await one.run('remove from identity.sessions');
  assert.deepEqual(await kinds(), {});
  await sql`update identity.users set sessions_end_at = null`;
  await sql`update identity.global_revocation set sessions_end_at = null`;
});

test("throttles go once they no longer count, and a known network's stays", async () => {
  const key = (name: string) => Buffer.from(name.padEnd(32));
  await sql`
    insert into identity.throttles (key, attempts, window_ends_at, known_until) values
      (${key('forgotten')}, 5, now() - interval '1 second', null),
      (${key('no longer known')}, 0, now() - interval '91 days', now() - interval '1 day'),
      (${key('counts')}, 5, now() + interval '1 minute', null),
      (${key('known')}, 0, now() - interval '80 days', now() + interval '10 days')`;
  assert.equal(await one.run('remove from identity.throttles'), false);
  const left = (await sql<Array<{ key: Buffer }>>`select key from identity.throttles`).map((row) =>
    row.key.toString().trim(),
  );
  assert.deepEqual(left.sort(), ['counts', 'known']);
  assert.equal(one.removed('throttles'), 2);
});

test('pending sign-ins and used challenges go once they have expired', async () => {
  await sql`
    insert into identity.pending_sign_ins (token_digest, user_id, password_digest, expires_at)
    select decode(md5(n::text), 'hex'), ${ada}::uuid, '\\x00',
      now() + make_interval(secs => 60 * (case when n <= 1300 then -1 else 1 end))
    from generate_series(1, 1303) n`;
  await sql`
    insert into identity.used_challenges (digest, expires_at)
    select token_digest, expires_at from identity.pending_sign_ins`;
  for (const table of ['pending_sign_ins', 'used_challenges']) {
    for (const [more, rows] of [
      [true, 803],
      [true, 303],
      [false, 3],
    ] as const) {
      assert.deepEqual(
        [await one.run(`remove from identity.${table}`), await left(table)],
        [more, rows],
      );
    }
    assert.equal(one.removed(table), 1_300);
  }
});

const addAudit = async (event: string, rows: number, ago: string) => {
  await sql`
    insert into identity.audit (id, created_at, event, via, user_id, count, detail)
    select gen_random_uuid(), now() - ${ago}::interval, ${event}, 'nobody', ${ada}, 1, ''
      from generate_series(1, ${rows})`;
};

test('lines of the trail go when AUDIT_RETENTION is over, and no others', async () => {
  await addAudit('user.created', 4, '169 hours');
  await addAudit('user.changed', 4, '167 hours');
  assert.equal(await one.run('remove from identity.audit'), false);
  assert.deepEqual(
    [...(await sql`select event, count(*)::int as n from identity.audit group by 1`)],
    [{ event: 'user.changed', n: 4 }],
  );
  assert.equal(one.removed('audit'), 4);
});

/** 1,300 rows that are to go, of each table. */
const LARGE: ReadonlyArray<
  readonly [table: 'sessions' | 'throttles' | 'audit', fill: () => Promise<unknown>]
> = [
  [
    'sessions',
    () =>
      addSessions('expired', 700, { expired: '40 days' }).then(() =>
        addSessions('revoked', 600, { flags: ['revoked'], changed: '40 days' }),
      ),
  ],
  [
    'throttles',
    () =>
      sql`insert into identity.throttles (key, attempts, window_ends_at)
        select decode(md5(n::text), 'hex'), 1, now() - interval '1 hour'
          from generate_series(1, 1300) n`,
  ],
  ['audit', () => addAudit('user.created', 1_300, '10 days')],
];
const left = async (table: string) =>
  Number((await sql`select count(*)::int as n from ${sql(`identity.${table}`)}`)[0]?.n);

for (const [table, fill] of LARGE) {
  test(`many rows of ${table} are removed in batches of 500`, async () => {
    await fill();
    const before = one.removed(table);
    const steps: Array<[more: boolean, left: number]> = [];
    for (let more = true; more;) {
      more = await one.run(`remove from identity.${table}`);
      steps.push([more, await left(table)]);
      assert.ok(steps.length < 10);
    }
    assert.deepEqual(steps, [
      [true, 800],
      [true, 300],
      [false, 0],
    ]);
    assert.equal(one.removed(table) - before, 1_300);
  });

  test(`replicas that remove ${table} at once remove and count each row once`, async () => {
    await fill();
    await addSessions('open', 5);
    const before = replicas.reduce((sum, { removed }) => sum + removed(table), 0);
    for (let round = 0; (await left(table)) > (table === 'sessions' ? 5 : 0); round += 1) {
      assert.ok(round < 10);
      await Promise.all(replicas.map(({ run }) => run(`remove from identity.${table}`)));
    }
    assert.equal(replicas.reduce((sum, { removed }) => sum + removed(table), 0) - before, 1_300);
    assert.deepEqual(await kinds(), { open: 5 });
  });
}

test('the names and address of a deleted user are erased after the retention, and nothing else', async () => {
  const delete_ = (id: string) => removeUser(one.database, COMMAND_LINE, id);
  const old = await addUser(one.database, 'old');
  const recent = await addUser(one.database, 'recent');
  const kept = await addUser(one.database, 'kept');
  for (const id of [old, recent]) await delete_(id);
  await sql`update identity.users set deleted_at = now() - interval '25 hours' where id = ${old}`;
  await sql`update identity.users set deleted_at = now() - interval '23 hours'
    where id = ${recent}`;
  const rows = async () =>
    (
      await sql`select * from identity.users where id in (${old}, ${recent}, ${kept}) order by id`
    ).map((row) => ({ ...row }));
  const before = await rows();
  // The hash goes at once.
  assert.deepEqual(
    before.map(({ id, password_hash }) => [id, password_hash === null]).sort(),
    [
      [old, true],
      [recent, true],
      [kept, false],
    ].sort(),
  );
  const erased = {
    username: '',
    username_key: '',
    email: '',
    email_key: '',
    first_name: '',
    last_name: '',
  };
  assert.deepEqual(await Promise.all(replicas.map(({ run }) => run('erase deleted users'))), [
    false,
    false,
    false,
  ]);
  assert.deepEqual(
    await rows(),
    before.map((row) => (row.id === old ? { ...row, ...erased } : row)),
  );
  // The trail names users by id alone.
  const trail = await sql`select event from identity.audit where user_id = ${old} order by event`;
  assert.deepEqual(
    trail.map(({ event }) => event),
    ['user.created', 'user.deleted'],
  );
  assert.equal(
    (await sql`select from identity.audit a where a::text like '%old@example.org%'`).length,
    0,
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
  const steps: Array<[more: boolean, left: number]> = [];
  for (let more = true; more;) {
    more = await one.run('erase deleted users');
    steps.push([more, await gone()]);
  }
  assert.deepEqual(steps, [
    [true, 200],
    [false, 0],
  ]);
  const { count } = await sql`select from identity.users where username = ''`;
  assert.equal(await two.run('erase deleted users'), false);
  assert.equal((await sql`select from identity.users where username = ''`).count, count);
});

test('a use that several replicas have seen is written once', async () => {
  await addSessions('open', 2);
  const ids = (await sql`select id from identity.sessions`).map(({ id }) => String(id));
  const versions = async () => [
    ...(await sql`select id, xmin::text as version from identity.sessions order by id`),
  ];
  const before = await versions();
  await writeLastSeen({ database: one.database, idleSeconds: 0 }, ids);
  const written = await versions();
  assert.equal(
    written.filter(({ version }, index) => version !== before[index]?.version).length,
    2,
  );
  for (const { database } of [two, one]) await writeLastSeen({ database, idleSeconds: 0 }, ids);
  assert.deepEqual(await versions(), written);
});

test('a use recorded after the idle limit does not revive a session', async () => {
  await addSessions('open', 1);
  const ids = (
    await sql`update identity.sessions set last_seen_at = now() - interval '301 s' returning id`
  ).map(({ id }) => String(id));
  const seen = async () =>
    (await sql`select now() - last_seen_at < interval '1 minute' as seen from identity.sessions`)[0]
      ?.seen;
  await writeLastSeen({ database: one.database, idleSeconds: 300 }, ids);
  assert.equal(await seen(), false);
  await writeLastSeen({ database: one.database, idleSeconds: 400 }, ids);
  assert.equal(await seen(), true);
});
