/** A command that cannot be started fails the attempt with its reason. */
import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { createDatabase } from '../../support/database.ts';
import { startGatehouse, variables, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { untilSql } from '../../support/connections.ts';
import { buildProgram, startProgram } from '../../support/process.ts';
import { connectTo, headOf } from '../../support/socket.ts';
import { test, until } from '../../support/until.ts';
import { stateOf, untilStatus, sendEvent } from '../../support/webhook-store.ts';

const directory = mkdtempSync(join(tmpdir(), 'gatehouse-spawn-'));
after(() => rmSync(directory, { recursive: true, force: true }));
const EVENT = JSON.stringify({ event: 'e', data: { page_id: 'p' } });
const COULD_NOT = 'the command could not be run';

test('a missing, then not executable, then working command: two failures, then success', async (t) => {
  const { url, sql } = await createDatabase(t);
  const program = join(directory, 'program');
  writeFileSync(program, '#!/bin/sh\nexit 0\n', { mode: 0o755 });
  const gatehouse = await startGatehouse(t, ['webhook'], url, {
    WEBHOOK_COMMAND: JSON.stringify([program]),
    WEBHOOK_RETRY_SCHEDULE: '1h,1h',
  });
  rmSync(program);
  const post = () => sendEvent(gatehouse.url.webhook);
  const id = await post();
  const failed = (times: number) =>
    untilSql(
      async () => (await stateOf(sql, id)).errors.length === times,
      `it has failed ${times} times`,
    );
  await failed(1);
  writeFileSync(program, '#!/bin/sh\nexit 0\n', { mode: 0o644 });
  await sql`update webhook.work set due_at = now()`;
  await failed(2);
  chmodSync(program, 0o755);
  // The next event uses the repaired program at once, the failed one when it is due.
  const next = await post();
  await untilStatus(sql, next, 'done');
  await sql`update webhook.work set due_at = now()`;
  await untilStatus(sql, id, 'done');
  assert.deepEqual(await stateOf(sql, id), {
    status: 'done',
    attempts: 3,
    errors: [
      `${COULD_NOT}: there is no such program (ENOENT)`,
      `${COULD_NOT}: this user may not run it (EACCES)`,
    ],
  });
  assert.deepEqual(
    gatehouse.log().filter(({ level }) => level === 'error'),
    [],
  );
});

test('a command line that is too long for the system fails each attempt until the event is dead', async (t) => {
  const { url, sql } = await createDatabase(t);
  const gatehouse = await startGatehouse(t, ['webhook'], url, {
    WEBHOOK_COMMAND: JSON.stringify(['/bin/true', 'x'.repeat(4_000_000)]),
    WEBHOOK_RETRY_SCHEDULE: '1ms',
  });
  for (const _turn of [1, 2]) {
    const id = await sendEvent(gatehouse.url.webhook);
    await untilStatus(sql, id, 'dead');
    const { attempts, errors } = await stateOf(sql, id);
    assert.deepEqual([attempts, errors.length], [2, 2]);
    for (const error of errors) assert.match(error, /./);
  }
});

test('without free file descriptors a command fails with EMFILE, and runs once there are some', async (t) => {
  const { url, sql } = await createDatabase(t);
  const FILES = 200;
  const environment = {
    ...variables(url),
    WEBHOOK_COMMAND: '["/bin/true"]',
    // A retry comes when the test makes it due.
    WEBHOOK_RETRY_SCHEDULE: Array(49).fill('1h').join(),
  };
  const program = buildProgram();
  const running = startProgram(t, program, ['serve', 'webhook'], environment, { files: FILES });
  await running.ready('webhook');
  const address = await running.url('webhook');
  // The sender and the database connections exist before the descriptors run out.
  const sender = await connectTo(address);
  t.after(() => sender.leave());
  const post = async () => {
    sender.send(
      headOf([
        'POST /webhook HTTP/1.1',
        'Host: x',
        `Authorization: Bearer ${WEBHOOK_TOKEN}`,
        'Content-Type: application/json',
        `Content-Length: ${EVENT.length}`,
      ]),
      EVENT,
    );
    return sender.answer();
  };
  const first = await post();
  await untilStatus(sql, first.json.id, 'done');
  const crowd = await Promise.all(Array.from({ length: FILES + 50 }, () => connectTo(address)));
  t.after(() => crowd.forEach((one) => one.leave()));
  let turnedAway = 0;
  for (const one of crowd)
    void one.closed().then(() => {
      turnedAway += 1;
    });
  await until(() => turnedAway > 0, 'no file is left');
  const { status, json } = await post();
  assert.equal(status, 200);
  await untilSql(
    async () => (await stateOf(sql, json.id)).errors.length > 0,
    'an attempt has failed',
  );
  for (const one of crowd) one.leave();
  await untilSql(async () => {
    await sql`update webhook.work set due_at = now() where lease is null`;
    return (await stateOf(sql, json.id)).status === 'done';
  }, 'it is delivered');
  const { attempts, errors } = await stateOf(sql, json.id);
  assert.deepEqual([...new Set(errors)], [`${COULD_NOT}: too many files are open (EMFILE)`]);
  assert.equal(attempts, errors.length + 1);
  running.signal('SIGTERM');
  assert.deepEqual(await running.ended, { code: 0, signal: null });
});
