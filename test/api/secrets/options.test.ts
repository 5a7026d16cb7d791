/** The limits and defaults for new secrets: the options document is what encrypt enforces. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { ConfigurationError } from '../../../src/platform/process/settings.ts';
import { readConfig } from '../../support/settings.ts';
import { launch, startGatehouse, variables } from '../../support/gatehouse.ts';
import { type SecretsClient, secretsClient } from '../../support/secrets.ts';

const DAY = 86_400;
const DEFAULTS = {
  expires_in: { default: 7 * DAY, max: 30 * DAY },
  max_reads: { default: null, max: 1_000 },
  password: { max_bytes: 64_512 },
  passphrase: { min_length: 4 },
  share_pages: false,
  caller: { role: 'operator', user: null },
};
type Options = Omit<typeof DEFAULTS, 'expires_in' | 'max_reads'> &
  Record<
    'expires_in' | 'max_reads',
    {
      default: number | null;
      max: number;
    }
  >;

const { url, sql, databaseUrl } = await launch(['secrets']);
const standard = secretsClient(url.secrets);

const countRows = async () => Number((await sql`select count(*) from secrets.secrets`)[0]?.count);
const serveWith = async (t: TestContext, environment: Record<string, string>) =>
  secretsClient((await startGatehouse(t, ['secrets'], databaseUrl, environment)).url.secrets);

const readOptions = async (client: SecretsClient): Promise<Options> =>
  (await client.options()).json;

/** Stores a secret and checks its lifetime, within 30 s, and its read limit in the row. */
async function assertMade(
  client: SecretsClient,
  request: { expires_in?: number; max_reads?: number },
  seconds: number | null,
  reads: number | null,
): Promise<void> {
  const { id, expires_at } = await client.keep('x', request);
  const [row] = await sql`
    select expires_at, max_reads,
      extract(epoch from created_at + make_interval(secs => ${seconds}) - expires_at)::float8
        as late
    from secrets.secrets where id = ${id}`;
  assert.equal(row?.expires_at?.toISOString() ?? null, expires_at);
  assert.equal(row?.max_reads, reads);
  assert.equal(expires_at === null, seconds === null);
  assert.ok(seconds === null || Math.abs(row?.late) < 10, `${row?.late} s away from ${seconds} s`);
}

async function assertRefused(
  client: SecretsClient,
  body: unknown,
  field: string,
  message: RegExp,
): Promise<void> {
  const before = await countRows();
  const { status, json, text } = await client.encrypt(body);
  assert.deepEqual([status, json.error?.code], [400, 'invalid_body'], text);
  assert.deepEqual(
    json.error.fields.map((fault: { path: string }) => fault.path),
    [`/${field}`],
  );
  assert.match(json.error.fields[0].message, message);
  assert.equal(await countRows(), before);
}

/** Checks the defaults, each maximum, and one more than each maximum. */
async function assertTrue(client: SecretsClient): Promise<void> {
  const { expires_in, max_reads, passphrase, password } = await readOptions(client);
  await assertMade(client, {}, expires_in.default, max_reads.default);
  await assertMade(
    client,
    { expires_in: expires_in.max, max_reads: max_reads.max },
    expires_in.max,
    max_reads.max,
  );
  await assertMade(client, { expires_in: 1, max_reads: 1 }, 1, 1);
  for (const [name, { max }] of Object.entries({ expires_in, max_reads })) {
    for (const value of [max + 1, 0, -1]) {
      await assertRefused(
        client,
        { password: 'x', [name]: value },
        name,
        new RegExp(`^must be a whole number from 1 to ${max}$`),
      );
    }
  }
  const short = 'x'.repeat(passphrase.min_length);
  await client.keep('x', { passphrase: short });
  await assertRefused(
    client,
    { password: 'x', passphrase: short.slice(1) },
    'passphrase',
    new RegExp(`^must have at least ${passphrase.min_length} characters$`),
  );
  await client.keep('x'.repeat(password.max_bytes));
  await assertRefused(
    client,
    { password: 'x'.repeat(password.max_bytes + 1) },
    'password',
    new RegExp(`^must have at most ${password.max_bytes} bytes`),
  );
}

