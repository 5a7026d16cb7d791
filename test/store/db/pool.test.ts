/** How every connection is set, how many there are, and how many calls may wait for one. */
import assert from 'node:assert/strict';
import { connect, createServer } from 'node:net';
import { before, test, type TestContext } from 'node:test';
import type { Sql } from 'postgres';
import { connect as connectTo } from '../../../scripts/postgres.ts';
import { Duplicate } from '../../../src/platform/db/errors.ts';
import { createDatabase as createPools, type Database } from '../../../src/platform/db/pool.ts';
import { Failure } from '../../../src/platform/http/route/errors.ts';
import { createLog } from '../../../src/platform/runtime/log.ts';
import { createMetrics } from '../../../src/platform/runtime/metrics.ts';
import { Overloaded, Unavailable } from '../../../src/platform/runtime/errors.ts';
import { holdTimers } from '../../support/clock.ts';
import { createDatabase } from '../../support/database.ts';
import {
  addressOf,
  ask,
  openConnections,
  PATIENT,
  PURPOSES,
  type Purpose,
  untilLocked,
  untilSql,
} from '../../support/connections.ts';
import { latch } from '../../support/until.ts';
import { listenOn } from '../../support/ports.ts';

const file = await createDatabase();

before(async () => {
  await file.sql`create table things (id integer constraint things_id_unique unique check (id > 0),
    name text)`;
});

test('every connection sets time limits, UTC and synchronous commits, whatever the defaults', async (t) => {
  const { pathname } = new URL(file.url);
  const name = pathname.slice(1);
  await file.sql`alter database ${file.sql(name)} set synchronous_commit to off`;
  await file.sql`alter database ${file.sql(name)} set statement_timeout to 0`;
  await file.sql`alter database ${file.sql(name)} set timezone to 'Asia/Kathmandu'`;
  const database = openConnections(t, file.url, 'settings');
  for (const purpose of PURPOSES) {
    const found = await ask(
      database,
      purpose,
      `select current_setting('synchronous_commit') as commit,
        current_setting('statement_timeout') as statement,
        current_setting('idle_in_transaction_session_timeout') as idle,
          current_setting('TimeZone') as zone, current_setting('application_name') as name`,
    );
    assert.deepEqual(
      found,
      { commit: 'on', statement: '10s', idle: '10s', zone: 'UTC', name: 'gatehouse-settings' },
      purpose,
    );
  }
});

test('a transaction sees what others have committed since it began, whatever the default', async (t) => {
  const name = file.sql(new URL(file.url).pathname.slice(1));
  await file.sql`alter database ${name} set default_transaction_isolation to serializable`;
  const database = openConnections(t, file.url, 'isolation');
  const statement = `select current_setting('transaction_isolation') as isolation`;
  const found = await ask(database, 'transaction', statement);
  await file.sql`alter database ${name} reset default_transaction_isolation`;
  assert.deepEqual(found, { isolation: 'read committed' });
});

test('changes of the schema have a connection without time limits, closed afterwards', async (t) => {
  const database = openConnections(t, file.url, 'upkeep');
  const [found] = await database.maintain(
    (sql) =>
      sql`select current_setting('statement_timeout') as statement,
        current_setting('synchronous_commit') as commit`,
  );
  assert.deepEqual({ ...found }, { statement: '0', commit: 'on' });
  await untilSql(
    async () =>
      (await file.sql`select 1 from pg_stat_activity where application_name = 'gatehouse-upkeep'`)
        .length === 0,
    'it is closed',
  );
});

const strangers = {
  PGMAX: '3',
  PGAPPNAME: 'stranger',
  PGPASSWORD: 'stranger',
  PGUSER: 'stranger',
  PGUSERNAME: 'stranger',
  PGDATABASE: 'stranger',
  PGHOST: 'stranger.invalid',
  PGPORT: '1',
  PGSSL: 'require',
  PGPREPARE: 'false',
  PGIDLE_TIMEOUT: '1',
  PGFETCH_TYPES: 'true',
  PGTARGET_SESSION_ATTRS: 'standby',
};

/**
 * Sets variables of this process, as `postgres` would find them.
 * @returns puts back what was there
 */
function setVariables(values: Readonly<Record<string, string>>): () => void {
  const before = Object.keys(values).map((name) => [name, process.env[name]] as const);
  Object.assign(process.env, values);
  return () => {
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  };
}

/** The variables are there while the pools are made and while they connect. */
async function openAmong(
  t: TestContext,
  values: Readonly<Record<string, string>>,
  url: string,
  name: string,
): Promise<Database> {
  const restore = setVariables(values);
  t.after(async () => restore());
  return openConnections(t, url, name);
}

test('PG… variables of the environment do not leak into the connections', async (t) => {
  const database = await openAmong(t, strangers, file.url, 'clean');
  for (const purpose of PURPOSES) {
    const found = await ask(
      database,
      purpose,
      `select current_setting('application_name') as name, current_database() as database`,
    );
    assert.deepEqual(
      found,
      { name: 'gatehouse-clean', database: new URL(file.url).pathname.slice(1) },
      purpose,
    );
  }
});

