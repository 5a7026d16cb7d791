/**
 * `kill -9` of the process between the commit of a read and its reply. Counted over all replies
 * before and after: a read may be lost, but none is returned twice. `test/e2e/faults` kills
 * PostgreSQL, and tests that no acknowledged secret is lost.
 */
import assert from 'node:assert/strict';
import { randomInt, randomUUID } from 'node:crypto';
import type { Sql } from 'postgres';
import { createDatabase } from '../../support/database.ts';
import { startGatehouse, variables } from '../../support/gatehouse.ts';
import { startProxy } from '../../support/proxy.ts';
import { untilSql } from '../../support/connections.ts';
import { buildProgram, startProgram } from '../../support/process.ts';
import { type SecretsClient, secretsClient } from '../../support/secrets.ts';
import { test } from '../../support/until.ts';

async function keepMany(client: SecretsClient, count: number) {
  const texts = Array.from({ length: count }, () => randomUUID());
  return Promise.all(
    texts.map(async (text) => ({ text, ...(await client.keep(text, { max_reads: 1 })) })),
  );
}
type Kept = Awaited<ReturnType<typeof keepMany>>[number];

/** How often each secret was returned, by any process, before or after a kill. */
const served = new Map<string, number>();

/** Opens a secret; a process that is killed meanwhile sends no reply. */
async function read(client: SecretsClient, { id, secret, text }: Kept) {
  const answer = await client.decrypt(id, secret).catch(() => null);
  if (answer?.status === 200) {
    assert.equal(answer.json.password, text);
    served.set(id, (served.get(id) ?? 0) + 1);
  } else assert.ok(!answer?.text.includes(text));
  return answer;
}

const usedUp = async (sql: Sql, kept: readonly Kept[]) => {
  const ids = kept.map(({ id }) => id);
  return (await sql`select from secrets.secrets where id in ${sql(ids)} and ending = 'read'`)
    .length;
};

const ROUNDS = 12;

test(`process killed between commit and reply: no read is returned twice, ${ROUNDS} times`, async (t) => {
  const database = await createDatabase(t);
  const survivor = secretsClient((await startGatehouse(t, ['secrets'], database.url)).url.secrets);
  const startNext = async () => {
    const proxy = await startProxy(t, database.url);
    const running = startProgram(t, buildProgram(), ['serve', 'secrets'], variables(proxy.url));
    await running.ready('secrets');
    const client = secretsClient(await running.url('secrets'));
    // Its statements are prepared, as in a process that has run for a while.
    for (const one of await keepMany(survivor, 2))
      assert.equal((await read(client, one))?.status, 200);
    return { ...running, client, proxy };
  };
  let killable = await startNext();
  for (let round = 0; round < ROUNDS; round += 1) {
    const kept = await keepMany(survivor, 12);
    const answered = randomInt(0, 6);
    await Promise.all(kept.slice(kept.length - answered).map((one) => read(killable.client, one)));
    const held = killable.proxy.drop();
    const readers = [killable, killable].flatMap(({ client }) =>
      kept.slice(0, kept.length - answered).map((one) => read(client, one)),
    );
    await held;
    // A replica that is not killed gets requests too, while replies are in transit.
    readers.push(...kept.slice(0, 3).map((one) => read(survivor, one)));
    await untilSql(
      async () => (await usedUp(database.sql, kept)) >= answered + 3,
      'more reads are committed than were answered',
    );
    killable.signal('SIGKILL');
    await killable.ended;
    await Promise.all(readers);

    killable = await startNext();
    for (const client of [killable.client, survivor])
      await Promise.all(kept.map((one) => read(client, one)));
    const twice = [...served].filter(([, times]) => times > 1);
    assert.deepEqual(twice, []);
    assert.equal(
      await usedUp(database.sql, kept),
      kept.length,
      'whatever was not read before was read afterwards',
    );
    assert.ok(
      kept.some(({ id }) => !served.has(id)),
      'no answer was kept back',
    );
  }
});
