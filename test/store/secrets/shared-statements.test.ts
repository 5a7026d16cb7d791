/** Statements that several readers or secrets share, and what a link reads. */
import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { launch } from '../../support/gatehouse.ts';
import { openConnections } from '../../support/connections.ts';
import { createDatabase } from '../../support/database.ts';
import { startProxy } from '../../support/proxy.ts';
import { secretsClient, storedSecret } from '../../support/secrets.ts';
import { findLink, insertSecret, timeIn, useUpRead } from '../../../src/secrets/store/secrets.ts';

const { secrets, sql, databaseUrl } = await launch(['secrets']);
const { keep } = secretsClient(secrets);

test('secrets of one statement keep their own content and limits, and ask for the time once', async (t) => {
  const own = await createDatabase(t);
  let replies = '';
  const proxy = await startProxy(t, own.url, () => (chunk) => {
    replies += chunk.toString('latin1');
  });
  const database = openConnections(t, proxy.url, 'lengths');
  const blobs = [1, 60_000, 256, 1_000, 30_000, 2].map((length) => randomBytes(length));
  // In one turn of the event loop. Over sockets, large bodies can arrive in several.
  const times = await Promise.all(blobs.map((_, index) => timeIn(database, 60 + index)));
  const seconds = times.map((time) => (Number(time) - Number(times[0])) / 1_000);
  assert.deepEqual(seconds, [0, 1, 2, 3, 4, 5]);
  // A row that ends with a time, and the end of the statement.
  assert.equal(replies.match(/\+00C\0{3}\rSELECT 1\0/g)?.length, 1);
  const stored = blobs.map((blob, index) => ({
    id: randomUUID(),
    key_id: `key ${index}`,
    commitment: randomBytes(32),
    blob,
    tag: randomBytes(32),
    expires_at: index % 3 === 0 ? null : (times[index] ?? assert.fail()),
    max_reads: index % 2 === 0 ? null : index,
    creator: index === 0 ? null : `user "\\{},NULL ${index}`,
  }));
  await Promise.all(stored.map((secret) => insertSecret(database, secret)));
  assert.deepEqual(replies.match(/INSERT [0-9 ]+/g), ['INSERT 0 6']);
  for (const secret of stored) {
    const [row] = await own.sql`
      select id, key_id, commitment, blob, tag, expires_at, max_reads, creator
      from secrets.secrets where id = ${secret.id}`;
    assert.deepEqual({ ...row }, secret);
  }
});

test('readers that share a statement get the outcome of their own secret', async (t) => {
  const database = openConnections(t, databaseUrl, 'reader');
  const until = new Date(Date.now() + 600_000);
  const readers = await Promise.all(
    [1, 2, 1, 2, 1, 2].map(async (max_reads) => {
      const { id } = await keep('a', { max_reads });
      const { commitment }: { commitment?: Buffer } = await storedSecret(sql, id);
      return { id, commitment: commitment ?? assert.fail(), until, isLate: () => false };
    }),
  );
  const [one, two, three, four, altered = '', usedUp = ''] = readers.map(({ id }) => id);
  // After the readers have opened them.
  await sql`update secrets.secrets set commitment = sha256(commitment) where id = ${altered}`;
  await sql`update secrets.secrets set reads = 2 where id = ${usedUp}`;
  const read = async () => {
    const outcomes = await Promise.all(readers.map((reader) => useUpRead(database, reader)));
    return outcomes.map((used) => used && [used.id, used.max_reads, used.reads]);
  };
  assert.deepEqual(await read(), [
    [one, 1, 1],
    [two, 2, 1],
    [three, 1, 1],
    [four, 2, 1],
    null,
    null,
  ]);
  assert.deepEqual(await read(), [null, [two, 2, 2], null, [four, 2, 2], null, null]);
});

test('the content of a link is read only for a key that fits', async (t) => {
  const database = openConnections(t, databaseUrl, 'links');
  const { id } = await keep('a');
  const { commitment, blob } = await storedSecret(sql, id);
  const contentFor = async (sent: Buffer) => (await findLink(database, id, [sent]))?.blob;
  assert.equal(await contentFor(randomBytes(32)), null);
  assert.deepEqual(await contentFor(commitment), blob);
});