test('a URL without a password does not take that of the environment', async (t) => {
  const url = new URL(file.url);
  const password = url.password;
  url.password = '';
  const database = await openAmong(t, { PGPASSWORD: password }, url.href, 'no-password');
  await assert.rejects(ask(database, 'read', 'select 1'), Unavailable);
});

test('under any load, at most nine connections', async (t) => {
  // The call that waits for a lock does so for as long as a slow machine needs for the others.
  const database = openConnections(t, file.url, 'counted', PATIENT);
  let most = 0;
  let over = false;
  const counting = (async () => {
    while (!over)
      most = Math.max(
        most,
        (
          await file.sql`select 1 from pg_stat_activity
            where application_name = 'gatehouse-counted'`
        ).length,
      );
  })();
  const holder = connectTo(file.url);
  t.after(() => holder.end({ timeout: 0 }));
  await holder`begin`;
  await holder`lock table things`;
  const waiting = ask(database, 'write', 'select 1 from things limit 0');
  await untilLocked(file.sql, 1);
  await Promise.all(
    Array.from({ length: 50 }, () =>
      PURPOSES.map((purpose) => ask(database, purpose, 'select 1 as one')),
    ).flat(),
  );
  await holder`rollback`;
  await waiting;
  await untilSql(async () => most >= 9, 'all are counted');
  over = true;
  await counting;
  assert.equal(most, 9);
});

/**
 * Whoever is refused is refused at once; whoever is not may wait for as long as the others stay.
 */
async function isRefused(work: Promise<unknown>): Promise<boolean> {
  const outcome = work.then(
    () => false,
    (error: unknown) => error instanceof Overloaded || Promise.reject(error),
  );
  return Promise.race([
    outcome,
    new Promise<boolean>((resolve) => setImmediate(() => resolve(false))),
  ]);
}

/** Work that keeps its connection until all of it is let go. */
function hold(t: TestContext) {
  const { opened: released, open: release } = latch();
  // Also after a failed assertion, or the connections could not be closed.
  t.after(async () => release());
  return { release, work: async () => released };
}

/** How long a call waits for a connection. */
const MAX_WAIT_MS = 10_000;
const sizes = { read: 2, write: 3, list: 1, claim: 1, readiness: 1, transaction: 3 };

for (const purpose of PURPOSES) {
  const size = sizes[purpose];
  test(`${purpose}: ${size} run at once, 1,024 wait, the next is rejected, and no other purpose is delayed`, async (t) => {
    const database = openConnections(t, file.url, 'full', PATIENT);
    // A slow machine may need longer for all that wait.
    holdTimers(t, MAX_WAIT_MS);
    const { release, work } = hold(t);
    let running = 0;
    const start = () => {
      const run = async () => {
        running += 1;
        await work();
      };
      return purpose === 'transaction' ? database.transaction(run) : database[purpose](run);
    };
    const inside = Array.from({ length: 1_024 + size }, start);
    assert.equal(await isRefused(start()), true);
    await untilSql(async () => running === size, 'as many run as there are connections');
    const isWrite = (one: Purpose) => one === 'write' || one === 'transaction';
    for (const other of PURPOSES.filter((one) => one !== purpose))
      if (!isWrite(purpose) || !isWrite(other))
        assert.deepEqual(await ask(database, other, 'select 1 as one'), { one: 1 });
    assert.equal(running, size);
    release();
    await Promise.all(inside);
    assert.deepEqual(await ask(database, purpose, 'select 1 as one'), { one: 1 });
  });
}

test('a call that has waited ten seconds for a connection is rejected, and its work is not done', async (t) => {
  const database = openConnections(t, file.url, 'late');
  const { release, work } = hold(t);
  await ask(database, 'list', 'select 1');
  const inside = database.list(work);
  const endWaits = holdTimers(t, MAX_WAIT_MS);
  let isDone = false;
  const late = database.list(async () => {
    isDone = true;
  });
  assert.equal(await isRefused(late), false);
  assert.equal(endWaits(), 1);
  await assert.rejects(late, Overloaded);
  release();
  await inside;
  assert.deepEqual(await ask(database, 'list', 'select 1 as one'), { one: 1 });
  assert.equal(isDone, false);
});

function insert(database: Database, purpose: 'write' | 'transaction', id: number, name = '') {
  const work = async (sql: Sql) => {
    await sql`insert into things values (${id}, ${name})`;
  };
  return purpose === 'write' ? database.write(work) : database.transaction(work);
}

