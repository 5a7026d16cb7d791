/** The options document is what encrypt enforces. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { launch, startGatehouse } from '../../support/gatehouse.ts';
import { type SecretsClient, secretsClient, storedSecret } from '../../support/secrets.ts';
import { problems } from '../../support/settings.ts';

const DAY = 86_400;
type Limit = Readonly<{ default: number | null; max: number }>;
const EXPIRES_IN: Limit = { default: 7 * DAY, max: 30 * DAY };
const MAX_READS: Limit = { default: null, max: 1_000 };
const DEFAULTS = {
  expires_in: EXPIRES_IN,
  max_reads: MAX_READS,
  password: { max_bytes: 64_512 },
  passphrase: { min_length: 4 },
  share_pages: false,
  caller: { role: 'operator', user: null },
};

const { secrets, sql, databaseUrl } = await launch(['secrets']);

/** Stores a secret and checks its lifetime, within 10 s, and its read limit in the row. */
async function assertMade(
  { keep }: SecretsClient,
  request: { expires_in?: number; max_reads?: number },
  seconds: number | null,
  reads: number | null,
): Promise<void> {
  const { id, expires_at } = await keep('x', request);
  const row = await storedSecret(sql, id);
  assert.deepEqual([row.expires_at?.toISOString() ?? null, row.max_reads], [expires_at, reads]);
  const lifetime = row.expires_at && (row.expires_at - row.created_at) / 1_000;
  assert.equal(lifetime === null, seconds === null);
  assert.ok(Math.abs(lifetime - (seconds ?? 0)) < 10, `${lifetime} s instead of ${seconds} s`);
}

async function assertRefused(
  { encrypt }: SecretsClient,
  body: object,
  path: string,
  message: string,
): Promise<void> {
  const count = async () => (await sql`select from secrets.secrets`).length;
  const before = await count();
  const { status, json, text } = await encrypt({ password: 'x', ...body });
  assert.deepEqual([status, json.error?.code], [400, 'invalid_body'], text);
  assert.equal(json.error.fields[0].path, path);
  assert.ok(json.error.fields[0].message.startsWith(message), text);
  assert.equal(await count(), before);
}

/** Checks the defaults, each maximum, and one more than each maximum. */
async function assertTrue(client: SecretsClient): Promise<void> {
  const { expires_in, max_reads, passphrase, password } = (await client.options()).json;
  await assertMade(client, {}, expires_in.default, max_reads.default);
  const most = { expires_in: expires_in.max, max_reads: max_reads.max };
  await assertMade(client, most, most.expires_in, most.max_reads);
  for (const [name, max] of Object.entries(most)) {
    const message = `must be a whole number from 1 to ${max}`;
    for (const value of [max + 1, 0])
      await assertRefused(client, { [name]: value }, `/${name}`, message);
  }
  const { min_length } = passphrase;
  await client.keep('x', { passphrase: 'x'.repeat(min_length) });
  const short = { passphrase: 'x'.repeat(min_length - 1) };
  const least = `must have at least ${min_length} characters`;
  await assertRefused(client, short, '/passphrase', least);
  const { max_bytes } = password;
  await client.keep('x'.repeat(max_bytes));
  const long = { password: 'x'.repeat(max_bytes + 1) };
  await assertRefused(client, long, '/password', `must have at most ${max_bytes} bytes`);
}

test('options: exactly these members and values by default, and encrypt obeys them', async () => {
  const client = secretsClient(secrets);
  assert.equal((await client.options()).text, JSON.stringify(DEFAULTS));
  await assertTrue(client);
});

const lifetimes = (usual: number | null, max: number) => ({
  expires_in: { default: usual, max },
});
const reads = (usual: number | null, max: number) => ({ max_reads: { default: usual, max } });
const SETTINGS: ReadonlyArray<readonly [environment: Record<string, string>, expected: object]> = [
  [
    { SECRET_TTL: '3600', SECRET_READS: '3', SECRET_READS_MAX: '5' },
    { ...lifetimes(3_600, 30 * DAY), ...reads(3, 5) },
  ],
  [
    { SECRET_TTL: '0', SECRET_READS: '9', SECRET_READS_MAX: '5' },
    { ...lifetimes(null, 30 * DAY), ...reads(5, 5) },
  ],
  [
    { SECRET_TTL: '7200', SECRET_TTL_MAX: '3600', SECRET_READS: '1' },
    { ...lifetimes(3_600, 3_600), ...reads(1, 1_000) },
  ],
  [
    { SECRET_TTL_MAX: String(366 * DAY), SECRETS_MAX_BODY_BYTES: '1048576' },
    { ...lifetimes(7 * DAY, 366 * DAY), password: { max_bytes: 1_047_552 } },
  ],
  [{ SHARE_PAGES: 'on' }, { share_pages: true, password: { max_bytes: 1_637_376 } }],
  [{ SHARE_PAGES: 'on', SECRETS_MAX_BODY_BYTES: '65536' }, { share_pages: true }],
];
for (const [environment, expected] of SETTINGS) {
  const what = Object.entries(environment).join(' and ');
  test(`options: with ${what}, encrypt accepts each limit and rejects more`, async (t) => {
    const { url } = await startGatehouse(t, ['secrets'], databaseUrl, environment);
    const client = secretsClient(url.secrets);
    assert.deepEqual((await client.options()).json, { ...DEFAULTS, ...expected });
    await assertTrue(client);
  });
}

test('new limits do not affect secrets stored before', async (t) => {
  const before = await secretsClient(secrets).keep('x', { expires_in: 30 * DAY, max_reads: 2 });
  const narrow = { SECRET_TTL_MAX: '60', SECRET_READS_MAX: '1' };
  const { url } = await startGatehouse(t, ['secrets'], databaseUrl, narrow);
  const client = secretsClient(url.secrets);
  for (let read = 0; read < 2; read += 1)
    assert.equal((await client.decrypt(before.id, before.secret)).status, 200);
  assert.equal((await client.receipt(before.id)).json.expires_at, before.expires_at);
});

/** Of the others, `test/program/settings.test.ts` has the limits. */
test('SECRET_TTL and SECRET_READS are whole numbers with a limit', () => {
  for (const [name, most, values] of [
    ['SECRET_TTL', 31_622_400, ['-1', '31622401', '1.5', 'never']],
    ['SECRET_READS', 1_000, ['-1', '1001', '1.0', '0x1', '-0']],
  ] as const) {
    const said = [`${name} must be a whole number from 0 to ${most}.`];
    for (const value of values)
      assert.deepEqual(problems({ [name]: value }, ['secrets']), said, value);
  }
});
