/**
 * Connections that fail before `postgres` listens are Unavailable, and the process does not end.
 */
import assert from 'node:assert/strict';
import { Socket } from 'node:net';
import { ask, variables, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { ask as askDatabase, openConnections, untilSql } from '../../support/connections.ts';
import { dial } from '../../../src/platform/db/dial.ts';
import { Unavailable } from '../../../src/platform/runtime/errors.ts';
import { stopClock } from '../../support/clock.ts';
import { createDatabase } from '../../support/database.ts';
import { buildProgram, startProgram } from '../../support/process.ts';
import { startProxy } from '../../support/proxy.ts';
import { connectTo, headOf } from '../../support/socket.ts';
import { test, until } from '../../support/until.ts';

test('an address that the system does not connect to is Unavailable', async (t) => {
  // The broadcast address: ENETUNREACH or EACCES, as where the route to the database has gone.
  const database = openConnections(t, 'postgres://u:p@255.255.255.255:5432/x', 'dial');
  for (const _turn of [1, 2])
    await assert.rejects(askDatabase(database, 'read', 'select 1'), Unavailable);
});

for (const why of ['the time is over', 'nobody waits'] as const) {
  test(`an address without an answer is tried eight times at once, until ${why}`, async (t) => {
    let isClosed = false;
    const pass = stopClock(t);
    // None of them connects or fails.
    const { mock } = t.mock.method(Socket.prototype, 'connect', () => {});
    t.mock.timers.enable({ apis: ['setInterval'] });
    const areOpen = () => mock.calls.map(({ this: socket }) => !Object(socket).destroyed);
    const host = { name: 'gone.example', port: 5432 };
    const failed = assert.rejects(
      dial([host], 5, () => isClosed),
      { code: 'CONNECT_TIMEOUT' },
    );
    for (let next = 1; next < 10; next += 1) t.mock.timers.tick(500);
    assert.deepEqual(areOpen(), [false, false, ...new Array(8).fill(true)]);
    if (why === 'nobody waits') isClosed = true;
    else pass(5);
    t.mock.timers.tick(500);
    await failed;
    assert.deepEqual(areOpen(), new Array(10).fill(false));
  });
}

const FILES = 200;

test('without a free file descriptor requests get 503, and 200 when there is one again', async (t) => {
  const { url } = await createDatabase(t);
  const proxy = await startProxy(t, url);
  const running = startProgram(t, buildProgram(), ['serve', 'webhook'], variables(proxy.url), {
    files: FILES,
  });
  await running.ready('webhook');
  const address = await running.url('webhook');
  const sender = await connectTo(address);
  const crowd = [sender];
  const leave = () => crowd.splice(0).forEach((one) => one.leave());
  t.after(leave);
  const useUpFiles = async (count: number) => {
    let turnedAway = 0;
    const more = await Promise.all(Array.from({ length: count }, () => connectTo(address)));
    crowd.push(...more);
    for (const one of more)
      void one.closed().then(() => {
        turnedAway += 1;
      });
    await until(() => turnedAway > 0, 'no file is left');
  };
  await useUpFiles(FILES + 50);
  const event = JSON.stringify({ event: 'e', data: { page_id: 'p' } });
  const head = headOf([
    'POST /webhook HTTP/1.1',
    'Host: x',
    `Authorization: Bearer ${WEBHOOK_TOKEN}`,
    'Content-Type: application/json',
    `Content-Length: ${event.length}`,
  ]);
  // It may have connected again before the files of the connections that were cut are used up.
  await untilSql(async () => {
    await proxy.cut();
    await proxy.restore();
    await useUpFiles(20);
    sender.send(head, event);
    return (await sender.answer()).status === 503;
  }, 'an event is refused');
  leave();
  const isAccepted = () =>
    ask('POST', `${address}/webhook`, { bearer: WEBHOOK_TOKEN, body: event }).then(
      ({ status }) => status === 200,
      () => false,
    );
  await untilSql(isAccepted, 'events are accepted again');
  running.signal('SIGTERM');
  assert.deepEqual(await running.ended, { code: 0, signal: null });
});
