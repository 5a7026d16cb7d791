import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { createEmptyDatabase } from '../../support/database.ts';
import { ask, type Gatehouse, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { test } from '../../support/until.ts';

const EVENT = { event: 'page.updated', data: { page_id: 'p1' } };
const ANNOUNCED = /^webhook: created the first token: (\S.*)$/gm;

const announced = ({ stderr }: Gatehouse) =>
  [...stderr().matchAll(ANNOUNCED)].map(([, what]) => what ?? '');
const statusOf = async ({ url }: Gatehouse, token: string) =>
  (await ask('POST', `${url.webhook}/webhook?token=${token}`, { body: EVENT })).status;

test('the first run creates a token and shows it once; a restart creates no other', async (t) => {
  const { url, sql } = await createEmptyDatabase(t);
  const first = await startGatehouse(t, ['webhook'], url, { WEBHOOK_TOKEN: undefined });
  const [token = '', ...more] = announced(first);
  assert.match(token, /^[A-Za-z0-9_-]{43}$/);
  assert.deepEqual(more, []);
  assert.ok(
    !first.stdout().includes(token),
    'the log is kept longer and read by more people than a terminal',
  );
  assert.equal(await statusOf(first, token), 200);
  const rows = await sql`select digest, revoked_at from webhook.tokens`;
  assert.deepEqual(
    [...rows],
    [{ digest: createHash('sha256').update(token).digest(), revoked_at: null }],
  );
  await first.stop();

  const second = await startGatehouse(t, ['webhook'], url, { WEBHOOK_TOKEN: undefined });
  assert.equal(second.stderr(), '');
  assert.equal(await statusOf(second, token), 200);
  assert.deepEqual([...(await sql`select digest, revoked_at from webhook.tokens`)], [...rows]);
});

test('WEBHOOK_TOKEN becomes the first token and is not shown', async (t) => {
  const { url, sql } = await createEmptyDatabase(t);
  const gatehouse = await startGatehouse(t, ['webhook'], url);
  assert.deepEqual(announced(gatehouse), ['the value of WEBHOOK_TOKEN']);
  assert.ok(!(gatehouse.stderr() + gatehouse.stdout()).includes(WEBHOOK_TOKEN));
  assert.equal(await statusOf(gatehouse, WEBHOOK_TOKEN), 200);
  assert.equal((await sql`select from webhook.tokens`).length, 1);
});

test('WEBHOOK_TOKEN is not accepted if a token already exists', async (t) => {
  const { url, sql } = await createEmptyDatabase(t);
  await (await startGatehouse(t, ['webhook'], url)).stop();
  const other = 'another-token-0123456789abcdefghijklmnopqr';
  const gatehouse = await startGatehouse(t, ['webhook'], url, { WEBHOOK_TOKEN: other });
  assert.deepEqual(announced(gatehouse), []);
  assert.equal(await statusOf(gatehouse, other), 401);
  assert.equal(await statusOf(gatehouse, WEBHOOK_TOKEN), 200);
  assert.equal((await sql`select from webhook.tokens`).length, 1);
});

test('a restart does not wait for a change of a token', async (t) => {
  const { url, sql } = await createEmptyDatabase(t);
  await (await startGatehouse(t, ['webhook'], url)).stop();
  await sql.begin(async (change) => {
    await change`update webhook.tokens set last_used_at = now()`;
    const gatehouse = await startGatehouse(t, ['webhook'], url);
    assert.equal(await statusOf(gatehouse, WEBHOOK_TOKEN), 200);
  });
});

test('a restart creates no token if the only one is revoked', async (t) => {
  const { url, sql } = await createEmptyDatabase(t);
  await (await startGatehouse(t, ['webhook'], url)).stop();
  await sql`update webhook.tokens set revoked_at = now()`;
  for (const given of [undefined, WEBHOOK_TOKEN]) {
    const gatehouse = await startGatehouse(t, ['webhook'], url, { WEBHOOK_TOKEN: given });
    assert.deepEqual(announced(gatehouse), []);
    assert.equal(await statusOf(gatehouse, WEBHOOK_TOKEN), 401);
    await gatehouse.stop();
  }
  assert.equal((await sql`select from webhook.tokens`).length, 1);
});

test('replicas that start together on an empty database create one token', async (t) => {
  for (let round = 0; round < 3; round += 1) {
    const { url, sql } = await createEmptyDatabase(t);
    const replicas = await Promise.all(
      [1, 2, 3, 4].map(() => startGatehouse(t, ['webhook'], url, { WEBHOOK_TOKEN: undefined })),
    );
    const [token = '', ...more] = replicas.flatMap(announced);
    assert.deepEqual(more, []);
    assert.equal((await sql`select from webhook.tokens`).length, 1);
    for (const replica of replicas) assert.equal(await statusOf(replica, token), 200);
    await Promise.all(replicas.map((replica) => replica.stop()));
  }
});
