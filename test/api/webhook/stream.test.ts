/** GET /events/stream: new events for operators, until their token ends. */
import assert from 'node:assert/strict';
import { after } from 'node:test';
import { connect } from '../../../scripts/postgres.ts';
import { revokeToken } from '../../../src/platform/db/tokens.ts';
import { untilLocked, untilSql } from '../../support/connections.ts';
import { startGatehouse } from '../../support/gatehouse.ts';
import { openInbox, OPERATOR_TOKEN, putEvent } from '../../support/inbox.ts';
import type { Owner } from '../../support/owner.ts';
import { startProxy } from '../../support/proxy.ts';
import { connectTo, exchange, headOf, type RawClient } from '../../support/socket.ts';
import { createToken, rotateToken } from '../../support/tokens.ts';
import { test, until } from '../../support/until.ts';

const { url: here, databaseUrl, sql, database, send, call } = await openInbox({ after });

/** Asks for a stream. */
async function ring(owner: Owner, url = here, token = OPERATOR_TOKEN): Promise<RawClient> {
  const client = await connectTo(url);
  owner.after(() => client.leave());
  client.send(headOf(['GET /events/stream HTTP/1.1', 'Host: x', `Authorization: Bearer ${token}`]));
  return client;
}

const isGreeted = ({ pending }: RawClient) => pending().includes(': new events follow\n\n');

/** A stream that has begun, its text, and the ids of its events so far. */
async function listen(owner: Owner, url = here, token = OPERATOR_TOKEN) {
  const client = await ring(owner, url, token);
  await until(() => isGreeted(client), 'the stream begins');
  const { pending: said, answer } = client;
  const ids = () => [...said().matchAll(/^id: (.*)$/gm)].map(([, id = '']) => id);
  return { client, said, ids, answer };
}

/** @returns the status; an accepted stream stays open */
async function knock(owner: Owner, url: string): Promise<{ status: number; client: RawClient }> {
  const client = await ring(owner, url);
  await until(() => client.pending().includes('\r\n\r\n'), 'an answer');
  return { status: Number(client.pending().slice(9, 12)), client };
}

const crowdOf = (count: number, owner: Owner, url = here) =>
  Promise.all(Array.from({ length: count }, () => knock(owner, url)));

/** A service without events: its stream begins at once, and is open until the last test. */
const silent = await openInbox({ after });
const quiet = await listen({ after }, silent.url);

test('each new event is sent once, in order, as in the list, and no older one', async (t) => {
  const before = await send('from before');
  const { ids, said } = await listen(t);
  const sent: string[] = [];
  for (let number = 0; number < 20; number += 1) sent.push(await send(`number ${number}`));
  const repeated = { 'webhook-id': 'msg_r' };
  sent.push(await send('repeated', repeated));
  await send('repeated', repeated);
  await until(() => ids().length >= sent.length);
  // A second event ends the poll in which the first could be repeated.
  sent.push(await send('afterwards'));
  await until(() => ids().length >= sent.length);
  assert.deepEqual(ids(), sent);
  assert.ok(!ids().includes(before));
  const record = new RegExp(`^id: ${sent[7]}\nevent: received\ndata: (.*)\n\n`, 'm');
  const { json } = await call('GET', '/events?event=number+7');
  assert.deepEqual(JSON.parse(record.exec(said())?.[1] ?? ''), json[0]);
});

test('an event after the greeting is sent, however slow the first query is', async (t) => {
  const holder = connect(databaseUrl);
  t.after(() => holder.end());
  // Blocks the query of recent events, and no sender.
  await holder`begin`;
  await holder`lock table webhook.failures in access exclusive mode`;
  const client = await ring(t);
  await untilLocked(sql, 1);
  const early = isGreeted(client) ? await send('right after the greeting') : null;
  await holder`commit`;
  await until(() => isGreeted(client));
  const id = early ?? (await send('right after the greeting'));
  await until(() => client.pending().includes(`id: ${id}\n`));
});

test('an event that is committed long after its neighbors is not missed', async (t) => {
  const { ids } = await listen(t);
  const late = connect(databaseUrl);
  t.after(() => late.end());
  await late`begin`;
  const id = await putEvent(late, { event: 'late' });
  // Each of these is found by a later poll.
  for (const name of ['first', 'second']) {
    const sent = await send(name);
    await until(() => ids().includes(sent));
  }
  assert.ok(!ids().includes(id));
  // However long this has taken: an event from more than ten seconds ago is no new one.
  await late`update webhook.events set received_at = clock_timestamp() - interval '5 seconds'
    where id = ${id}`;
  await late`commit`;
  await until(() => ids().includes(id), 'the late event');
});

test('a stream has the events of every replica', async (t) => {
  const { url } = await startGatehouse(t, ['webhook'], databaseUrl);
  const there = await listen(t, url.webhook);
  const id = await send('to one of two');
  await until(() => there.ids().includes(id));
});

