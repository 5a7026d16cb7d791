/**
 * Each event of a secret is one log line and one count, without content. Wrong keys change only a
 * counter.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { connect } from '../../../scripts/postgres.ts';
import { untilLocked } from '../../support/connections.ts';
import { ask, AUTH_TOKEN, launch, startGatehouse, assertStatus } from '../../support/gatehouse.ts';
import { startHousekeeping } from '../../support/housekeeping.ts';
import { secretsClient, storedSecret, wrongKey } from '../../support/secrets.ts';

const TEXT = 'marked-password-text';
const PASSPHRASE = 'marked passphrase';

const gatehouse = await launch(['secrets'], { SHARE_PAGES: 'on' });
const { sql, databaseUrl } = gatehouse;
const base = gatehouse.url.secrets;
const { keep, receipt, remove } = secretsClient(base);

const keyIdOf = async (id: string): Promise<string> => (await storedSecret(sql, id)).key_id;

const metricsNow = async () => (await ask('GET', `${gatehouse.url.metrics}/metrics`)).text;
/** The counts by event. */
const countsIn = (text: string): Record<string, number> =>
  Object.fromEntries(
    [...text.matchAll(/^gatehouse_secret_events_total\{event="(\w+)"\} (\d+)$/gm)].map(
      ([, event = '', count]) => [event, Number(count)],
    ),
  );
const counts = async () => countsIn(await metricsNow());

type Line = Record<string, unknown>;
const events = (lines: readonly Line[]) =>
  lines.filter(({ message }) =>
    /^secret (stored|read|read failed|deleted|expired)$/.test(String(message)),
  );

/**
 * The log lines and counts that a request causes, without the request's own line and the lines of
 * the startup.
 */
async function traced(
  work: (by: ReturnType<typeof secretsClient>) => Promise<unknown>,
): Promise<{ lines: Line[]; counted: Record<string, number>; requestId: string }> {
  const requestId = randomUUID();
  const before = await counts();
  const written = gatehouse.log().length;
  await work(secretsClient(base, { 'x-request-id': requestId }));
  const counted: Record<string, number> = {};
  for (const [event, count] of Object.entries(await counts())) {
    if (count !== (before[event] ?? 0)) counted[event] = count - (before[event] ?? 0);
  }
  const lines = gatehouse
    .log()
    .slice(written)
    .filter(({ message }) => message !== 'request' && message !== 'server secret');
  return {
    lines: lines.map(({ time: _, instance: __, version: ___, ...line }) => line),
    counted,
    requestId,
  };
}

/** Exactly one line with exactly these members, and one count. */
function assertEvent(
  { lines, counted, requestId }: Awaited<ReturnType<typeof traced>>,
  event: string,
  id: string,
  keyId: string | null,
  reason?: string,
): void {
  assert.deepEqual(lines, [
    {
      level: 'info',
      service: 'secrets',
      message: `secret ${event}`,
      secret_id: id,
      key_id: keyId,
      request_id: requestId,
      ip: '127.0.0.1',
      ...(reason === undefined ? {} : { reason }),
    },
  ]);
  assert.deepEqual(counted, { [event.replace(' ', '_')]: 1 });
}

for (const [what, options] of [
  ['', {}],
  [' with a passphrase', { passphrase: PASSPHRASE }],
] as const) {
  test(`events: one line and one count for storing, reading and deleting a secret${what}`, async () => {
    let kept = { id: '', secret: '' };
    const creation = await traced(async (by) => {
      kept = await by.keep(TEXT, options);
    });
    const keyId = await keyIdOf(kept.id);
    assert.match(keyId, /^[0-9a-f]{16}$/);
    assertEvent(creation, 'stored', kept.id, keyId);
    const read = (by: ReturnType<typeof secretsClient>) =>
      by.decrypt(kept.id, kept.secret, what === '' ? undefined : PASSPHRASE);
    for (let count = 0; count < 2; count += 1)
      assertEvent(await traced(read), 'read', kept.id, keyId);
    assertEvent(await traced((by) => by.remove(kept.id)), 'deleted', kept.id, keyId);
    assertEvent(await traced(read), 'read failed', kept.id, keyId, 'unknown or ended');
  });
}

