/** Connections that die: callers get their true outcome, the next call works, and the process lives on. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { before, test, type TestContext } from 'node:test';
import type { Database } from '../../src/db/pool.ts';
import { Unavailable } from '../../src/runtime/errors.ts';
import { createDatabase } from '../support/database.ts';
import { ask, kill, LANES, type LaneName, openLanes, runningPid, untilSql } from '../support/lanes.ts';
import { startRelay } from '../support/relay.ts';
import { startTunnel } from '../support/tunnel.ts';

const file = await createDatabase();

before(async () => {
  await file.sql`create table marks (mark text)`;
  await file.sql`create sequence tries`;
});

const marks = async (): Promise<unknown[]> => (await file.sql`select mark from marks order by mark`).map(({ mark }) => mark);
const failure = (work: Promise<unknown>): Promise<unknown> => work.then(() => 'it worked', (error: unknown) => error);

function assertPassing(error: unknown): void {
  assert.ok(error instanceof Unavailable, String(error));
  assert.equal(error.isTemporary, true, error.message);
  // Said at once, since the other side has refused or closed; never only after a wait that was for nothing.
  assert.doesNotMatch(error.message, /CONNECT_TIMEOUT/);
}

const pidOf = async (database: Database, lane: LaneName): Promise<number> => Number((await ask(database, lane, 'select pg_backend_pid() as pid')).pid);

for (const lane of LANES) {
  test(`a ${lane} whose connection dies under its statement gets Unavailable, and the next one works`, async (t) => {
    const database = openLanes(t, file.url, 'dies');
    const hanging = failure(ask(database, lane, `select pg_sleep(30) as "${lane} that dies"`));
    await kill(file, await runningPid(file, `${lane} that dies`));
    assertPassing(await hanging);
    for (let call = 1; call <= 3; call += 1) assert.deepEqual(await ask(database, lane, `select ${call} as call`), { call });
  });

  test(`everybody who waits in the ${lane} lane for a connection that dies is answered`, async (t) => {
    const database = openLanes(t, file.url, 'crowd');
    const waiting = Array.from({ length: 20 }, (_, index) => failure(ask(database, lane, `select pg_sleep(30) as "${lane} crowd ${index}"`)));
    const answered = Promise.all(waiting);
    let open = true;
    void answered.then(() => (open = false));
    // In the transaction lanes each waiter gets a connection of its own, so there is one more to kill until all have left.
    while (open) {
      await file.sql`select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'gatehouse-crowd' and state = 'active'`;
    }
    for (const outcome of await answered) assertPassing(outcome);
    assert.deepEqual(await ask(database, lane, 'select 1 as one'), { one: 1 });
  });

  test(`a ${lane} after its connection died in idleness works at the latest the second time`, async (t) => {
    const database = openLanes(t, file.url, 'idle');
    await kill(file, await pidOf(database, lane));
    // The news may still be under way: who sends into a dead connection gets Unavailable, once.
    for (let tries = 0; tries < 2; tries += 1) {
      const outcome = await failure(ask(database, lane, 'select 1 as one'));
      if (outcome !== 'it worked') assertPassing(outcome);
    }
    for (let call = 1; call <= 2; call += 1) assert.deepEqual(await ask(database, lane, 'select 1 as one'), { one: 1 });
  });
}

/** A transaction that is killed between two statements, and its other half, which runs when it is let. */
function killedHalfway(database: Database) {
  let goOn = () => {};
  const gate = new Promise<void>((resolve) => (goOn = resolve));
  let over = () => {};
  const ended = new Promise<void>((resolve) => (over = resolve));
  const outcome = failure(
    database.transaction(async (sql) => {
      const [row] = await sql<Array<{ pid: number }>>`select pg_backend_pid() as pid`;
      await sql`insert into marks values ('before the death')`;
      await kill(file, row?.pid ?? 0);
      await gate;
      try {
        await sql`insert into marks values ('after the death')`;
      } finally {
        over();
      }
    }),
  );
  return { outcome, goOn, ended };
}

test('a transaction whose connection dies between two statements stores nothing, whatever it still tries', async (t) => {
  const database = openLanes(t, file.url, 'halfway');
  const { outcome, goOn } = killedHalfway(database);
  goOn();
  // An exception that nobody catches would end this process here, as it would end the services.
  assertPassing(await outcome);
  assert.deepEqual(await marks(), []);
});

test('what is left of a dead transaction never gets into another one', async (t) => {
  const database = openLanes(t, file.url, 'ghost');
  const { outcome, goOn, ended } = killedHalfway(database);
  // One beside the dead one, and one after it, in its place.
  const others = ['one', 'other'].map((name) =>
    database.transaction(async (sql) => {
      await sql`insert into marks values (${name})`;
      goOn();
      await ended;
      await sql`select`;
    }),
  );
  assertPassing(await outcome);
  await Promise.all(others);
  assert.deepEqual(await marks(), ['one', 'other']);
  await file.sql`delete from marks`;
});

test('a transaction that throws takes back what it did, and its lane is good as new', async (t) => {
  const database = openLanes(t, file.url, 'throws');
  for (let round = 0; round < 3; round += 1) {
    const thrown = database.transaction(async (sql) => {
      await sql`insert into marks values ('taken back')`;
      throw new RangeError('on purpose');
    });
    await assert.rejects(thrown, RangeError);
  }
  assert.deepEqual(await marks(), []);
  assert.deepEqual(await ask(database, 'transaction', 'select 1 as one'), { one: 1 });
});