test('HEAD gets the head of uncached server-sent events, and takes no slot', async () => {
  const token = `Authorization: Bearer ${OPERATOR_TOKEN}`;
  for (let count = 0; count < 33; count += 1) {
    const { status, headers } = await exchange(here, [
      ...['HEAD /events/stream HTTP/1.1', 'Host: x', token],
    ]);
    const said = ['content-type', 'x-accel-buffering', 'cache-control'].map((name) =>
      headers.get(name),
    );
    assert.deepEqual([status, ...said], [200, 'text/event-stream', 'no', 'no-store']);
  }
});

test('a stream breaks off when the database goes away, and frees its slot', async (t) => {
  const proxy = await startProxy(t, databaseUrl);
  const { url } = await startGatehouse(t, ['webhook'], proxy.url);
  const { client } = await listen(t, url.webhook);
  await proxy.cut();
  assert.ok(!(await client.closed()).endsWith('0\r\n\r\n'));
  await proxy.restore();
  const again = async () => (await knock(t, url.webhook)).status === 200;
  await untilSql(again, 'streams can be opened again');
});

test('a shutdown ends streams in order without waiting for them', async (t) => {
  const grace = { SHUTDOWN_GRACE: '600' };
  const other = await startGatehouse(t, ['webhook'], databaseUrl, grace);
  const streams = await Promise.all([1, 2].map(() => listen(t, other.url.webhook)));
  const ended = other.stop();
  // Whole, to its last chunk.
  for (const { answer } of streams) assert.equal((await answer()).status, 200);
  await ended;
  assert.ok(!other.log().some(({ level }) => level === 'error'));
});

const addOperator = (name: string) =>
  createToken(database, { name, role: 'operator', source: 'generic' }, null);

/** The ways a token can end. */
const ENDS: Readonly<Record<string, (id: string) => Promise<unknown>>> = {
  'is revoked': (id) => revokeToken(database, 'webhook', id),
  'is rotated without an overlap': (id) => rotateToken(database, id, 0),
  async 'is rotated, and its overlap has ended'(id) {
    await rotateToken(database, id, 3_600);
    await sql`update webhook.tokens set previous_until = now() where id = ${id}`;
  },
  'is made a sender': async (id) => sql`update webhook.tokens set role = 'sender' where id = ${id}`,
};

for (const [what, end] of Object.entries(ENDS)) {
  test(`a quiet stream ends in order after its token ${what}; that of another continues`, async (t) => {
    const one = await addOperator('one');
    const ending = await listen(t, here, one.token);
    const going = await listen(t, here, (await addOperator('other')).token);
    await end(one.id);
    const { status, body } = await ending.answer();
    const events = body.replaceAll(': new events follow\n\n', '');
    assert.deepEqual([status, events], [200, ''], 'whole, and without an event');
    const id = await send('for those who may see it');
    await until(() => going.ids().includes(id), 'the other is told');
  });
}

test('a stream continues during the overlap of its rotated token', async (t) => {
  const { id, token } = await addOperator('rotated');
  const { ids } = await listen(t, here, token);
  await rotateToken(database, id, 3_600);
  for (const name of ['first', 'second']) {
    const sent = await send(name);
    await until(() => ids().includes(sent), 'it is told');
  }
});

test('a stream that ended with its token frees its slot', async (t) => {
  const { id, token } = await addOperator('many streams');
  const streams = await Promise.all(Array.from({ length: 20 }, () => listen(t, here, token)));
  await revokeToken(database, 'webhook', id);
  await Promise.all(streams.map(({ answer }) => answer()));
  await Promise.all(Array.from({ length: 20 }, () => listen(t)));
});

test('32 streams may be open, and the next gets 503', async (t) => {
  const { url } = await startGatehouse(t, ['webhook'], databaseUrl);
  const crowd = await crowdOf(40, t, url.webhook);
  const open = crowd.filter(({ status }) => status === 200);
  assert.equal(open.length, 32);
  const { client } = crowd.find(({ status }) => status === 503) ?? assert.fail();
  const { json, headers } = await client.answer();
  assert.equal(json.error.code, 'overloaded');
  assert.ok(Number(headers.get('retry-after')) > 0);
});

test('a client that leaves frees its slot even without events, and others get keep-alives', async (t) => {
  const crowd = await crowdOf(31, t, silent.url);
  assert.equal((await knock(t, silent.url)).status, 503);
  crowd[0]?.client.leave();
  const again = async () => (await knock(t, silent.url)).status === 200;
  await untilSql(again, 'the place is free');
  await until(() => quiet.said().split(': new events follow\n\n').length > 2, 'a sign of life');
  assert.deepEqual(quiet.ids(), []);
});
