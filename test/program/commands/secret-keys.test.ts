/** `secret keys`: the server secrets, their states, and how many secrets need them. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { createServerKey } from '../../../src/secrets/envelope.ts';
import { assertRefused, runCommand } from '../../support/commands.ts';
import { createDatabase } from '../../support/database.ts';
import { startGatehouse } from '../../support/gatehouse.ts';
import { root } from '../../support/process.ts';
import { secretsClient } from '../../support/secrets.ts';

const file = await createDatabase();

const SECRETS = {
  current: 'server-secret-of-today-0123456789abcdefgh',
  previous: 'server-secret-of-yesterday-0123456789abcd',
  missing: 'server-secret-that-was-lost-0123456789abc',
  retired: 'server-secret-of-last-year-0123456789abcd',
} as const;
const ids = Object.fromEntries(
  Object.entries(SECRETS).map(([name, secret]) => [name, createServerKey(secret).id]),
);

// In this order each encrypted a secret; the secret under the first one has ended.
for (const [index, secret] of [
  SECRETS.retired,
  SECRETS.missing,
  SECRETS.previous,
  SECRETS.current,
].entries()) {
  const gatehouse = await startGatehouse({ after }, ['secrets'], file.url, {
    SERVER_SECRET: secret,
  });
  const client = secretsClient(gatehouse.url.secrets);
  for (let made = 0; made < index; made += 1) await client.keep('x', { max_reads: 1 });
  const { id } = await client.keep('x');
  await client.remove(id);
  await gatehouse.stop();
}

const held = { SERVER_SECRET: SECRETS.current, SERVER_SECRET_PREVIOUS: SECRETS.previous };
const run = (words: readonly string[], environment: Readonly<Record<string, string>> = {}) =>
  runCommand(['secret', 'keys', ...words], { DATABASE_URL: file.url, ...environment });

/** @returns state and count by the names above */
async function states(
  environment: Readonly<Record<string, string>>,
): Promise<Record<string, [string, number]>> {
  const { code, stdout, stderr } = await run(['--json'], environment);
  assert.equal(code, 0, stderr);
  const listed: Array<{ key_id: string; state: string; secrets: number }> = JSON.parse(stdout);
  const nameOf = (keyId: string) => Object.keys(ids).find((name) => ids[name] === keyId) ?? keyId;
  return Object.fromEntries(
    listed.map(({ key_id, state, secrets }) => [nameOf(key_id), [state, secrets]]),
  );
}