for (const purpose of ['write', 'transaction'] as const) {
  test(`${purpose}: a unique violation names the index, and nothing of the row`, async (t) => {
    const database = openConnections(t, file.url, 'twice');
    const id = purpose === 'write' ? 71_717 : 72_727;
    await insert(database, purpose, id, 'marked-name');
    const refused = await insert(database, purpose, id, 'marked-name').catch(
      (error: unknown) => error,
    );
    assert.ok(refused instanceof Duplicate);
    assert.equal(refused.constraint, 'things_id_unique');
    assertSilent(refused, ['marked', String(id), 'insert']);
  });
}

/** Whatever of an error could end up in a log: enumerable or not, the causes included. */
function assertSilent(error: Error, words: readonly string[]): void {
  const seen: string[] = [];
  for (let one: unknown = error; one instanceof Error; one = one.cause) {
    for (const name of Object.getOwnPropertyNames(one).filter((property) => property !== 'stack'))
      seen.push(`${name}=${String(Reflect.get(one, name))}`);
    seen.push((one.stack ?? '').split('\n    at ')[0] ?? '');
  }
  for (const word of words)
    assert.ok(!seen.join('\n').includes(word), `"${word}" in ${seen.join(' | ')}`);
}

const refusals: ReadonlyArray<readonly [what: string, statement: string, code: string]> = [
  [
    'a wrong statement',
    `select marked from things`,
    '42703: the schema is of another version; run "gatehouse migrate", and if that does not help, see "Upgrade" in docs/deploy.md',
  ],
  ['a value that does not fit', `insert into things values ('marked-value')`, '22P02'],
  ['a row that a rule refuses', `insert into things values (-1, 'marked')`, '23514'],
];

for (const purpose of PURPOSES) {
  test(`${purpose}: a rejected statement is reported by its code, without its text and values`, async (t) => {
    const database = openConnections(t, file.url, 'refused');
    for (const [what, statement, code] of refusals) {
      const error = await ask(database, purpose, statement).catch((thrown: unknown) => thrown);
      assert.ok(error instanceof Unavailable, what);
      assert.equal(error.message, `the database returned an error (SQLSTATE ${code})`);
      assert.equal(error.isTemporary, false);
      assertSilent(error, ['marked', 'things', 'select', 'insert']);
    }
  });
}

test('the type of a transaction refuses a Failure, because what returns is committed', async (t) => {
  const database = openConnections(t, file.url, 'typed');
  await database.transaction(async (sql) => {
    await sql`insert into things values (81_818)`;
    return { id: 81_818 };
  });
  // @ts-expect-error: it must be thrown, or returned after the transaction
  await database.transaction(async (sql) => {
    await sql`insert into things values (82_828)`;
    return new Failure('conflict');
  });
  // @ts-expect-error: also if it is one of several outcomes
  await database.transaction(async (sql) => {
    const { count } = await sql`select from things where id = 82_828`;
    return count === 1 ? null : new Failure('not_found');
  });
  const stored = await file.sql`select id from things where id in (81_818, 82_828) order by id`;
  assert.deepEqual(
    stored.map(({ id }) => id),
    [81_818, 82_828],
  );
});

test('an error of the caller’s own code passes unchanged', async (t) => {
  const database = openConnections(t, file.url, 'own');
  const own = new RangeError('of the caller');
  const work = () => Promise.reject(own);
  for (const purpose of PURPOSES) {
    const run: Promise<unknown> =
      purpose === 'transaction' ? database.transaction(work) : database[purpose](work);
    await assert.rejects(run, (error) => error === own, purpose);
  }
});

test('an IPv6 address works as a host', async (t) => {
  let connections = 0;
  const relay = createServer((near) => {
    connections += 1;
    const far = connect(Number(new URL(file.url).port), '127.0.0.1');
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const)
      one.on('error', () => {}).on('close', () => other.destroy());
    near.pipe(far).pipe(near);
  });
  const port = await listenOn(t, relay, '::1');
  // In full: a client that cuts an address at its first colon would reach this host by way of the
  // short form, too.
  const address = { ...addressOf(file.url), hosts: [{ name: '0:0:0:0:0:0:0:1', port }] };
  const database = createPools(
    address,
    'six',
    createLog('silent', () => {}),
    createMetrics(),
  );
  t.after(() => database.close());
  assert.deepEqual(await ask(database, 'read', 'select 1 as one'), { one: 1 });
  assert.ok(connections > 0);
});

test('a call after a connection that the server rejected opens a new one', async (t) => {
  const own = await createDatabase(t);
  const database = openConnections(t, own.url, 'rejected');
  const name = new URL(own.url).pathname.slice(1);
  await file.sql`alter database ${file.sql(name)} with allow_connections false`;
  // A call on the rejected connection would fail as "reconnected", and hide the server's reason.
  for (let call = 0; call < 5; call += 1) {
    await assert.rejects(
      database.list((sql) => sql`select 1`),
      /SQLSTATE 55000/,
    );
  }
  await file.sql`alter database ${file.sql(name)} with allow_connections true`;
  await database.list((sql) => sql`select 1`);
});
