/**
 * Readers that share statements, on two replicas: as many succeed as there are reads, and each gets
 * its own outcome.
 */
import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import type { Sql } from 'postgres';
import { connect } from '../../../scripts/postgres.ts';
import { createDatabase } from '../../support/database.ts';
import { AUTH_TOKEN, launch, startGatehouse } from '../../support/gatehouse.ts';
import { openConnections, untilSql } from '../../support/connections.ts';
import { secretsClient } from '../../support/secrets.ts';
import { startProxy } from '../../support/proxy.ts';
import { exchangeAtOnce, headOf, type RawAnswer } from '../../support/socket.ts';
import type { Database } from '../../../src/platform/db/pool.ts';
import { insertSecret, timeIn, useUpRead } from '../../../src/secrets/store/secrets.ts';

const { secrets: one, sql, databaseUrl } = await launch(['secrets']);
const other = (await startGatehouse({ after }, ['secrets'], databaseUrl)).url.secrets;
const clients = [one, other].map((url) => secretsClient(url));
const clientOf = (turns: number) => clients[turns % 2] ?? assert.fail();

interface Kept {
  readonly id: string;
  readonly secret: string;
  readonly text: string;
}

let texts = 0;
const keepMany = (count: number, maxReads: number): Promise<Kept[]> =>
  Promise.all(
    Array.from({ length: count }, async () => {
      texts += 1;
      const text = `text-${texts}`;
      const { id, secret } = await clientOf(texts).keep(text, { max_reads: maxReads });
      return { id, secret, text };
    }),
  );

const rowOf = async (id: string) =>
  (
    await sql`
  select reads::int as reads, failed_reads::int as failed_reads, ending, blob is null as empty
  from secrets.secrets where id = ${id}`
  )[0];

/** @param answers for one secret with three reads  @param readers how many requests were sent */
async function assertThreeWon(
  { id, text }: Kept,
  answers: ReadonlyArray<Pick<RawAnswer, 'status' | 'json'>>,
  readers: number,
): Promise<void> {
  assert.equal(answers.length, readers);
  const won = answers.filter(({ status }) => status === 200);
  assert.equal(won.length, 3);
  for (const { json } of won) assert.equal(json.password, text);
  for (const { status, json } of answers) {
    if (status !== 200) assert.deepEqual([status, json.error.code], [404, 'not_found']);
  }
  assert.deepEqual(
    { ...(await rowOf(id)) },
    { reads: 3, failed_reads: readers - 3, ending: 'read', empty: true },
  );
}

const headAndBody = (target: string, body: string) =>
  headOf([
    `${target} HTTP/1.1`,
    'Host: gatehouse',
    `Authorization: Bearer ${AUTH_TOKEN}`,
    'Content-Type: application/json',
    `Content-Length: ${Buffer.byteLength(body)}`,
  ]) + body;

const readInOneTurn = (url: string, readers: readonly Kept[]): Promise<RawAnswer[]> =>
  exchangeAtOnce(
    url,
    readers.map(({ id, secret }) =>
      headAndBody(`POST /api/store/decrypt?id=${id}`, JSON.stringify({ secret })),
    ),
  );

test('readers in one turn per replica, in opposite orders: exactly 3 per secret succeed', async () => {
  for (let round = 0; round < 3; round += 1) {
    const kept = await keepMany(8, 3);
    const readers = [
      ...kept,
      ...kept.map((one) => ({ ...one, id: one.id.toUpperCase() })),
      ...kept,
      ...kept,
    ];
    const here = readers;
    const there = [...readers].reverse();
    const [answersHere, answersThere] = await Promise.all([
      readInOneTurn(one, here),
      readInOneTurn(other, there),
    ]);
    const answers = [
      ...here.map((reader, index) => ({ reader, answer: answersHere[index] ?? assert.fail() })),
      ...there.map((reader, index) => ({ reader, answer: answersThere[index] ?? assert.fail() })),
    ];
    for (const secret of kept) {
      await assertThreeWon(
        secret,
        answers.filter(({ reader }) => reader.text === secret.text).map(({ answer }) => answer),
        8,
      );
    }
  }
});

