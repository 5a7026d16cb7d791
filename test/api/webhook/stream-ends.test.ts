/** GET /events/stream ends soon after its token stops being an operator's, even without events. */
import assert from 'node:assert/strict';
import { after } from 'node:test';
import { revokeToken } from '../../../src/platform/db/tokens.ts';
import { createToken, rotateToken } from '../../support/tokens.ts';
import { openInbox } from '../../support/inbox.ts';
import { openWebhook } from '../../support/senders.ts';
import { connectTo, headOf } from '../../support/socket.ts';
import { test, until } from '../../support/until.ts';
import type { Owner } from '../../support/owner.ts';

const inbox = await openInbox({ after });
const database = openWebhook({ after }, inbox.databaseUrl);
const { sql } = inbox;

const addOperator = async (name: string) => {
  const { id, token } = await createToken(
    database,
    { name, role: 'operator', source: 'generic' },
    null,
  );
  return { id: id, token };
};

/** Opens a stream. @returns its text so far, and the whole reply once it has ended in order */
async function listen(owner: Owner, token: string) {
  const client = await connectTo(inbox.url);
  owner.after(() => client.leave());
  client.send(headOf(['GET /events/stream HTTP/1.1', 'Host: x', `Authorization: Bearer ${token}`]));
  await until(() => client.pending().includes(': new events follow\n\n'), 'the stream begins');
  return { said: () => client.pending(), answer: () => client.answer() };
}

/** The ways a token can end. */
const ends: ReadonlyArray<readonly [string, (id: string) => Promise<unknown>]> = [
  ['is revoked', (id) => revokeToken(database, 'webhook', id)],
  ['is rotated without an overlap', (id) => rotateToken(database, id, 0)],
  [
    'is rotated, and its overlap has ended',
    async (id) => {
      await rotateToken(database, id, 3_600);
      await sql`update webhook.tokens set previous_until = now() where id = ${id}`;
    },
  ],
  ['is made a sender', (id) => sql`update webhook.tokens set role = 'sender' where id = ${id}`],
];

for (const [what, end] of ends) {
  test(`a quiet stream ends in order after its token ${what}; another operator's stream continues`, async (t) => {
    const one = await addOperator('one');
    const other = await addOperator('other');
    const ending = await listen(t, one.token);
    const going = await listen(t, other.token);
    await end(one.id);
    const { status, body } = await ending.answer();
    assert.deepEqual(
      [status, body.replaceAll(': new events follow\n\n', '')],
      [200, ''],
      'whole, and without an event',
    );
    const id = await inbox.send('for those who may see it');
    await until(() => going.said().includes(id), 'the other is told');
  });
}

test('a stream continues during the overlap of its rotated token', async (t) => {
  const one = await addOperator('rotated');
  const { said } = await listen(t, one.token);
  await rotateToken(database, one.id, 3_600);
  for (const name of ['first', 'second']) {
    const id = await inbox.send(name);
    await until(() => said().includes(id), 'it is told');
  }
});

test('a stream that ended with its token frees its slot', async (t) => {
  const one = await addOperator('many streams');
  const streams = await Promise.all(Array.from({ length: 20 }, () => listen(t, one.token)));
  await revokeToken(database, 'webhook', one.id);
  await Promise.all(streams.map(({ answer }) => answer()));
  const other = await addOperator('as many');
  await Promise.all(Array.from({ length: 20 }, () => listen(t, other.token)));
});
