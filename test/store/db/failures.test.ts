/**
 * Connections that die: calls get their true outcome, the next call works, and the process does not
 * end.
 */
import assert from 'node:assert/strict';
import { Socket } from 'node:net';
import { after, before, test, type TestContext } from 'node:test';
import { setImmediate as endOfTurn } from 'node:timers/promises';
import type { Database } from '../../../src/platform/db/pool.ts';
import { Unavailable } from '../../../src/platform/runtime/errors.ts';
import { holdTimers } from '../../support/clock.ts';
import { createDatabase } from '../../support/database.ts';
import {
  ask,
  kill,
  PATIENT,
  PURPOSES,
  type Purpose,
  openConnections,
  untilSql,
} from '../../support/connections.ts';
import { createWaits, holdStatements } from '../../support/hold.ts';
import { startProxy } from '../../support/proxy.ts';
import { latch, until } from '../../support/until.ts';
import { listenOnTcp } from '../../support/socket.ts';

const file = await createDatabase();
await createWaits(file.sql);
// What waits for 1 waits for ever.
await holdStatements({ after }, file.url, 1);

before(async () => {
  await file.sql`create table marks (mark text)`;
  await file.sql`create sequence tries`;
});

const marks = async () =>
  (await file.sql`select mark from marks order by mark`).map(({ mark }) => mark);
const failure = (work: Promise<unknown>) =>
  work.then(
    () => null,
    (error: unknown) => error,
  );

function assertPassing(error: unknown) {
  assert.ok(error instanceof Unavailable, String(error));
  assert.equal(error.isTemporary, true, error.message);
  // Said at once, since the other side has refused or closed; never only after a wait that was for
  // nothing.
  assert.doesNotMatch(error.message, /CONNECT_TIMEOUT/);
}

const pidOf = async (database: Database, purpose: Purpose) =>
  Number((await ask(database, purpose, 'select pg_backend_pid() as pid')).pid);

for (const purpose of PURPOSES) {
  test(`${purpose}: calls on connections that die fail, those that wait too; the next one works`, async (t) => {
    const database = openConnections(t, file.url, 'crowd');
    let isOver = false;
    const calls = Array.from({ length: 8 }, () =>
      failure(ask(database, purpose, 'select wait_for(1)')),
    );
    const outcomes = Promise.all(calls).finally(() => {
      isOver = true;
    });
    while (!isOver)
      await file.sql`
        select pg_terminate_backend(pid) from pg_stat_activity
        where application_name = 'gatehouse-crowd' and state = 'active'`;
    (await outcomes).forEach(assertPassing);
    assert.deepEqual(await ask(database, purpose, 'select 1 as one'), { one: 1 });
  });

  test(`${purpose}: after an idle connection died, the second call works at the latest`, async (t) => {
    const database = openConnections(t, file.url, 'idle');
    await kill(file, await pidOf(database, purpose));
    // The news may still be under way: who sends into a dead connection gets Unavailable, once.
    const outcome = await failure(ask(database, purpose, 'select 1'));
    if (outcome !== null) assertPassing(outcome);
    assert.deepEqual(await ask(database, purpose, 'select 1 as one'), { one: 1 });
  });
}

