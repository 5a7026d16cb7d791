/** How many connections there are, how many calls may wait for one, and what a call is told. */
import assert from 'node:assert/strict';
import { before, test, type TestContext } from 'node:test';
import type { Sql } from 'postgres';
import { connect } from '../../../scripts/postgres.ts';
import { Duplicate } from '../../../src/platform/db/errors.ts';
import type { Database } from '../../../src/platform/db/pool.ts';
import { Failure } from '../../../src/platform/http/route/errors.ts';
import { Overloaded, Unavailable } from '../../../src/platform/runtime/errors.ts';
import { holdTimers } from '../../support/clock.ts';
import { createDatabase } from '../../support/database.ts';
import {
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
import { createRelay } from '../../support/relay.ts';

const file = await createDatabase();
const { port, password, pathname } = new URL(file.url);
const NAME = pathname.slice(1);

before(async () => {
  await file.sql`create table things (id integer constraint things_id_unique unique check (id > 0),
    name text)`;
});

const run = (database: Database, purpose: Purpose, work: (sql: Sql) => Promise<void>) =>
  purpose === 'transaction' ? database.transaction(work) : database[purpose](work);

const openOf = async (name: string) =>
  (await file.sql`select from pg_stat_activity where application_name = ${`gatehouse-${name}`}`)
    .length;

test('changes of the schema have a connection without a time limit, closed afterwards', async (t) => {
  const database = openConnections(t, file.url, 'upkeep');
  const statement = `select current_setting('statement_timeout') as statement,
    current_setting('synchronous_commit') as commit`;
  const [found] = await database.maintain((sql) => sql.unsafe(statement));
  assert.deepEqual({ ...found }, { statement: '0', commit: 'on' });
  await untilSql(async () => (await openOf('upkeep')) === 0, 'it is closed');
});

const STRANGERS = {
  PGMAX: '3',
  PGAPPNAME: 'stranger',
  PGPASSWORD: password,
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

test('PG… variables of the environment do not leak into the connections', async (t) => {
  const { env } = process;
  t.after(() => {
    process.env = env;
  });
  process.env = { ...env, ...STRANGERS };
  const database = openConnections(t, file.url, 'clean');
  const statement = `select current_setting('application_name') as name,
    current_database() as database`;
  for (const purpose of PURPOSES) {
    const found = await ask(database, purpose, statement);
    assert.deepEqual(found, { name: 'gatehouse-clean', database: NAME }, purpose);
  }
  const url = file.url.replace(`:${password}@`, '@');
  await assert.rejects(ask(openConnections(t, url, 'clean'), 'read', 'select 1'), Unavailable);
});

/** A call is rejected at once, or waits for as long as the others stay. */
const isRejected = (work: Promise<unknown>) =>
  Promise.race([
    work.then(
      () => false,
      (error: unknown) => error instanceof Overloaded || Promise.reject(error),
    ),
    new Promise<boolean>((resolve) => setImmediate(() => resolve(false))),
  ]);

/** Work that keeps its connection until all of it is let go. */
function hold(t: TestContext) {
  const { opened, open } = latch();
  t.after(async () => open()); // or the connections could not be closed
  return { release: open, work: async () => opened };
}

/** How long a call waits for a connection. */
const MAX_WAIT_MS = 10_000;
const SIZES = { read: 2, write: 3, list: 1, claim: 1, readiness: 1, transaction: 3 };

for (const purpose of PURPOSES) {
  const size = SIZES[purpose];
  test(`${purpose}: ${size} run at once, 1,024 wait, the next is rejected, and no other purpose is delayed`, async (t) => {
    const database = openConnections(t, file.url, 'full', PATIENT);
    holdTimers(t, MAX_WAIT_MS);
    const { release, work } = hold(t);
    let running = 0;
    const start = () =>
      run(database, purpose, async () => {
        running += 1;
        await work();
      });
    const inside = Array.from({ length: 1_024 + size }, start);
    assert.equal(await isRejected(start()), true);
    await untilSql(async () => running === size, 'as many run as there are connections');
    const isWrite = (one: Purpose) => one === 'write' || one === 'transaction';
    for (const other of PURPOSES)
      if (other !== purpose && !(isWrite(purpose) && isWrite(other)))
        await ask(database, other, 'select 1');
    assert.equal(running, size);
    release();
    await Promise.all(inside);
  });
}

test('under any load at most nine connections, one of them for all that wait for locks', async (t) => {
  const database = openConnections(t, file.url, 'counted', PATIENT);
  const holder = connect(file.url);
  t.after(() => holder.end({ timeout: 0 }));
  await holder`begin`;
  await holder`lock table things`;
  const waiting = [1, 2].map(() => ask(database, 'write', 'select 1 from things limit 0'));
  await untilLocked(file.sql, 1);
  const { release, work } = hold(t);
  let running = 0;
  const inside = PURPOSES.flatMap((purpose) =>
    Array.from({ length: 4 }, () =>
      run(database, purpose, async () => {
        running += 1;
        await work();
      }),
    ),
  );
  await untilSql(async () => running === 8 && (await openOf('counted')) === 9, 'all are open');
  await untilLocked(file.sql, 1);
  assert.equal(await openOf('counted'), 9);
  release();
  await holder`rollback`;
  await Promise.all([...inside, ...waiting]);
});

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
  assert.equal(await isRejected(late), false);
  assert.equal(endWaits(), 1);
  await assert.rejects(late, Overloaded);
  release();
  await inside;
  assert.deepEqual(await ask(database, 'list', 'select 1 as one'), { one: 1 });
  assert.equal(isDone, false);
});

