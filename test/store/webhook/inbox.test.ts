/**
 * What the inbox and notices show of an event or a sender is its own, whatever others went through;
 * and changes of one sender leave others, and what they do not name, as it is.
 */
import assert from 'node:assert/strict';
import { after } from 'node:test';
import { sealSecret } from '../../../src/platform/crypto/service-secret.ts';
import { revokeToken } from '../../../src/platform/db/tokens.ts';
import { SCHEMA } from '../../../src/webhook/migrations.ts';
import { createSigningKey } from '../../../src/webhook/service.ts';
import { findEvent, listEvents, recentEvents } from '../../../src/webhook/store/inbox.ts';
import { readNotices } from '../../../src/webhook/store/notices.ts';
import {
  countByKey,
  findSecrets,
  insertPending,
  insertSql,
  rotateSecret,
} from '../../../src/webhook/store/signing-secrets.ts';
import {
  changeSender,
  listTokens,
  markTokensUsed,
  setTarget,
} from '../../../src/webhook/store/tokens.ts';
import { WEBHOOK_SECRET } from '../../support/senders.ts';
import { test } from '../../support/until.ts';
import { createToken } from '../../support/tokens.ts';
import { openWorkQueue, type TestToken } from '../../support/webhook-store.ts';

const queue = await openWorkQueue({ after });
const { sql, database, put, putEnded } = queue;

// --- What the inbox shows of an event

/** The last one is the latest. */
async function addFailures(id: string, run: number, errors: ReadonlyArray<string | null>) {
  for (const [at, error] of errors.entries()) {
    await sql`
      insert into webhook.failures (event_id, run, attempt, error, failed_at)
      values (${id}, ${run}, ${at + 1}, ${error}, now() + make_interval(secs => ${at + run}))`;
  }
}

const leased = await put();
await queue.claim();
const waiting = await put();
const done = await putEnded('done', { run: 2 });
const dead = await putEnded('dead', { run: 3 });
const ended = await putEnded('done', { attempts: 0 }); // by another program
await addFailures(waiting, 1, ['of the waiting one']);
await addFailures(done, 1, ['before it was done', 'again']);
// It was delivered in its second run.
await addFailures(dead, 1, ['of the dead one']);
await addFailures(dead, 2, [null]);

const KEY = createSigningKey(WEBHOOK_SECRET);
const one = await queue.addToken('one');
await queue.addToken('other');
const revoked = await queue.addToken('revoked');
await revokeToken(database, SCHEMA.name, revoked.id);
const operator = await createToken(
  database,
  { name: 'operator', role: 'operator', source: 'generic' },
  null,
);

test('a summary has the attempts and the last error of its event', async () => {
  const { events } = await listEvents(database, {}, 100);
  const summaries = events.map((event) => [
    event.id,
    [event.attempts, event.total_attempts, event.last_error, event.next_attempt_at !== null],
  ]);
  assert.deepEqual(Object.fromEntries(summaries), {
    [leased]: [1, 1, null, false],
    [waiting]: [0, 0, 'of the waiting one', true],
    [done]: [1, 3, null, false],
    [dead]: [1, 3, 'of the dead one', false],
    [ended]: [0, 0, null, false],
  });
});

test('of outcomes, only a delivery is an attempt', async () => {
  const errorsOf = async (id: string) =>
    (await findEvent(database, id))?.attempts.map(({ error }) => error);
  assert.deepEqual(await errorsOf(done), [null, 'before it was done', 'again']);
  assert.deepEqual(await errorsOf(dead), ['of the dead one', null]);
  assert.deepEqual(await errorsOf(ended), []);
});

test('recent events are those of the last seconds, oldest first', async () => {
  await sql`
    update webhook.events set received_at = now() - interval '11 seconds' where id = ${leased}`;
  const recent = await recentEvents(database, 10);
  assert.deepEqual(
    recent.map(({ id }) => id),
    [waiting, done, dead, ended],
  );
});

// --- Notices

const SINCE = '2030-01-01T00:00:00Z';
const UNTIL = '2030-01-02T00:00:00Z';
const addDead = (at: string, status = 'dead') => sql`
  insert into webhook.outcomes (event_id, status, attempts, ended_at)
  values (gen_random_uuid(), ${status}, 1, ${at})`;
const addRefused = (at: string, reason = 'invalid_signature') => sql`
  insert into webhook.unstored (token_id, reason, hour, count, first_at)
  values (gen_random_uuid(), ${reason}, ${at}, 1, ${at})`;

test('notices count the failures of the given time, up to its end, and nothing else', async () => {
  const read = () => readNotices(database, SINCE, UNTIL);
  assert.deepEqual(await read(), []);
  for (const at of [SINCE, '2030-01-01T00:00:01Z', UNTIL, '2030-01-02T00:00:01Z']) {
    await addDead(at);
    await addRefused(at);
  }
  await addDead(UNTIL, 'done');
  await addRefused(UNTIL, 'handshake');
  const told = ['events given up (dead): 2', 'senders refused: 2 (invalid_signature)'];
  assert.deepEqual(await read(), told);
});

// --- Senders