test('events: a read by a share link is recorded like any other', async () => {
  const { id, secret } = await keep(TEXT, { max_reads: 1 });
  const keyId = await keyIdOf(id);
  const reads = [
    [wrongKey(), 'read failed', 'wrong key'],
    [secret, 'read', undefined],
  ] as const;
  for (const [key, event, reason] of reads) {
    const requestId = randomUUID();
    const found = await traced(() =>
      ask('POST', `${base}/s/${id}`, {
        body: { secret: key },
        headers: { 'x-request-id': requestId },
      }),
    );
    assertEvent({ ...found, requestId }, event, id, keyId, reason);
  }
});

test('events: each failed read is one line with its reason and one count', async () => {
  const { id, secret } = await keep(TEXT, { passphrase: PASSPHRASE, max_reads: 1 });
  const keyId = await keyIdOf(id);
  assertEvent(
    await traced((by) => by.decrypt(id, wrongKey())),
    'read failed',
    id,
    keyId,
    'wrong key',
  );
  assertEvent(
    await traced((by) => by.decrypt(id, 'marked-and-no-key')),
    'read failed',
    id,
    keyId,
    'malformed key',
  );
  assertEvent(
    await traced((by) => by.decrypt(id, secret, 'marked and wrong')),
    'read failed',
    id,
    keyId,
    'wrong passphrase',
  );
  await secretsClient(base).decrypt(id, secret, PASSPHRASE);
  assertEvent(
    await traced((by) => by.decrypt(id, secret, PASSPHRASE)),
    'read failed',
    id,
    keyId,
    'unknown or ended',
  );
  const unknown = randomUUID();
  assertEvent(
    await traced((by) => by.decrypt(unknown, wrongKey())),
    'read failed',
    unknown,
    null,
    'unknown or ended',
  );
  assert.equal((await receipt(id)).json.failed_reads, 4);
});

test('events: a reader that loses the last read to another one is logged', async (t) => {
  const rival = await startGatehouse(t, ['secrets'], databaseUrl);
  const blocker = connect(databaseUrl);
  t.after(() => blocker.end());
  // Readers that wait for a row try again and again, so either of them may be first.
  for (let round = 1; round <= 200; round += 1) {
    const { id, secret } = await keep(TEXT, { max_reads: 1 });
    const keyId = await keyIdOf(id);
    await blocker`begin`;
    await blocker`select from secrets.secrets where id = ${id} for update`;
    let statuses: number[] = [];
    const { lines, counted } = await traced(async (by) => {
      const both = [secretsClient(rival.url.secrets).decrypt(id, secret), by.decrypt(id, secret)];
      await untilLocked(sql, 1);
      await blocker`commit`;
      statuses = (await Promise.all(both)).map(({ status }) => status);
    });
    assert.deepEqual([...statuses].sort(), [200, 404]);
    if (statuses[1] === 200) continue;
    const logged = lines.map(({ message, secret_id, key_id, reason }) => [
      message,
      secret_id,
      key_id,
      reason,
    ]);
    // Without a line, this reader came too late to find the row.
    if (logged.length === 0) continue;
    assert.deepEqual(logged, [['secret read failed', id, keyId, 'unknown or ended']]);
    return assert.deepEqual(counted, { read_failed: 1 });
  }
  assert.fail('this reader never lost');
});

test('events: no line for receipts, lists, second deletions and rejected requests', async () => {
  const { id, secret } = await keep(TEXT, { passphrase: PASSPHRASE });
  const gone = await keep(TEXT);
  await remove(gone.id);
  const { lines, counted } = await traced(async (by) => {
    for (const answer of [
      await by.receipt(id),
      await by.list(),
      await by.list('?limit=1'),
      await by.options(),
      await by.remove(gone.id),
    ]) {
      assert.equal(answer.status, 200);
    }
    assert.equal((await by.decrypt(id, secret)).status, 403);
    assert.equal((await by.remove(randomUUID())).status, 404);
    assert.equal((await by.encrypt({ password: '' })).status, 400);
    assert.equal((await by.decrypt(id, 1)).status, 400);
    assertStatus(
      await ask('POST', `${base}/api/store/decrypt?id=${id}`, { body: { secret } }),
      401,
    );
  });
  assert.deepEqual([lines, counted], [[], {}]);
});

