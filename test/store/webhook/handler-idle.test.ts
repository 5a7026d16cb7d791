/** A handler thread that fails after its event affects neither the service nor later events. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { createDatabase } from '../../support/database.ts';
import { ask, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { untilSql } from '../../support/connections.ts';
import { root } from '../../support/process.ts';
import { test, until } from '../../support/until.ts';
import { stateOf } from '../../support/webhook-store.ts';

const directory = mkdtempSync(join(tmpdir(), 'gatehouse-idle-'));
after(() => rmSync(directory, { recursive: true, force: true }));
const told = join(directory, 'told');
const LATER = join(directory, 'later');
writeFileSync(told, '');
const { url, sql } = await createDatabase();
const gatehouse = await startGatehouse({ after }, ['webhook'], url, {
  // One thread, so that the next event uses the same one.
  WEBHOOK_HANDLER: join(root, 'test/support/handler.mjs'),
  TOLD: told,
  LATER,
  WEBHOOK_CONCURRENCY: '1',
  WEBHOOK_RETRY_SCHEDULE: '1ms,2ms,4ms,8ms,16ms,32ms',
});

async function handle(event: string): Promise<string> {
  const { status, json } = await ask('POST', `${gatehouse.url.webhook}/webhook`, {
    bearer: WEBHOOK_TOKEN,
    body: { event, data: { page_id: 'p' } },
  });
  assert.equal(status, 200);
  await untilSql(
    async () => (await stateOf(sql, json.id)).status !== 'waiting',
    `${event} has ended`,
  );
  return (await stateOf(sql, json.id)).status;
}
const lines = () => readFileSync(told, 'utf8').split('\n').length - 1;

for (const event of ['fails later', 'rejects later', 'exits later']) {
  test(`an idle handler thread that ${event} affects neither events nor the service`, async () => {
    const before = lines();
    assert.equal(await handle(event), 'done');
    writeFileSync(LATER, '');
    await until(() => lines() === before + 1, 'it has happened');
    for (const next of ['returns', 'fulfils']) assert.equal(await handle(next), 'done', next);
    assert.equal((await ask('GET', `${gatehouse.url.webhook}/readyz`)).status, 200);
    assert.deepEqual(
      gatehouse.log().filter(({ level }) => level === 'error'),
      [],
    );
  });
}