const TARGET = {
  target: { url: 'https://example.org/' },
  keep_signature: undefined,
  secret: undefined,
};
const idsWhere = async (holds: ReturnType<typeof sql>) =>
  (await sql`select id from webhook.tokens where ${holds}`).map(({ id }) => id);

test('only an active token of a sender is changed, and only to a target with a place', async () => {
  for (const { id } of [revoked, operator]) {
    assert.equal(await changeSender(database, id, { name: 'changed' }), false);
    assert.equal(await setTarget(database, id, TARGET), false);
  }
  const options = { ...TARGET, target: { events: ['push'] } };
  assert.equal(await setTarget(database, one.id, options), false);
  assert.deepEqual(await idsWhere(sql`name = 'changed' or target is not null`), []);
});

test('a new name keeps the order, and a new order the name', async () => {
  const shown = async () => {
    const [row] = await sql`
      select name, order_by, revision from webhook.tokens where id = ${one.id}`;
    return { ...row };
  };
  await changeSender(database, one.id, { order_by: 'default' });
  await changeSender(database, one.id, { name: 'first' });
  assert.deepEqual(await shown(), { name: 'first', order_by: 'default', revision: 1 });
  await changeSender(database, one.id, { order_by: null });
  assert.deepEqual(await shown(), { name: 'first', order_by: null, revision: 2 });
});

test('the time of the last use is that of the tokens that were used', async () => {
  await markTokensUsed(database, [one.id]);
  assert.deepEqual(await idsWhere(sql`last_used_at is not null`), [one.id]);
});

async function addWithSecrets(name: string): Promise<TestToken> {
  const token = await queue.addToken(name);
  for (const purpose of ['sign', 'verify'] as const)
    await insertSql(sql, sealSecret(KEY, 'a secret'), token.id, purpose);
  return token;
}

test('a target takes the waiting events and the signing secret of its sender alone', async () => {
  const own = await addWithSecrets('with a target');
  const next = await addWithSecrets('next');
  for (const token of [own, next]) {
    await queue.put({ token, order_key: token.id });
    await queue.put({ token });
  }
  assert.equal(await setTarget(database, own.id, { ...TARGET, secret: null }), true);
  for (const table of ['work', 'pages']) {
    const rows = await sql`
      select distinct token_id from webhook.${sql(table)} where queue = ${own.id}`;
    assert.deepEqual([rows[0]?.token_id, rows.length], [own.id, 1], table);
  }
  const count = async ({ id }: TestToken, purpose: 'sign' | 'verify') =>
    (await findSecrets(database, id, purpose)).length;
  assert.deepEqual([await count(own, 'sign'), await count(own, 'verify')], [0, 1]);
  assert.deepEqual([await count(next, 'sign'), await count(next, 'verify')], [1, 1]);
});

test('a new signing secret of a sender ends only the one that it replaces', async () => {
  const own = await addWithSecrets('rotated');
  const next = await addWithSecrets('not rotated');
  const expired = sealSecret(KEY, 'expired');
  await insertSql(sql, expired, next.id, 'verify');
  const count = async () => (await countByKey(database))[0]?.secrets ?? 0;
  const before = await count();
  await insertSql(sql, sealSecret(KEY, 'of a revoked token'), revoked.id, 'verify');
  await sql`update webhook.signing_secrets set expires_at = now() where id = ${expired.id}`;
  assert.equal(await count(), before - 1);
  const secret = sealSecret(KEY, 'another');
  // Two operators confirm it at once.
  for (let round = 0; round < 2; round += 1)
    assert.equal(await rotateSecret(database, own.id, 60, secret), true);
  assert.equal(await count(), before);
  const ends = async ({ id }: TestToken) => {
    const rows = await sql`
      select purpose, expires_at is not null as has_end from webhook.signing_secrets
      where token_id = ${id} order by purpose, has_end`;
    return rows.map(({ purpose, has_end }) => [purpose, has_end]);
  };
  const expected = [
    ['sign', false],
    ['verify', false],
    ['verify', true],
  ];
  assert.deepEqual(await ends(own), expected);
  assert.deepEqual(await ends(next), expected);
  const [active, left] = await Promise.all(
    [own, next].map(({ id }) => findSecrets(database, id, 'verify')),
  );
  assert.deepEqual([active?.length, left?.length], [2, 1]);
  assert.ok(active?.some(({ id }) => id === secret.id));
  assert.equal(await rotateSecret(database, revoked.id, 60, secret), false);
});

test('the list shows refusals of the last day and pending secrets, each at its own sender', async () => {
  const { id } = await queue.addToken('refused');
  await insertPending(database, one.id, sealSecret(KEY, 'of another sender'));
  const add = (reason: string, hours: number, count: number) => sql`
    insert into webhook.unstored (token_id, reason, hour, count)
    values (${id}, ${reason}, now() - make_interval(hours => ${hours}), ${count})`;
  await add('unauthorized', 1, 3);
  await add('unauthorized', 25, 100);
  await add('handshake', 2, 200);
  const tokens = await listTokens(database);
  const shown = tokens.find((token) => token.id === id);
  assert.deepEqual([shown?.refused, shown?.pending], [3, false]);
  assert.equal(tokens.find((token) => token.id === one.id)?.pending, true);
});