test('options: exactly these members and values by default', async () => {
  const { status, text } = await standard.options();
  assert.equal(status, 200);
  assert.equal(text, JSON.stringify(DEFAULTS));
});

const SETTINGS: ReadonlyArray<
  readonly [what: string, environment: Record<string, string>, expected: Partial<Options>]
> = [
  ['nothing is set', {}, {}],
  [
    'SECRET_TTL is an hour',
    { SECRET_TTL: '3600' },
    { expires_in: { default: 3_600, max: 30 * DAY } },
  ],
  ['SECRET_TTL is 0', { SECRET_TTL: '0' }, { expires_in: { default: null, max: 30 * DAY } }],
  [
    'SECRET_TTL_MAX is below the default',
    { SECRET_TTL_MAX: '3600' },
    { expires_in: { default: 3_600, max: 3_600 } },
  ],
  [
    'SECRET_TTL is above SECRET_TTL_MAX',
    { SECRET_TTL: '7200', SECRET_TTL_MAX: '3600' },
    { expires_in: { default: 3_600, max: 3_600 } },
  ],
  [
    'SECRET_TTL_MAX is above 30 days',
    { SECRET_TTL_MAX: String(366 * DAY) },
    { expires_in: { default: 7 * DAY, max: 366 * DAY } },
  ],
  ['SECRET_READS is 1', { SECRET_READS: '1' }, { max_reads: { default: 1, max: 1_000 } }],
  [
    'SECRET_READS_MAX is 5',
    { SECRET_READS: '3', SECRET_READS_MAX: '5' },
    { max_reads: { default: 3, max: 5 } },
  ],
  [
    'SECRET_READS is above SECRET_READS_MAX',
    { SECRET_READS: '9', SECRET_READS_MAX: '5' },
    { max_reads: { default: 5, max: 5 } },
  ],
  [
    'SECRETS_MAX_BODY_BYTES is 1 MiB',
    { SECRETS_MAX_BODY_BYTES: '1048576' },
    { password: { max_bytes: 1_047_552 } },
  ],
  [
    'SHARE_PAGES is on',
    { SHARE_PAGES: 'on' },
    { share_pages: true, password: { max_bytes: 1_637_376 } },
  ],
  [
    'SHARE_PAGES is on, with a limit',
    { SHARE_PAGES: 'on', SECRETS_MAX_BODY_BYTES: '65536' },
    { share_pages: true },
  ],
];
for (const [what, environment, expected] of SETTINGS) {
  test(`options: with ${what}, encrypt accepts each limit and rejects more`, async (t) => {
    const client = await serveWith(t, environment);
    assert.deepEqual(await readOptions(client), { ...DEFAULTS, ...expected });
    await assertTrue(client);
  });
}

test('new limits do not affect secrets stored before', async (t) => {
  const before = await standard.keep('x', { expires_in: 30 * DAY, max_reads: 10 });
  const narrow = await serveWith(t, { SECRET_TTL_MAX: '60', SECRET_READS_MAX: '1' });
  for (let read = 0; read < 10; read += 1)
    assert.equal((await narrow.decrypt(before.id, before.secret)).status, 200);
  assert.equal((await narrow.receipt(before.id)).json.expires_at, before.expires_at);
});

/** Of the others, `test/program/settings.test.ts` has the limits. */
const REFUSED: ReadonlyArray<readonly [name: string, accepts: string, values: readonly string[]]> =
  [
    ['SECRET_TTL', 'a whole number from 0 to 31622400', ['-1', '31622401', '1.5', 'never']],
    ['SECRET_READS', 'a whole number from 0 to 1000', ['-1', '1001', '1.0', '0x1', '-0']],
  ];

function problems(environment: Record<string, string>): readonly string[] {
  try {
    readConfig(['secrets'], 'serve', { ...variables(databaseUrl), ...environment });
  } catch (error) {
    assert.ok(error instanceof ConfigurationError);
    return error.problems;
  }
  return [];
}

for (const [name, accepts, values] of REFUSED) {
  test(`${name} must be ${accepts}`, () => {
    for (const value of values)
      assert.deepEqual(problems({ [name]: value }), [`${name} must be ${accepts}.`], value);
  });
}