test('an id in upper and lower case is one secret: one of several readers succeeds', async () => {
  for (const order of [0, 1]) {
    const kept = (await keepMany(1, 1))[0] ?? assert.fail();
    const writings = [kept.id, kept.id.toUpperCase()];
    const readers = (order === 0 ? writings : writings.reverse()).map((id) => ({ ...kept, id }));
    const answers = await readInOneTurn(one, readers);
    assert.deepEqual(
      answers.map(({ status }) => status),
      [200, 404],
    );
  }
});

test('secrets stored in one statement keep their own key, expiry and read limit', async () => {
  const limits = [{ max_reads: 1 }, { expires_in: 3_600 }, {}];
  const requests = Array.from({ length: 30 }, (_, number) => {
    return { password: `own-${number}-😀"\\{},NULL`, ...limits[number % 3] };
  });
  const answers = await exchangeAtOnce(
    one,
    requests.map((wanted) => headAndBody('POST /api/store/encrypt', JSON.stringify(wanted))),
  );
  const stored = await sql`
    select distinct xmin::text from secrets.secrets
      where id = any (${answers.map(({ json }) => String(json.id))})`;
  assert.equal(stored.length, 1, 'one statement, and so one commit');
  const ids: string[] = [];
  for (const [index, wanted] of requests.entries()) {
    const { status, json, body } = answers[index] ?? assert.fail();
    assert.equal(status, 201, body);
    ids.push(json.id);
    for (const expected of index % 3 === 0 ? [200, 404] : [200, 200]) {
      const answer = await clientOf(index).decrypt(json.id, json.secret);
      assert.equal(answer.status, expected, answer.text);
      if (expected === 200) assert.equal(answer.json.password, wanted.password);
    }
    const [row] =
      await sql`select max_reads, expires_at from secrets.secrets where id = ${json.id}`;
    assert.deepEqual(
      [row?.max_reads, row?.expires_at?.toISOString() ?? null],
      ['max_reads' in wanted ? 1 : null, json.expires_at],
    );
  }
});

test('secrets of different lengths in one statement keep their own content, and ask for the time once', async (t) => {
  const own = await createDatabase(t);
  await startGatehouse(t, ['secrets'], own.url);
  let replies = '';
  const proxy = await startProxy(t, own.url, () => (chunk) => {
    replies += chunk.toString('latin1');
  });
  const database = openConnections(t, proxy.url, 'lengths');
  const blobs = [1, 60_000, 256, 1_000, 30_000, 2].map((length) => randomBytes(length));
  // In one turn of the event loop. Over sockets, large bodies can arrive in several.
  const times = await Promise.all(blobs.map((_, index) => timeIn(database, 60 + index)));
  // A row that ends with a time, and the end of the statement.
  assert.equal(replies.match(/\+00C\0{3}\rSELECT 1\0/g)?.length, 1);
  const secrets = blobs.map((blob, index) => ({
    id: randomUUID(),
    key_id: 'key',
    commitment: randomBytes(32),
    blob,
    tag: randomBytes(32),
    expires_at: times[index] ?? assert.fail(),
    max_reads: index + 1,
    creator: null,
  }));
  await Promise.all(secrets.map((secret) => insertSecret(database, secret)));
  assert.deepEqual(replies.match(/INSERT [0-9 ]+/g), ['INSERT 0 6']);
  for (const secret of secrets) {
    const [row] = await own.sql`
      select id, key_id, commitment, blob, tag, expires_at, max_reads, creator
      from secrets.secrets where id = ${secret.id}`;
    assert.deepEqual({ ...row }, secret);
  }
});

/**
 * Makes statements lock rows in their own order, as PostgreSQL does for a large table, and wait
 * for the advisory lock 1 after each row that they lock. A sequence for each of the connections
 * shows that they have begun, also after a statement was undone.
 */
