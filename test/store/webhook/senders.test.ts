/** Changes of one sender leave others, and what they do not name, as it is. */
import assert from 'node:assert/strict';
import { after } from 'node:test';
import { sealSecret } from '../../../src/platform/crypto/service-secret.ts';
import { revokeToken } from '../../../src/platform/db/tokens.ts';
import { SCHEMA } from '../../../src/webhook/migrations.ts';
import {
  countByKey,
  findSecrets,
  insertPending,
  insertSql,
  rotateSecret,
} from '../../../src/webhook/store/signing-secrets.ts';
import { createSigningKey } from '../../../src/webhook/service.ts';
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

const KEY = createSigningKey(WEBHOOK_SECRET);
const queue = await openWorkQueue({ after });
const { sql, database } = queue;
const one = await queue.addToken('one');
await queue.addToken('other');
const revoked = await queue.addToken('revoked');
await revokeToken(database, SCHEMA.name, revoked.id);
const operator = await createToken(
  database,
  { name: 'operator', role: 'operator', source: 'generic' },
  null,
);

const TARGET = {
  target: { url: 'https://example.org/' },
  keep_signature: undefined,
  secret: undefined,
};
const idsWhere = async (holds: ReturnType<typeof sql>) =>
  (await sql`select id from webhook.tokens where ${holds}`).map(({ id }) => id);

test('only an active token of a sender is changed', async () => {
  for (const { id } of [revoked, operator]) {
    assert.equal(await changeSender(database, id, { name: 'changed' }), false);
    assert.equal(await setTarget(database, id, TARGET), false);
  }
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

test('options without a place are not stored', async () => {
  const options = { ...TARGET, target: { events: ['push'] } };
  assert.equal(await setTarget(database, one.id, options), false);
  assert.deepEqual(await idsWhere(sql`target is not null`), []);
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