test('a database that is away is Unavailable at once for everybody, and works without a restart when it is back', async (t) => {
  const relay = await startRelay(t, file.url);
  const database = openLanes(t, relay.url, 'away');
  for (const lane of LANES) assert.deepEqual(await ask(database, lane, 'select 1 as one'), { one: 1 });
  relay.cut();
  for (const lane of LANES) {
    const outcomes = await Promise.all(Array.from({ length: 20 }, () => failure(ask(database, lane, 'select 1 as one'))));
    outcomes.forEach(assertPassing);
  }
  relay.mend();
  for (const lane of LANES) {
    // The relay's cut may reach a lane only with the next statement.
    await failure(ask(database, lane, 'select 1 as one'));
    assert.deepEqual(await ask(database, lane, 'select 1 as one'), { one: 1 }, lane);
  }
});

test('where connections are closed before a word is said, callers are told at once, and nobody dials on and on', async (t) => {
  let dials = 0;
  const nobody = createServer((socket) => {
    dials += 1;
    socket.destroy();
  });
  t.after(async () => void nobody.close());
  nobody.listen(0, '127.0.0.1');
  await once(nobody, 'listening');
  const bound = nobody.address();
  const url = new URL(file.url);
  url.port = String(typeof bound === 'object' ? bound?.port : '');
  const database = openLanes(t, url.href, 'nobody');
  const calls = Promise.all(LANES.map((lane) => failure(ask(database, lane, 'select 1'))));
  let outcomes: readonly unknown[] | undefined;
  void calls.then((all) => (outcomes = all));
  await untilSql(async () => outcomes !== undefined || dials > 100, 'callers were told');
  assert.ok(dials <= LANES.length, `dialled ${dials} times`);
  (await calls).forEach(assertPassing);
});

/** Lanes whose clock and regular look at it are in the hands of the test, so that nobody has to wait. */
function openWithClock(t: TestContext, url: string) {
  const looks: Array<() => void> = [];
  const interval = t.mock.method(globalThis, 'setInterval', (look: () => void) => {
    looks.push(look);
    return setTimeout(() => {}, 0);
  });
  const database = openLanes(t, url, 'silent');
  interval.mock.restore();
  const real = performance.now.bind(performance);
  let moved = 0;
  t.mock.method(performance, 'now', () => real() + moved);
  const pass = (milliseconds: number) => {
    moved += milliseconds;
    for (const look of looks) look();
  };
  return { database, pass };
}

test('a connection on which nothing comes back any more is given up after 15 seconds and replaced, in every lane', async (t) => {
  const tunnel = await startTunnel(t, file.url);
  const { database, pass } = openWithClock(t, tunnel.url);
  // Two transactions at once: each of their lanes has its connection, and later a third transaction waits for one.
  const first = [...LANES, 'transaction'] as const;
  await Promise.all(first.map((lane) => ask(database, lane, 'select pg_sleep(0.05)')));
  tunnel.swallow();
  const outcomes: unknown[] = [];
  const calls = [...first, ...LANES].map((lane, index) => failure(ask(database, lane, `select ${index} as call`)).then((outcome) => (outcomes[index] = outcome)));
  // New connections pass, as they would after a router forgot the old ones.
  tunnel.passNew();
  pass(14_000);
  // Time enough for answers, if any could come.
  await new Promise((resolve) => setTimeout(resolve, 200));
  assert.deepEqual(outcomes, [], 'given up too early');
  pass(1_001);
  await untilSql(async () => Object.keys(outcomes).length === calls.length, 'everybody was answered');
  outcomes.slice(0, first.length).forEach(assertPassing);
  for (const outcome of outcomes.slice(first.length)) if (outcome !== 'it worked') assertPassing(outcome);
  for (const lane of first) assert.deepEqual(await ask(database, lane, 'select 1 as one'), { one: 1 }, lane);
});

const tryAgain: ReadonlyArray<readonly [what: string, sqlstate: string, failures: number, tries: number, works: boolean]> = [
  ['a serialisation failure', '40001', 2, 3, true],
  ['a deadlock', '40P01', 2, 3, true],
  ['a serialisation failure that lasts', '40001', 1_000, 5, false],
  ['anything else', '22000', 1, 1, false],
];

for (const lane of ['write', 'transaction'] as const) {
  for (const [what, sqlstate, failures, tries, works] of tryAgain) {
    test(`after ${what}, a ${lane} is tried ${tries} time${tries === 1 ? '' : 's'}`, async (t) => {
      const database = openLanes(t, file.url, 'again');
      await file.sql`select setval('tries', 1, false)`;
      const statement = `do $$ begin
        if nextval('tries') <= ${failures} then raise exception 'marked' using errcode = '${sqlstate}'; end if;
        insert into marks values ('tried');
      end $$`;
      const outcome = await failure(ask(database, lane, statement));
      if (works) assert.equal(outcome, 'it worked');
      else assert.ok(outcome instanceof Unavailable && outcome.message.includes(sqlstate), String(outcome));
      const [row] = await file.sql`select last_value from tries`;
      assert.equal(Number(row?.last_value), tries);
      assert.deepEqual(await marks(), works ? ['tried'] : []);
      await file.sql`delete from marks`;
    });
  }
}

test('a connection that has become read-only, as after a failover, is given up, and the next write works', async (t) => {
  const database = openLanes(t, file.url, 'failover');
  await database.write((sql) => sql`set session characteristics as transaction read only`);
  assertPassing(await failure(database.write((sql) => sql`insert into marks values ('read-only')`)));
  await database.write((sql) => sql`insert into marks values ('writable')`);
  await file.sql`delete from marks where mark = 'writable'`;
});