test('a transaction whose connection dies halfway stores nothing, and its rest gets into no other', async (t) => {
  const database = openConnections(t, file.url, 'ghost');
  const { opened: gate, open: goOn } = latch();
  const { opened: ended, open: over } = latch();
  // An exception that nobody catches would end this process, as it would end the services.
  const outcome = failure(
    database.transaction(async (sql) => {
      const [row] = await sql<Array<{ pid: number }>>`select pg_backend_pid() as pid`;
      await sql`insert into marks values ('before the death')`;
      await kill(file, row?.pid ?? 0);
      await gate;
      await sql`insert into marks values ('after the death')`.finally(over);
    }),
  );
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

test('if connections are closed at once, calls fail at once, and each connects once', async (t) => {
  let dials = 0;
  const port = await listenOnTcp(t, (socket) => {
    dials += 1;
    socket.destroy();
  });
  const database = openConnections(t, `postgres://u@127.0.0.1:${port}/d`, 'nobody');
  const calls = PURPOSES.map((purpose) => failure(ask(database, purpose, 'select 1')));
  (await Promise.all(calls)).forEach(assertPassing);
  assert.ok(dials <= PURPOSES.length, `dialled ${dials} times`);
});

/** The least: a statement may take a second, and its answer another one. */
const IMPATIENT = { DATABASE_STATEMENT_TIMEOUT: '1', DATABASE_DEAD_AFTER: '2' };

/** @param see is called with each connection from now on */
function watchConnections(t: TestContext, see: (socket: Socket) => void) {
  const { connect } = Socket.prototype;
  t.mock.method(Socket.prototype, 'connect', function watched(this: Socket, ...to: [never]) {
    see(this);
    return connect.apply(this, to);
  });
}

/** @returns a list that gets each connection from now on as often as it was idle for a second */
function watchTimeouts(t: TestContext) {
  const timeouts: Socket[] = [];
  watchConnections(t, (socket) => socket.on('timeout', () => timeouts.push(socket)));
  return timeouts;
}

/** How much longer the answer to an overdue statement may take. */
const GRACE_MS = 1_000;

/**
 * A database behind a proxy, with connections whose limit no slow machine reaches.
 * @returns `passLimit` is as if all connections had been silent for as long as they may, and says
 * of how many more an answer was overdue. `waitInVain` stalls them, lets calls wait for that long,
 * and returns what becomes of these.
 */
async function openPatient(t: TestContext, name: string) {
  const proxy = await startProxy(t, file.url);
  const sockets: Socket[] = [];
  watchConnections(t, (socket) => sockets.push(socket));
  const endGrace = holdTimers(t, GRACE_MS);
  const database = openConnections(t, proxy.url, name, PATIENT);
  const limitMs = Number(PATIENT.DATABASE_DEAD_AFTER) * 1_000 - GRACE_MS;
  function passLimit() {
    for (const socket of sockets.filter(({ timeout }) => timeout === limitMs))
      socket.emit('timeout');
    return endGrace();
  }
  async function waitInVain(...purposes: readonly Purpose[]) {
    let pieces = 0;
    proxy.onStatement(() => {
      pieces += 1;
    });
    proxy.stall();
    const outcomes = purposes.map((purpose) => failure(ask(database, purpose, 'select 1')));
    await until(() => pieces >= purposes.length, 'they are sent');
    // New connections pass, as they would after a router forgot the old ones.
    await proxy.restore();
    assert.equal(passLimit(), purposes.length);
    return Promise.all(outcomes);
  }
  return { database, passLimit, waitInVain };
}

for (const isOpen of [true, false]) {
  const what = isOpen ? 'with it, connections that were idle' : 'also from its beginning';
  test(`a silent connection is given up, ${what}`, async (t) => {
    const { database, waitInVain } = await openPatient(t, 'mute');
    if (isOpen) for (const purpose of PURPOSES) await ask(database, purpose, 'select 1');
    const [outcome] = await waitInVain('read');
    assert.ok(outcome instanceof Unavailable);
    for (const purpose of PURPOSES)
      assert.deepEqual(await ask(database, purpose, 'select 1 as one'), { one: 1 }, purpose);
  });
}

test('a connection that was idle for longer than the limit is watched, too', async (t) => {
  const proxy = await startProxy(t, file.url);
  const timeouts = watchTimeouts(t);
  const database = openConnections(t, proxy.url, 'late-silent', IMPATIENT);
  await ask(database, 'readiness', 'select 1');
  await until(() => timeouts.length > 0, 'it was idle for too long');
  proxy.stall();
  const outcome = failure(ask(database, 'readiness', 'select 1'));
  await proxy.restore();
  assertPassing(await outcome);
  assert.deepEqual(await ask(database, 'readiness', 'select 1 as one'), { one: 1 });
});

test('a process that was suspended for longer than the limit keeps its connections', async (t) => {
  const database = openConnections(t, file.url, 'suspended', IMPATIENT);
  const pid = await pidOf(database, 'read');
  const answer = pidOf(database, 'read');
  for (let turn = 0; turn < 3; turn += 1) await endOfTurn(); // it is sent
  // As SIGSTOP does: nothing runs, and the timers expire meanwhile.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 3_000);
  assert.equal(await answer, pid);
  assert.equal(await pidOf(database, 'read'), pid);
});

test('a change of the schema may take longer than the limit', async (t) => {
  const { database, passLimit } = await openPatient(t, 'upkeep');
  const held = await holdStatements(t, file.url, 2);
  const change = database.maintain((sql) => sql`select wait_for(2)`);
  await held.met();
  assert.equal(passLimit(), 0);
  await held.release();
  await change;
});

test('a transaction may take longer than the limit in all', async (t) => {
  const database = openConnections(t, file.url, 'long', IMPATIENT);
  const timeouts = watchTimeouts(t);
  await ask(database, 'readiness', 'select 1');
  await database.transaction((sql) =>
    untilSql(async () => {
      await sql`select 1`;
      return timeouts.length >= 3;
    }, 'the limit is over'),
  );
});

const again = openConnections({ after }, file.url, 'again');

for (const purpose of ['read', 'write', 'list', 'claim', 'transaction'] as const) {
  for (const [what, sqlstate, failures, tries, rows] of [
    ['a serialization failure', '40001', 2, 3, 1],
    ['a deadlock', '40P01', 2, 3, 1],
    ['a lasting serialization failure', '40001', 1_000, 5, 0],
    ['any other failure', '22000', 1, 1, 0],
  ] as const) {
    test(`${purpose}: ${tries} in all if tried again after ${what}`, async () => {
      await file.sql`select setval('tries', 1, false)`;
      const statement = `do $$ begin
        if nextval('tries') <= ${failures} then
          raise exception 'marked' using errcode = '${sqlstate}';
        end if;
        insert into marks values ('tried');
      end $$`;
      const outcome = await failure(ask(again, purpose, statement));
      if (rows === 1) assert.equal(outcome, null);
      else assert.ok(outcome instanceof Unavailable && outcome.message.includes(sqlstate));
      const [row] = await file.sql`select last_value::int from tries`;
      assert.equal(row?.last_value, tries);
      assert.equal((await file.sql`delete from marks`).count, rows);
    });
  }
}

test('a lock timeout that PostgreSQL reports as a cancel is waited for; a cancel is not', async (t) => {
  const database = openConnections(t, file.url, 'canceled');
  const { sql } = file;
  for (const place of ['while locking tuple (16,17)', 'elsewhere'])
    await sql.unsafe(`
      create function "${place}"() returns bigint language plpgsql as $$ begin
        if nextval('tries') % 2 = 1 then
          raise exception 'canceled' using errcode = '57014';
        end if;
        return currval('tries');
      end $$`);
  const call = (purpose: 'read' | 'write' | 'transaction', place: string) =>
    ask(database, purpose, `select "${place}"() as try`);
  for (const purpose of ['write', 'transaction'] as const) {
    await sql`select setval('tries', 2)`;
    assert.deepEqual(await call(purpose, 'while locking tuple (16,17)'), { try: '4' });
    assertPassing(await failure(call(purpose, 'elsewhere')));
  }
  await sql`select setval('tries', 2)`;
  assertPassing(await failure(call('read', 'while locking tuple (16,17)')));
});