test('keys: each server secret with key id, state and count, oldest first', async () => {
  const { code, stdout, stderr } = await run([], held);
  assert.deepEqual([code, stderr], [0, '']);
  const [head, ...rows] = stdout.trimEnd().split('\n');
  assert.match(head ?? '', /^KEY ID +STATE +SECRETS +FIRST USED$/);
  assert.deepEqual(
    rows.map((row) => row.split(/ +/).slice(0, 3)),
    [
      [ids.retired, 'retired', '0'],
      [ids.missing, 'missing', '1'],
      [ids.previous, 'previous', '2'],
      [ids.current, 'current', '3'],
    ],
  );
  for (const row of rows) assert.match(row, / \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
});

test('keys: --json has the same data', async () => {
  const { code, stdout, stderr } = await run(['--json'], held);
  assert.deepEqual([code, stderr], [0, '']);
  const listed: Array<Record<string, unknown>> = JSON.parse(stdout);
  assert.deepEqual(
    listed.map(({ first_used_at, ...rest }) => ({ ...rest, first_used_at: typeof first_used_at })),
    [
      { key_id: ids.retired, secrets: 0, state: 'retired', first_used_at: 'string' },
      { key_id: ids.missing, secrets: 1, state: 'missing', first_used_at: 'string' },
      { key_id: ids.previous, secrets: 2, state: 'previous', first_used_at: 'string' },
      { key_id: ids.current, secrets: 3, state: 'current', first_used_at: 'string' },
    ],
  );
});

test('keys: no server secret is printed', async () => {
  const shown = `${(await run([], held)).stdout}${(await run(['--json'], held)).stdout}`;
  for (const secret of Object.values(SECRETS)) assert.ok(!shown.includes(secret));
});

test('keys: a configured server secret without secrets is listed', async () => {
  const prepared = 'a-new-one-0123456789abcdefghijklmnop';
  const found = await states({
    ...held,
    SERVER_SECRET_PREVIOUS: `${SECRETS.previous}, ${prepared}`,
  });
  assert.deepEqual(found, {
    [createServerKey(prepared).id]: ['previous', 0],
    retired: ['retired', 0],
    missing: ['missing', 1],
    previous: ['previous', 2],
    current: ['current', 3],
  });
});

test('keys: nothing is missing once the lost one is configured again', async () => {
  const found = await states({
    ...held,
    SERVER_SECRET_PREVIOUS: `${SECRETS.previous},${SECRETS.missing}`,
  });
  assert.deepEqual(found.missing, ['previous', 1]);
});

test('keys: SERVER_SECRET_FILE is supported', async () => {
  const path = join(root, 'server-secret');
  writeFileSync(path, `${SECRETS.current}\n`);
  assert.deepEqual((await states({ SERVER_SECRET_FILE: path })).current, ['current', 3]);
});

test('keys: without SERVER_SECRET the states are unknown, with a note on standard error', async () => {
  for (const given of [{}, { SERVER_SECRET_PREVIOUS: SECRETS.previous }]) {
    assert.deepEqual(await states(given), {
      retired: ['unknown', 0],
      missing: ['unknown', 1],
      previous: ['unknown', 2],
      current: ['unknown', 3],
    });
    const { code, stdout, stderr } = await run([], given);
    assert.equal(code, 0);
    assert.match(stdout, /^KEY ID +STATE +SECRETS +FIRST USED\n/);
    assert.equal(stderr, 'SERVER_SECRET is not set, so the state of each key is unknown.\n');
  }
});

test('keys: changes nothing in the database', async () => {
  const rows = async () =>
    JSON.stringify([
      await file.sql`select * from secrets.secrets order by id`,
      await file.sql`select * from secrets.server_keys order by key_id`,
    ]);
  const before = await rows();
  await run([], { SERVER_SECRET: 'one-that-was-never-used-0123456789abcdef' });
  assert.equal(await rows(), before);
});

test('keys: exit 78 for missing or invalid settings', async () => {
  assertRefused(
    await runCommand(['secret', 'keys'], {}),
    78,
    /^gatehouse: SECRETS_DATABASE_URL or DATABASE_URL must be set, as postgres:\/\/[^\n]*\n$/,
  );
  assertRefused(
    await run([], { DATABASE_URL: 'mysql://marked@localhost/d' }),
    78,
    /DATABASE_URL must be postgres:\/\//,
  );
  assertRefused(
    await run([], { SERVER_SECRET: 'with, a comma' }),
    78,
    /SERVER_SECRET must be a text without commas/,
  );
  assertRefused(
    await run([], { SERVER_SECRET: 'x'.repeat(40), SERVER_SECRET_FILE: '/nowhere' }),
    78,
    /SERVER_SECRET and SERVER_SECRET_FILE are both set/,
  );
});

test('keys: exit 1 without a database', async () => {
  const away = new URL(file.url);
  away.port = '1';
  assertRefused(
    await run([], { ...held, DATABASE_URL: away.href }),
    1,
    /the connection to the database at 127\.0\.0\.1:1 failed \(ECONNREFUSED: no server listens there\)/,
  );
});

test('keys: exit 2 for invalid arguments', async () => {
  assertRefused(await run(['--yaml']), 2, /secret keys: Unknown option '--yaml'/);
  assertRefused(await run(['all']), 2, /secret keys: /);
});
