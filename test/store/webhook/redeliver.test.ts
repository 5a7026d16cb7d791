/** Redelivery, repeated deliveries and acceptance leave other events and tokens alone. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after } from 'node:test';
import { replaceToken } from '../../../src/platform/db/tokens.ts';
import { sha256 } from '../../../src/platform/crypto/token.ts';
import { accept } from '../../../src/webhook/accept.ts';
import { SCHEMA } from '../../../src/webhook/migrations.ts';
import { redeliver } from '../../../src/webhook/store/events.ts';
import { test } from '../../support/until.ts';
import { newEvent, openWorkQueue } from '../../support/webhook-store.ts';

const queue = await openWorkQueue({ after });
const { sql, database, clear, put, putEnded } = queue;
const plain = await queue.addToken('without a target');
const own = await queue.addToken('with a target');
const other = await queue.addToken('with another target');
for (const { id } of [own, other])
  await sql`update webhook.tokens set target = '{"url": "https://example.org/"}' where id = ${id}`;

const queueOf = async (id: string) =>
  (await sql`select queue from webhook.work where event_id = ${id}`)[0]?.queue;

test('an event waits for the target of its token, or for that of the process', async () => {
  await clear();
  const ids = [];
  for (const token of [other, own, plain]) ids.push(await putEnded('dead', { token }));
  assert.equal(await redeliver(database, ids), 3);
  const queues = await Promise.all(ids.map(queueOf));
  assert.deepEqual(queues.slice(0, 2), [other.id, own.id]);
  assert.match(queues[2] ?? '', /^[0-]+$/);
});

test('without a target of the process, only events of tokens with their own are taken', async () => {
  await clear();
  const dead = await putEnded('dead', { token: plain });
  const ids = [await putEnded('dead', { token: own }), dead, await put({ token: own })];
  assert.equal(await redeliver(database, ids, false), 2);
  assert.equal((await queue.stateOf(dead)).status, 'dead');
});

test('a stored event is delivered, whatever has ended or waits beside it', async () => {
  await clear();
  await putEnded('done');
  await put();
  assert.equal(await redeliver(database, [await put({ status: 'stored' })]), 1);
});

test('the outcome that another program wrote of a waiting event is kept', async () => {
  await clear();
  const id = await put();
  await sql`insert into webhook.outcomes (event_id, status, attempts) values (${id}, 'done', 1)`;
  assert.equal(await redeliver(database, [id]), 1);
  assert.equal((await sql`select from webhook.outcomes`).length, 1);
});

test('a page is due if its first event is redelivered', async () => {
  await clear();
  const first = await put({ order_key: 'a' });
  const second = await put({ order_key: 'a' });
  await put({ order_key: 'b' });
  const duePages = async () => {
    const rows = await sql`select order_key from webhook.pages where due_at <= now()`;
    return rows.map(({ order_key }) => order_key);
  };
  await sql`update webhook.pages set due_at = 'infinity'`;
  await redeliver(database, [second]);
  assert.deepEqual(await duePages(), []);
  await redeliver(database, [first]);
  assert.deepEqual(await duePages(), ['a']);
});

for (const [by, values] of [
  ['delivery id', { delivery_id: 'one' }],
  ['body', { body_digest: sha256('{}') }],
] as const) {
  test(`a repetition by its ${by} is of the same token, and other dead events stay dead`, async () => {
    await clear();
    const dead = await putEnded('dead', { token: plain });
    const ids = [];
    for (const token of [plain, own]) {
      const first = await accept(database, newEvent(token, values));
      const again = await accept(database, newEvent(token, values));
      assert.ok('id' in first);
      assert.deepEqual(again, { id: first.id, status: 'duplicate' });
      ids.push(first.id);
    }
    assert.notEqual(ids[0], ids[1]);
    assert.equal((await queue.stateOf(dead)).status, 'dead');
  });
}

test('an event is stored only with a token of its sender that is valid at that moment', async () => {
  const { id, digest: before } = await queue.addToken('rotated');
  const now = sha256(randomUUID());
  await replaceToken(database, SCHEMA.name, id, now, 60);
  const send = async (digest: Buffer) => (await accept(database, newEvent({ id, digest }))).status;
  const sent = [now, before, sha256('another'), plain.digest];
  const expected = ['accepted', 'accepted', 'rejected', 'rejected'];
  assert.deepEqual(await Promise.all(sent.map(send)), expected);
  await sql`update webhook.tokens set previous_until = now() where id = ${id}`;
  assert.deepEqual(await Promise.all([now, before].map(send)), ['accepted', 'rejected']);
});