async function slowUpdates({ url, sql: own }: { url: string; sql: Sql }): Promise<void> {
  const database = new URL(url).pathname.slice(1);
  for (const method of ['hashjoin', 'mergejoin', 'seqscan', 'bitmapscan', 'sort']) {
    await own.unsafe(`alter database ${database} set enable_${method} = off`);
  }
  await own`create sequence "gatehouse-left"`;
  await own`create sequence "gatehouse-right"`;
  await own`
    create function pause() returns trigger language plpgsql as $$
      begin
        perform nextval(quote_ident(current_setting('application_name'))::regclass);
        perform pg_advisory_xact_lock_shared(1);
        return new;
      end $$`;
  await own`
    create trigger pause before update on secrets.secrets
    for each row execute function pause()`;
}

async function countDeadlocks(own: Sql): Promise<number> {
  const [row] = await own`
    select deadlocks from pg_stat_database where datname = current_database()`;
  return Number(row?.deadlocks);
}

async function haveBegun(own: Sql): Promise<boolean> {
  const [row] = await own`
    select "left".is_called and "right".is_called as begun
    from "gatehouse-left" as "left", "gatehouse-right" as "right"`;
  return row?.begun === true;
}

type Reader = Parameters<typeof useUpRead>[1];

async function keepForThree(own: Sql, url: string, text: string): Promise<Reader> {
  const { id } = await secretsClient(url).keep(text, { max_reads: 3 });
  const [row] = await own<Array<{ commitment: Buffer }>>`
    select commitment from secrets.secrets where id = ${id}`;
  return {
    id,
    commitment: row?.commitment ?? assert.fail(),
    until: new Date(Date.now() + 60_000),
    isLate: () => false,
  };
}

test('shared statements in opposite orders: no deadlock, and every reader gets its outcome', async (t) => {
  const own = await createDatabase(t);
  const { url } = await startGatehouse(t, ['secrets'], own.url);
  await slowUpdates(own);
  const readers = [
    await keepForThree(own.sql, url.secrets, 'a'),
    await keepForThree(own.sql, url.secrets, 'b'),
  ];
  const left = openConnections(t, own.url, 'left');
  const right = openConnections(t, own.url, 'right');
  const orders = [
    [left, readers],
    [right, [...readers].reverse()],
  ] as const;
  const blocker = connect(own.url);
  t.after(() => blocker.end({ timeout: 0 }));
  await blocker`select pg_advisory_lock(1)`;
  const before = await countDeadlocks(own.sql);
  const isFirst = async (replica: Database, reader: Reader) =>
    (await useUpRead(replica, reader)) !== null;
  const calls: Array<Promise<boolean>> = [];
  for (const [replica, order] of orders) {
    for (const reader of order) calls.push(isFirst(replica, reader));
    await turn();
  }
  const outcomes = Promise.all(calls);
  await untilSql(() => haveBegun(own.sql), 'both have locked a row');
  await blocker`select pg_advisory_unlock(1)`;
  assert.deepEqual(await outcomes, [true, true, true, true]);
  for (const replica of [left, right])
    await replica.write((sql) => sql`select pg_stat_force_next_flush()`);
  assert.equal(await countDeadlocks(own.sql), before);
  const used = await own.sql`select reads::int as reads from secrets.secrets`;
  const reads = used.map((row) => row.reads);
  assert.deepEqual(reads, [2, 2]);
  // One read of each is left: of two more readers of both, in opposite orders, one gets each.
  const last = orders.flatMap(([replica, order]) =>
    order.map(async (reader) => ({ id: reader.id, won: await isFirst(replica, reader) })),
  );
  const results = await Promise.all(last);
  for (const { id } of readers) {
    const won = results.filter((result) => result.id === id).map((result) => result.won);
    assert.deepEqual(won.sort(), [false, true]);
  }
});
