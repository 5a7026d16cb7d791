/** A database that an earlier version has filled, brought up to date: what lived opens, and what had ended has a receipt. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test, type TestContext } from 'node:test';
import { commitmentOf, createClientKey, createServerKey, seal } from '../../src/crypto/box.ts';
import { migrate } from '../../src/db/migrate.ts';
import { MIGRATIONS, SCHEMA } from '../../src/secrets/migrations.ts';
import { createDatabase, type TestDatabase } from '../support/database.ts';
import { SERVER_SECRET, startGatehouse } from '../support/gatehouse.ts';
import { openLanes } from '../support/lanes.ts';
import { secretsClient } from '../support/secrets.ts';
import { until } from '../support/until.ts';

const PREVIOUS = 'previous-server-secret-0123456789abcdefgh';
const [current, previous] = [createServerKey(SERVER_SECRET), createServerKey(PREVIOUS)];
const DAY = 86_400_000;

interface Old {
  readonly id: string;
  readonly secret: string;
  readonly text: string;
}

/** A database at the first step, with rows as the version of that step wrote them: without tags, and emptied once used up. */
async function createOld(t: TestContext): Promise<TestDatabase & { readonly rows: Record<'unlimited' | 'halfRead' | 'previous' | 'usedUp' | 'expired', Old> }> {
  const file = await createDatabase(t);
  assert.equal(await migrate(openLanes(t, file.url, 'old'), SCHEMA, MIGRATIONS.slice(0, 1)), 1);
  const add = async (text: string, serverKey: typeof current, fromNow: number | null, maxReads: number | null, reads: number): Promise<Old> => {
    const [id, clientKey] = [randomUUID(), createClientKey()];
    const expiresAt = fromNow === null ? null : new Date(Date.now() + fromNow);
    const { commitment, blob } = seal(serverKey, clientKey, { id, expiresAt: expiresAt?.getTime() ?? null, maxReads }, Buffer.from(text));
    assert.ok(commitment.equals(commitmentOf(serverKey, clientKey, id)));
    const isUsedUp = reads === maxReads;
    await file.sql`
      insert into secrets.secrets (id, key_id, commitment, blob, created_at, expires_at, max_reads, reads)
      values (${id}, ${serverKey.id}, ${isUsedUp ? null : commitment}, ${isUsedUp ? null : blob}, now() - interval '8 days', ${expiresAt}, ${maxReads}, ${reads})`;
    return { id, secret: clientKey.toString('base64url'), text };
  };
  return {
    ...file,
    rows: {
      unlimited: await add('lives for ever', current, null, null, 0),
      halfRead: await add('read once of three times', current, DAY, 3, 1),
      previous: await add('sealed under the previous server secret', previous, DAY, null, 0),
      usedUp: await add('read as often as allowed', current, DAY, 2, 2),
      expired: await add('expired a day ago', current, -DAY, null, 0),
    },
  };
}

test('secrets of the first version open after the upgrade as often as was left to them, and each has a receipt', async (t) => {
  const { url, sql, rows } = await createOld(t);
  const gatehouse = await startGatehouse(t, ['secrets'], url, { SERVER_SECRET_PREVIOUS: PREVIOUS });
  const { decrypt, receipt, remove, list, keep } = secretsClient(gatehouse.url.secrets);
  const told = async ({ id }: Old) => {
    const { status, json } = await receipt(id);
    assert.equal(status, 200);
    return [json.status, json.max_reads, json.reads, json.failed_reads, json.last_read_at !== null];
  };
  const { unlimited, halfRead, usedUp, expired } = rows;
  assert.deepEqual(await Promise.all([unlimited, halfRead, rows.previous, usedUp, expired].map(told)), [
    ['stored', null, 0, 0, false],
    ['stored', 3, 1, 0, false],
    ['stored', null, 0, 0, false],
    ['read', 2, 2, 0, false],
    ['expired', null, 0, 0, false],
  ]);
  assert.deepEqual(new Set((await list()).json.map(({ id }: Old) => id)), new Set([unlimited.id, halfRead.id, rows.previous.id]));

  for (const { id, secret, text } of [unlimited, unlimited, unlimited, halfRead, halfRead, rows.previous]) assert.equal((await decrypt(id, secret)).json.password, text);
  for (const { id, secret } of [halfRead, usedUp, expired]) assert.equal((await decrypt(id, secret)).status, 404);
  assert.deepEqual(await Promise.all([unlimited, halfRead, usedUp, expired].map(told)), [
    ['stored', null, 3, 0, true],
    ['read', 3, 3, 1, true],
    ['read', 2, 2, 1, false],
    ['expired', null, 0, 1, false],
  ]);
  assert.deepEqual((await remove(rows.previous.id)).json, { id: rows.previous.id, status: 'deleted' });
  assert.equal((await decrypt(rows.previous.id, rows.previous.secret)).status, 404);
  assert.deepEqual(await told(rows.previous), ['deleted', null, 1, 1, true]);
  assert.equal((await decrypt(unlimited.id, (await keep('new')).secret)).status, 404, 'a wrong key stays a wrong key');

  const ended = await sql`select id from secrets.secrets where blob is null and (commitment is not null or tag is not null or ending is null or ended_at is null)`;
  assert.deepEqual([...ended], [], 'what has ended has lost its content, and has a time from which its receipt is kept');
  assert.deepEqual(gatehouse.log().filter(({ level }) => level === 'error' || level === 'warn'), []);
});

test('the upgrade notes the server secrets that were in use by their key ids, so that a missing one is told at the next start', async (t) => {
  const { url, sql } = await createOld(t);
  assert.equal(await migrate(openLanes(t, url, 'new'), SCHEMA, MIGRATIONS), MIGRATIONS.length - 1);
  const keys = await sql`select key_id, first_used_at < now() - interval '7 days' as since_its_first from secrets.server_keys order by key_id`;
  assert.deepEqual(keys.map((key) => ({ ...key })), [current.id, previous.id].sort().map((key_id) => ({ key_id, since_its_first: true })));
  const gatehouse = await startGatehouse(t, ['secrets'], url);
  const errors = () => gatehouse.log().filter(({ level }) => level === 'error');
  // Nobody waits for the count.
  await until(() => errors().length > 0, 'the missing server secret is told');
  assert.deepEqual(errors().map(({ key_id, secrets }) => [key_id, secrets]), [[previous.id, 1]]);
});

test('of two that bring an old database up to date at once, each step is applied once, and no secret is lost', async (t) => {
  const { url, rows } = await createOld(t);
  const applied = await Promise.all([1, 2].map((turn) => migrate(openLanes(t, url, `turn ${turn}`), SCHEMA, MIGRATIONS)));
  assert.equal(applied.reduce((sum, steps) => sum + steps), MIGRATIONS.length - 1);
  const { decrypt } = secretsClient((await startGatehouse(t, ['secrets'], url)).url.secrets);
  for (const { id, secret, text } of [rows.unlimited, rows.halfRead]) assert.equal((await decrypt(id, secret)).json.password, text);
});
