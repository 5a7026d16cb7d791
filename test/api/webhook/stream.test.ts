/** GET /events/stream: new events for operators. */
import assert from 'node:assert/strict';
import { after } from 'node:test';
import { connect } from '../../../scripts/postgres.ts';
import { startGatehouse } from '../../support/gatehouse.ts';
import { openInbox, OPERATOR_TOKEN, putEvent } from '../../support/inbox.ts';
import { untilSql } from '../../support/connections.ts';
import { startProxy } from '../../support/proxy.ts';
import { connectTo, headOf, type RawAnswer, type RawClient } from '../../support/socket.ts';
import { test, until } from '../../support/until.ts';
import type { Owner } from '../../support/owner.ts';

const inbox = await openInbox({ after });
const { sql, send } = inbox;
/** A service without events: its stream is open until the last test. */
const silent = await openInbox({ after });

const REQUEST = [
  'GET /events/stream HTTP/1.1',
  'Host: x',
  `Authorization: Bearer ${OPERATOR_TOKEN}`,
];
const HELLO = ': new events follow\n\n';

interface Listener {
  readonly client: RawClient;
  /** The text so far. */
  said(): string;
  /** The ids of the events so far, in order. */
  ids(): string[];
  answer(): Promise<RawAnswer>;
}

/** Opens a stream. */
async function listen(owner: Owner, url = inbox.url): Promise<Listener> {
  const client = await ring(owner, url);
  const said = () => client.pending();
  await until(() => said().includes(HELLO), 'the stream begins');
  return {
    client,
    said,
    ids: () => [...said().matchAll(/^id: (.*)$/gm)].map(([, id = '']) => id),
    answer: () => client.answer(),
  };
}

/** @returns the status; an accepted stream stays open */
async function knock(owner: Owner, url: string): Promise<{ status: number; client: RawClient }> {
  const client = await ring(owner, url);
  await until(() => client.pending().includes('\r\n\r\n'), 'an answer');
  return { status: Number(client.pending().slice(9, 12)), client };
}

async function ring(owner: Owner, url: string): Promise<RawClient> {
  const client = await connectTo(url);
  owner.after(() => client.leave());
  client.send(headOf(REQUEST));
  return client;
}

const quiet = await listen({ after }, silent.url);

test('a stream begins at once, before there is any event, as uncached server-sent events', async (t) => {
  const { said } = await listen(t);
  const [head = ''] = said().split('\r\n\r\n');
  assert.match(head, /^HTTP\/1\.1 200 /);
  for (const line of [
    'Content-Type: text/event-stream',
    'X-Accel-Buffering: no',
    'Cache-Control: no-store',
    'X-Content-Type-Options: nosniff',
    'Transfer-Encoding: chunked',
  ])
    assert.ok(head.split('\r\n').includes(line), line);
});

test('each new event is sent once, in order, as in the list, and no older one', async (t) => {
  const before = await send('from before');
  const { ids, said } = await listen(t);
  const sent: string[] = [];
  for (let number = 0; number < 40; number += 1)
    sent.push(await send(`number ${number}`, { 'webhook-id': `msg_${number}` }));
  await send('repeated', { 'webhook-id': 'msg_r' });
  await send('repeated', { 'webhook-id': 'msg_r' });
  const last = await send('last');
  await until(() => ids().includes(last));
  // A second event ends the poll in which the first could be repeated.
  const afterwards = await send('afterwards');
  await until(() => ids().includes(afterwards));
  assert.deepEqual(ids().slice(0, 40), sent);
  assert.equal(ids().length, 43);
  assert.ok(!ids().includes(before));
  const [, data = ''] =
    new RegExp(`^id: ${sent[7]}\nevent: received\ndata: (.*)\n\n`, 'm').exec(said()) ?? [];
  const { json } = await inbox.call('GET', '/events?event=number+7');
  assert.deepEqual(JSON.parse(data), json[0]);
});

test('an event after the greeting is sent, however slow the first query is', async (t) => {
  const holder = connect(inbox.databaseUrl);
  t.after(() => holder.end());
  // Blocks the query of recent events, and no sender.
  await holder`begin`;
  await holder`lock table webhook.failures in access exclusive mode`;
  const client = await ring(t, inbox.url);
  await untilSql(
    async () =>
      (
        await sql`select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`
      ).length > 0,
    'the look waits',
  );
  const early = client.pending().includes(HELLO) ? await send('right after the greeting') : null;
  await holder`commit`;
  await until(() => client.pending().includes(HELLO));
  const id = early ?? (await send('right after the greeting'));
  await send('the next');
  await until(() => client.pending().includes('the next'));
  assert.ok(client.pending().includes(`id: ${id}\n`));
});

