/**
 * Many concurrent readers with the correct key on two replicas: as many succeed as there are reads.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { AUTH_TOKEN, launch, startGatehouse } from '../../support/gatehouse.ts';
import { rounds } from '../../support/rounds.ts';
import { secretsClient } from '../../support/secrets.ts';
import { connectTo, headOf } from '../../support/socket.ts';

const READERS = 16;

const { secrets: one, sql, databaseUrl } = await launch(['secrets']);
const other = (await startGatehouse({ after }, ['secrets'], databaseUrl)).url.secrets;
const { keep } = secretsClient(one);
const { receipt } = secretsClient(other);

// A connection for each, so that none waits in a client's queue.
const readers = await Promise.all(
  Array.from({ length: READERS }, (_, reader) => connectTo(reader % 2 ? one : other)),
);
after(() => readers.forEach((reader) => reader.leave()));

/** Sends all requests at once. @returns how many got the text; all others must get the same 404 */
async function race(id: string, secret: string, text: string) {
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
  const won = answers.filter(({ status }) => status === 200);
  for (const { json } of won) assert.deepEqual(json, { password: text });
  const lost = answers.filter((answer) => !won.includes(answer));
  assert.ok(lost.every(({ status }) => status === 404));
  assert.ok(new Set(lost.map((answer) => answer.body)).size <= 1);
  return won.length;
}

for (const [reads, few, many] of [
  [1, 40, 400],
  [3, 10, 60],
  [15, 5, 10],
] as const) {
  test(`${READERS} concurrent readers, max_reads ${reads}: exactly ${reads} succeed`, async () => {
    const count = rounds(few, many);
    for (let round = 0; round < count; round += 1) {
      const text = `marked-text-${round}`;
      const { id, secret } = await keep(text, { max_reads: reads });
      assert.equal(await race(id, secret, text), reads, `round ${round}`);
      const { json } = await receipt(id);
      assert.deepEqual(
        [json.status, json.max_reads, json.reads, json.failed_reads],
        ['read', reads, reads, READERS - reads],
      );
    }
    const left = await sql`select from secrets.secrets where max_reads = ${reads}
      and (blob is not null or tag is not null)`;
    assert.equal(left.length, 0, 'no content is left');
  });
}

test(`${READERS} concurrent readers without max_reads: all succeed, and the receipt counts them`, async () => {
  const { id, secret } = await keep('marked-text', {});
  for (let round = 0; round < 3; round += 1)
    assert.equal(await race(id, secret, 'marked-text'), READERS);
  const { json } = await receipt(id);
  assert.deepEqual([json.status, json.reads, json.failed_reads], ['stored', 3 * READERS, 0]);
});
