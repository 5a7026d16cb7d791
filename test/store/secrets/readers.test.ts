/**
 * Many concurrent readers with the correct key on two replicas: as many succeed as there are reads.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createDatabase } from '../../support/database.ts';
import { AUTH_TOKEN, startGatehouse } from '../../support/gatehouse.ts';
import { rounds } from '../../support/rounds.ts';
import { secretsClient } from '../../support/secrets.ts';
import { connectTo, headOf } from '../../support/socket.ts';

const READERS = 16;

const database = await createDatabase();
const replicas = await Promise.all(
  [1, 2].map(() => startGatehouse({ after }, ['secrets'], database.url)),
);
const clients = replicas.map(({ url }) => secretsClient(url.secrets));
const clientOf = (turn: number) =>
  clients[turn % clients.length] ?? assert.fail('there is a replica for every turn');

// A connection for each, so that none waits in a client's queue.
const readers = await Promise.all(
  Array.from({ length: READERS }, (_, reader) =>
    connectTo(replicas[reader % 2]?.url.secrets ?? ''),
  ),
);
after(() => readers.forEach((reader) => reader.leave()));

/**
 * Sends all requests at once, on both replicas.
 * @returns how many got the text; all others must get the same 404
 */
async function race(id: string, secret: string, text: string): Promise<number> {
  const body = JSON.stringify({ secret });
  const head = headOf([
    `POST /api/store/decrypt?id=${id} HTTP/1.1`,
    'Host: gatehouse.test',
    'X-Request-Id: test',
    `Authorization: Bearer ${AUTH_TOKEN}`,
    `Content-Length: ${body.length}`,
  ]);
  for (const reader of readers) reader.send(head + body);
  const answers = await Promise.all(readers.map((reader) => reader.answer()));
  const lost = answers.filter(({ status }) => status !== 200);
  assert.deepEqual(
    new Set(lost.map((answer) => answer.status)),
    new Set(lost.length > 0 ? [404] : []),
  );
  assert.ok(
    new Set(lost.map((answer) => answer.body)).size <= 1,
    'all failures get the same reply',
  );
  assert.ok(lost.every((answer) => !answer.body.includes(text)));
  for (const { status, json } of answers)
    if (status === 200) assert.deepEqual(json, { password: text });
  return READERS - lost.length;
}

async function assertReceipt(turn: number, id: string, wins: number): Promise<void> {
  const { status, json } = await clientOf(turn).receipt(id);
  assert.equal(status, 200);
  assert.deepEqual(
    [json.status, json.max_reads, json.reads, json.failed_reads],
    ['read', wins, wins, READERS - wins],
  );
  assert.ok(json.last_read_at >= json.created_at, `${json.last_read_at} after ${json.created_at}`);
}

for (const [reads, few, many] of [
  [1, 40, 400],
  [2, 5, 10],
  [3, 10, 60],
  [15, 5, 10],
] as const) {
  test(`${READERS} concurrent readers, max_reads ${reads}: exactly ${reads} succeed`, async () => {
    const count = rounds(few, many);
    for (let round = 0; round < count; round += 1) {
      const text = `marked-text-${round}`;
      const { id, secret } = await clientOf(round).keep(text, { max_reads: reads });
      assert.equal(await race(id, secret, text), reads, `round ${round}`);
      // From the other replica, in turns.
      await assertReceipt(round + 1, id, reads);
    }
    const { stored, parts } =
      (
        await database.sql`
      select count(*)::int as stored, (count(blob) + count(tag))::int as parts from secrets.secrets
        where max_reads = ${reads}`
      )[0] ?? {};
    assert.deepEqual({ stored, parts }, { stored: count, parts: 0 }, 'no content is left');
  });
}

test(`${READERS} concurrent readers without max_reads: all succeed, and the receipt counts them`, async () => {
  const { id, secret } = await clientOf(0).keep('marked-text', {});
  for (let round = 0; round < 10; round += 1)
    assert.equal(await race(id, secret, 'marked-text'), READERS);
  const { json } = await clientOf(1).receipt(id);
  assert.deepEqual(
    [json.status, json.max_reads, json.reads, json.failed_reads],
    ['stored', null, 10 * READERS, 0],
  );
});