/** Whatever of an error could end up in a log: enumerable or not, the causes included. */
function assertSilent(error: Error) {
  const seen: string[] = [];
  for (let one: unknown = error; one instanceof Error; one = one.cause) {
    for (const name of Object.getOwnPropertyNames(one).filter((property) => property !== 'stack'))
      seen.push(`${name}=${String(Reflect.get(one, name))}`);
    seen.push((one.stack ?? '').split('\n    at ')[0] ?? '');
  }
  assert.doesNotMatch(seen.join('\n'), /marked|7171|things [^"]|select|insert/);
}

const REJECTED = [
  [
    'select marked from things',
    '42703: the schema is of another version; run "gatehouse migrate", and if that does not help, see "Upgrade" in docs/deploy.md',
  ],
  [`insert into things values ('marked-value')`, '22P02'],
  [`insert into things values (-1, 'marked')`, '23514'],
] as const;

for (const purpose of PURPOSES) {
  test(`${purpose}: a rejected statement is reported by its code, without its text and values`, async (t) => {
    const database = openConnections(t, file.url, 'rejected');
    const errorOf = (statement: string) =>
      ask(database, purpose, statement).then(
        () => null,
        (error: unknown) => error,
      );
    for (const [statement, code] of REJECTED) {
      const error = await errorOf(statement);
      assert.ok(error instanceof Unavailable && !error.isTemporary);
      assert.equal(error.message, `the database returned an error (SQLSTATE ${code})`);
      assertSilent(error);
    }
    await file.sql`insert into things values (7171) on conflict do nothing`;
    const duplicate = await errorOf(`insert into things values (7171, 'marked')`);
    assert.ok(duplicate instanceof Duplicate && duplicate.constraint === 'things_id_unique');
    assertSilent(duplicate);
    const own = new RangeError('of the caller');
    const throwing = run(database, purpose, () => Promise.reject(own));
    await assert.rejects(throwing, (error) => error === own);
  });
}

test('a transaction that throws is rolled back, and its connection works on', async (t) => {
  const database = openConnections(t, file.url, 'throws');
  const thrown = database.transaction(async (sql) => {
    await sql`insert into things values (91_919)`;
    throw new RangeError('on purpose');
  });
  await assert.rejects(thrown, RangeError);
  const find = 'select count(*)::int as rows from things where id = 91_919';
  assert.deepEqual(await ask(database, 'transaction', find), { rows: 0 });
});

test('a transaction whose failed statement was ignored is an error: none of it was committed', async (t) => {
  const database = openConnections(t, file.url, 'ignores');
  const ignoring = database.transaction(async (sql) => {
    await sql`insert into things values (93_939)`;
    await sql`insert into things values (0)`.catch(() => {});
  });
  await assert.rejects(ignoring, new Unavailable('the transaction was rolled back'));
  const find = 'select count(*)::int as rows from things where id = 93_939';
  assert.deepEqual(await ask(database, 'transaction', find), { rows: 0 });
});

test('the type of a transaction refuses a Failure, because what returns is committed', async (t) => {
  const database = openConnections(t, file.url, 'typed');
  await database.transaction(async () => ({ id: 1 }));
  // @ts-expect-error: it must be thrown, or returned after the transaction
  await database.transaction(async () => new Failure('conflict'));
  // @ts-expect-error: also if it is one of several outcomes
  await database.transaction(async (sql) => {
    const { count } = await sql`select from things where id = 82_828`;
    return count === 1 ? null : new Failure('not_found');
  });
});

test('an IPv6 address works as a host', async (t) => {
  const relay = await listenOn(t, createRelay(Number(port)), '::1');
  // In full: a client that cuts an address at its first colon would reach the short form, too.
  const url = file.url.replace(/@.*\//, `@[0:0:0:0:0:0:0:1]:${relay}/`);
  const database = openConnections(t, `${url}?sslmode=disable`, 'six');
  assert.deepEqual(await ask(database, 'read', 'select 1 as one'), { one: 1 });
});

test('a call after a connection that the server rejected opens a new one', async (t) => {
  const own = await createDatabase(t);
  const database = openConnections(t, own.url, 'rejected');
  const name = file.sql(new URL(own.url).pathname.slice(1));
  await file.sql`alter database ${name} with allow_connections false`;
  // A call on the rejected connection would fail as "reconnected", and hide the server's reason.
  for (let call = 0; call < 3; call += 1)
    await assert.rejects(ask(database, 'list', 'select 1'), /SQLSTATE 55000/);
  await file.sql`alter database ${name} with allow_connections true`;
  await ask(database, 'list', 'select 1');
});
