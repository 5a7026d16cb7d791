/**
 * `kill -9` of the process between the commit of a read and its reply. Counted over all replies
 * before and after: a read may be lost, but none is returned twice. `test/e2e/faults` kills
 * PostgreSQL, and tests that no acknowledged secret is lost.
 */
import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import type { Sql } from 'postgres';
import { createDatabase } from '../../support/database.ts';
import { type Answer, startGatehouse, variables } from '../../support/gatehouse.ts';
import { startProxy } from '../../support/proxy.ts';
import { untilSql } from '../../support/connections.ts';
import { buildProgram, startProgram } from '../../support/process.ts';
import { type SecretsClient, secretsClient } from '../../support/secrets.ts';
import { test } from '../../support/until.ts';

interface Kept {
  readonly id: string;
  readonly secret: string;
  readonly text: string;
}

let texts = 0;
async function keepMany(client: SecretsClient, count: number): Promise<Kept[]> {
  return Promise.all(
    Array.from({ length: count }, async () => {
      texts += 1;
      const text = `marked-text-${texts}`;
      const { id, secret } = await client.keep(text, { max_reads: 1 });
      return { id, secret, text };
    }),
  );
}

/** How often each text was returned, by any process, before or after a kill. */
function ledger() {
  const served = new Map<string, number>();
  return {
    twice: () => [...served].filter(([, times]) => times > 1),
    of: ({ id }: Kept) => served.get(id) ?? 0,
    /** Opens a secret; a process that is killed meanwhile sends no reply. */
    async read(client: SecretsClient, { id, secret, text }: Kept): Promise<Answer | null> {
      const answer = await client.decrypt(id, secret).catch(() => null);
      if (answer?.status === 200) {
        assert.equal(answer.json.password, text);
        served.set(id, (served.get(id) ?? 0) + 1);
      } else assert.ok(!answer?.text.includes(text));
      return answer;
    },
  };
}

const usedUp = async (sql: Sql, kept: readonly Kept[]): Promise<number> => {
  const [row] = await sql`
    select count(*)::int as count from secrets.secrets where id in ${sql(kept.map(({ id }) => id))}
    and ending = 'read'`;
  return Number(row?.count);
};

const ROUNDS = 12;

test(`process killed between commit and reply: no read is returned twice, ${ROUNDS} times`, async (t) => {
  const database = await createDatabase(t);
  const survivor = secretsClient((await startGatehouse(t, ['secrets'], database.url)).url.secrets);
  const { read, twice, of } = ledger();
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
  let lost = 0;
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
    assert.deepEqual(twice(), []);
    assert.equal(
      await usedUp(database.sql, kept),
      kept.length,
      'whatever was not read before was read afterwards',
    );
    const lostNow = kept.filter((one) => of(one) === 0).length;
    assert.ok(lostNow > 0, 'no answer was kept back');
    lost += lostNow;
  }
  t.diagnostic(`${lost} of ${12 * ROUNDS} reads were lost, none was given out twice`);
});
