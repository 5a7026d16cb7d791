/** Crowds of readers with the right key, at once and over two replicas: as many win as there are reads, and the receipt counts them all. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createDatabase } from '../support/database.ts';
import { AUTH_TOKEN, startGatehouse } from '../support/gatehouse.ts';
import { secretsClient } from '../support/secrets.ts';
import { connectTo, headOf } from '../support/socket.ts';

const READERS = 16;

const database = await createDatabase();
const replicas = await Promise.all([1, 2].map(() => startGatehouse({ after }, ['secrets'], database.url)));
const clients = replicas.map(({ url }) => secretsClient(url.secrets));
const clientOf = (turn: number) => clients[turn % clients.length] ?? assert.fail('there is a replica for every turn');

// Each has a connection of its own, so that nobody waits in a client's queue.
const readers = await Promise.all(Array.from({ length: READERS }, (_, reader) => connectTo(replicas[reader % 2]?.url.secrets ?? '')));
after(() => readers.forEach((reader) => reader.leave()));

/** All of them at once, spread over the replicas. @returns how many got the text; every other answer must be the same 404 */
async function race(id: string, secret: string, text: string): Promise<number> {
  const body = JSON.stringify({ secret });
  const head = headOf([
    `POST /api/store/decrypt?id=${id} HTTP/1.1`, 'Host: gatehouse.test', 'X-Request-Id: test', `Authorization: Bearer ${AUTH_TOKEN}`, `Content-Length: ${body.length}`,
  ]);
  for (const reader of readers) reader.send(head + body);
  const answers = await Promise.all(readers.map((reader) => reader.answer()));
  const lost = answers.filter(({ status }) => status !== 200);
  assert.deepEqual(new Set(lost.map((answer) => answer.status)), new Set(lost.length > 0 ? [404] : []));
  assert.ok(new Set(lost.map((answer) => answer.body)).size <= 1, 'losers learn nothing from their answers');
  assert.ok(lost.every((answer) => !answer.body.includes(text)));
  for (const { status, json } of answers) if (status === 200) assert.deepEqual(json, { password: text });
  return READERS - lost.length;
}

async function assertReceipt(turn: number, id: string, wins: number): Promise<void> {
  const { status, json } = await clientOf(turn).receipt(id);
  assert.equal(status, 200);
  assert.deepEqual([json.status, json.max_reads, json.reads, json.failed_reads], ['read', wins, wins, READERS - wins]);
  assert.ok(json.last_read_at >= json.created_at, `${json.last_read_at} after ${json.created_at}`);
}

for (const [reads, rounds] of [[1, 400], [2, 10], [3, 60], [15, 10]] as const) {
  test(`of ${READERS} simultaneous readers over two replicas exactly ${reads} can read what may be read ${reads} times, ${rounds} times over, and the receipt says so`, async () => {
    for (let round = 0; round < rounds; round += 1) {
      const text = `marked-text-${round}`;
      const { id, secret } = await clientOf(round).keep(text, { max_reads: reads });
      assert.equal(await race(id, secret, text), reads, `round ${round}`);
      // From the replica that did not make it, in turns.
      await assertReceipt(round + 1, id, reads);
    }
    const { stored, parts } = (await database.sql`
      select count(*)::int as stored, (count(blob) + count(commitment) + count(tag))::int as parts from secrets.secrets where max_reads = ${reads}`)[0] ?? {};
    assert.deepEqual({ stored, parts }, { stored: rounds, parts: 0 }, 'nothing that could be opened stays behind');
  });
}

test(`all of ${READERS} simultaneous readers can read what may be read any number of times, and none of their reads is lost from the receipt`, async () => {
  const { id, secret } = await clientOf(0).keep('marked-text', {});
  for (let round = 0; round < 10; round += 1) assert.equal(await race(id, secret, 'marked-text'), READERS);
  const { json } = await clientOf(1).receipt(id);
  assert.deepEqual([json.status, json.max_reads, json.reads, json.failed_reads], ['stored', null, 10 * READERS, 0]);
});