test('an event name that looks like a part of the stream stays on one line', async (t) => {
  const { ids, said } = await listen(t);
  const names = ['a\n\nevent: received\ndata: {}\n\n', 'b\r\rid: x', '\u2028', 'é 🎉'];
  for (const name of names) await send(name);
  await until(() => ids().length >= names.length);
  // Only CR and LF end a line (HTML Living Standard, 9.2.5).
  const shown = said()
    .split(/[\r\n]+/)
    .filter((line) => line.startsWith('data: '))
    .map((line): { event: string } => JSON.parse(line.slice('data: '.length)));
  assert.deepEqual(
    shown.map(({ event }) => event),
    names,
  );
});

test('an event that is committed long after its neighbors is not missed', async (t) => {
  const { ids } = await listen(t);
  const late = connect(inbox.databaseUrl);
  t.after(() => late.end());
  await late`begin`;
  const id = await putEvent(late, { event: 'late' });
  // Each of these is found by a later poll.
  for (const name of ['first', 'second', 'third']) {
    const sent = await send(name);
    await until(() => ids().includes(sent));
  }
  assert.ok(!ids().includes(id));
  // However long this has taken: an event from more than ten seconds ago is no new one.
  await late`
    update webhook.events set received_at = clock_timestamp() - interval '5 seconds'
    where id = ${id}`;
  await late`commit`;
  await until(() => ids().includes(id), 'the late event');
  assert.equal(ids().filter((one) => one === id).length, 1);
});

test('a stream has the events of every replica', async (t) => {
  const other = await startGatehouse(t, ['webhook'], inbox.databaseUrl);
  const here = await listen(t);
  const there = await listen(t, other.url.webhook);
  const id = await send('to one of two');
  await until(() => here.ids().includes(id) && there.ids().includes(id));
});

test('HEAD gets the head and takes no slot', async () => {
  for (let i = 0; i < 40; i += 1) {
    const client = await connectTo(inbox.url);
    client.send(headOf(['HEAD /events/stream HTTP/1.1', ...REQUEST.slice(1), 'Connection: close']));
    const { status, headers } = await client.answer('HEAD');
    assert.deepEqual([status, headers.get('content-type')], [200, 'text/event-stream']);
    assert.equal(await client.closed(), '');
  }
});

test('a stream breaks off when the database goes away, and frees its slot', async (t) => {
  const proxy = await startProxy(t, inbox.databaseUrl);
  const other = await startGatehouse(t, ['webhook'], proxy.url);
  const { client } = await listen(t, other.url.webhook);
  await proxy.cut();
  assert.ok(!(await client.closed()).endsWith('0\r\n\r\n'));
  await proxy.restore();
  await untilSql(
    async () => (await knock(t, other.url.webhook)).status === 200,
    'streams can be opened again',
  );
});

test('a shutdown ends streams in order without waiting for them', async (t) => {
  const other = await startGatehouse(t, ['webhook'], inbox.databaseUrl, {
    SHUTDOWN_GRACE: '600',
  });
  const streams = await Promise.all([1, 2, 3].map(() => listen(t, other.url.webhook)));
  const ended = other.stop();
  for (const { answer } of streams)
    assert.ok((await answer()).body.startsWith(HELLO), 'whole, to its last chunk');
  await ended;
  assert.ok(!other.log().some(({ level }) => level === 'error'));
});

test('32 streams may be open, and the next gets 503', async (t) => {
  const crowd = await Promise.all(Array.from({ length: 40 }, () => knock(t, inbox.url)));
  const statuses = crowd.map(({ status }) => status);
  assert.equal(statuses.filter((status) => status === 503).length, 8);
  assert.equal(statuses.filter((status) => status === 200).length, 32);
  const { client } = await knock(t, inbox.url);
  const refused = await client.answer();
  assert.deepEqual([refused.status, refused.json.error.code], [503, 'overloaded']);
  assert.ok(Number(refused.headers.get('retry-after')) > 0);
  assert.equal((await inbox.call('GET', '/events')).status, 200, 'all else is answered');
  for (const one of crowd) one.client.leave();
  await send('something to say');
  const again = async () =>
    (await Promise.all(Array.from({ length: 32 }, () => knock(t, inbox.url)))).map((one) => {
      if (one.status !== 200) one.client.leave();
      return one.status;
    });
  await untilSql(async () => (await again()).includes(200), 'a place is free');
});

test('a client that leaves frees its slot even without events, and others get keep-alives', async (t) => {
  const crowd = await Promise.all(Array.from({ length: 31 }, () => listen(t, silent.url)));
  assert.equal((await knock(t, silent.url)).status, 503);
  crowd[0]?.client.leave();
  await untilSql(async () => (await knock(t, silent.url)).status === 200, 'the place is free');
  await until(() => quiet.said().split(HELLO).length > 2, 'a sign of life');
  assert.deepEqual(quiet.ids(), []);
});