test('events: an expiry is one line and one count, however often housekeeping runs', async (t) => {
  const housekeeping = startHousekeeping(t, databaseUrl);
  const kept = await Promise.all([1, 2, 3].map(() => keep(TEXT)));
  const keyIds = await Promise.all(kept.map(({ id }) => keyIdOf(id)));
  const ids = kept.map(({ id }) => id).sort();
  await sql`update secrets.secrets set expires_at = now() - interval '1 second' where id in ${sql(ids)}`;
  for (let turn = 0; turn < 3; turn += 1) await housekeeping.run('empty expired secrets');
  // The service's own housekeeping may expire some of them: together they log each once.
  const lines = [...events(housekeeping.log()), ...events(gatehouse.log())].filter(
    ({ message }) => message === 'secret expired',
  );
  assert.deepEqual(lines.map(({ secret_id }) => secret_id).sort(), ids);
  for (const { time: _, instance: __, version: ___, secret_id, service: ____, ...line } of lines) {
    assert.deepEqual(
      line,
      { level: 'info', message: 'secret expired', key_id: keyIds[0] },
      String(secret_id),
    );
  }
  assert.equal(
    (countsIn(housekeeping.metrics()).expired ?? 0) + ((await counts()).expired ?? 0),
    3,
  );
});

test('wrong keys of every kind change only the count of failed reads', async () => {
  const WRONG = 200;
  const { id, secret } = await keep(TEXT, { max_reads: 1 });
  const other = await keep(TEXT, { max_reads: 1 });
  const right = Buffer.from(secret, 'base64url');
  const oneBitOff = (bit: number) =>
    Buffer.from(
      right.map((byte, index) => (index === bit >> 3 ? byte ^ (1 << (bit & 7)) : byte)),
    ).toString('base64url');
  const kinds = [
    wrongKey,
    (count: number) => oneBitOff(count % 256),
    () => other.secret,
    () => secret.slice(1),
    (count: number) => `${secret}${count}`,
  ];
  const tables = async () =>
    JSON.stringify(
      await Promise.all([
        sql`select * from secrets.server_keys`,
        sql`select * from secrets.throttles order by key`,
        sql`select * from secrets.secrets where id <> ${id} order by id`,
      ]),
    );
  const row = await storedSecret(sql, id);
  const rest = await tables();
  const before = await counts();
  const guesses = Array.from({ length: WRONG }, (_, at) => kinds[at % kinds.length]?.(at) ?? '');
  const answers = await Promise.all(guesses.map((key) => secretsClient(base).decrypt(id, key)));
  const statuses = new Set(answers.map(({ status }) => status));
  assert.deepEqual([...statuses], [404]);
  assert.deepEqual(await storedSecret(sql, id), { ...row, failed_reads: String(WRONG) });
  assert.equal(await tables(), rest);
  assert.deepEqual(await counts(), { ...before, read_failed: (before.read_failed ?? 0) + WRONG });
  assert.equal((await receipt(id)).json.failed_reads, WRONG);
  assert.equal((await secretsClient(base).decrypt(id, secret)).json.password, TEXT);
});

test('a key that a program has put into the path is in no log line', async () => {
  const { id, secret } = await keep(TEXT);
  await ask('GET', `${base}/s/${id}%23${secret}`);
  await ask('GET', `${base}/s/${id}%2523${secret}`);
  assert.ok(!(gatehouse.stdout() + gatehouse.stderr()).includes(secret));
});

test('the output contains no text, key, passphrase, token or stored content', async () => {
  const { id, secret } = await keep(TEXT);
  const { blob, commitment, tag } = await storedSecret(sql, id);
  await secretsClient(base).decrypt(id, secret);
  const written = gatehouse.stdout() + gatehouse.stderr() + (await metricsNow());
  const marks = [
    'marked',
    secret,
    AUTH_TOKEN,
    ...[blob, commitment, tag].flatMap((part: Buffer) => [
      part.toString('hex'),
      part.toString('base64url'),
    ]),
  ];
  for (const mark of marks) assert.ok(!written.includes(mark), mark);
});
