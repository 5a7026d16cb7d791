/** The commands for named tokens of secrets, and their effect on a running service. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test, type TestContext } from 'node:test';
import { createDatabase } from '../support/database.ts';
import { ask, startGatehouse } from '../support/gatehouse.ts';
import { buildProgram, type Finished, runProgram } from '../support/process.ts';

const program = buildProgram();
const { url: databaseUrl, sql } = await createDatabase();
const gatehouse = await startGatehouse({ after }, ['secrets'], databaseUrl, { LOG_LEVEL: 'debug' });
const base = gatehouse.url.secrets;

const run = (
  t: TestContext,
  words: readonly string[],
  given: Record<string, string> = { DATABASE_URL: databaseUrl },
) => runProgram(t, program, ['secret', 'token', ...words], given);
async function create(
  t: TestContext,
  ...options: string[]
): Promise<{ id: string; token: string }> {
  const { code, stdout, stderr } = await run(t, ['create', ...options]);
  assert.equal(code, 0, stderr);
  assert.match(stdout, /^share:[A-Za-z0-9_-]{43}\n$/);
  return { token: stdout.trim(), id: / id (\S+)\.\n/.exec(stderr)?.[1] ?? assert.fail(stderr) };
}
const statusOf = async (bearer: string, path = '/api/store/options') =>
  (await ask('GET', base + path, { bearer })).status;
function assertRefused({ code, stdout, stderr }: Finished, expected: number, said: RegExp): void {
  assert.deepEqual([code, stdout], [expected, ''], stderr);
  assert.match(stderr, said);
}

test('create: a sender may store, and an operator may do everything', async (t) => {
  const [sender, operator] = [
    await create(t, '--name', 'Ada'),
    await create(t, '--role', 'operator'),
  ];
  assert.equal(await statusOf(sender.token), 200);
  assert.equal(await statusOf(sender.token, '/api/store'), 403);
  assert.equal(await statusOf(operator.token, '/api/store'), 200);
});

test('create: only a digest is stored, and no token is logged', async (t) => {
  const { id, token } = await create(t);
  await statusOf(token);
  const [row] = await sql`select t::text as row from secrets.tokens t where id = ${id}`;
  assert.ok(!row?.row.includes(token) && !row?.row.includes(Buffer.from(token).toString('hex')));
  assert.ok(!gatehouse.stdout().includes(token));
});

test('list: name, role and state, never a token', async (t) => {
  const { id, token } = await create(t, '--name', 'Grace\u00a0Hopper', '--role', 'operator');
  const { code, stdout } = await run(t, ['list']);
  assert.equal(code, 0);
  assert.match(
    stdout,
    new RegExp(
      `^ID +NAME +ROLE +CREATED +STATE\n[\\s\\S]*^${id} +Grace.Hopper +operator +\\S+Z +active$`,
      'm',
    ),
  );
  assert.ok(!stdout.includes(token));
  const rows: Array<Record<string, unknown>> = JSON.parse(
    (await run(t, ['list', '--json'])).stdout,
  );
  assert.deepEqual(Object.keys(rows[0] ?? {}), [
    'id',
    'name',
    'role',
    'created_at',
    'revoked_at',
    'previous_until',
  ]);
});

test('rotate: both tokens are valid during the overlap, then the new one alone', async (t) => {
  const { id, token } = await create(t);
  const rotated = await run(t, ['rotate', id, '--overlap', '1h']);
  const next = rotated.stdout.trim();
  assert.deepEqual([rotated.code, await statusOf(token), await statusOf(next)], [0, 200, 200]);
  assert.match(
    (await run(t, ['list'])).stdout,
    new RegExp(`^${id} .*active, replaced; the old one until `, 'm'),
  );
  await sql`update secrets.tokens set previous_until = now() - interval '1 second' where id = ${id}`;
  assert.deepEqual([await statusOf(token), await statusOf(next)], [401, 200]);
  const last = (await run(t, ['rotate', id, '--overlap', '0'])).stdout.trim();
  assert.deepEqual([await statusOf(next), await statusOf(last)], [401, 200]);
});

test('revoke: at once, with the token that it has replaced, and again without an error', async (t) => {
  const { id, token } = await create(t);
  const next = (await run(t, ['rotate', id])).stdout.trim();
  assert.equal((await run(t, ['revoke', id])).code, 0);
  assert.deepEqual([await statusOf(token), await statusOf(next)], [401, 401]);
  assert.equal((await run(t, ['revoke', id])).code, 0);
  assertRefused(await run(t, ['rotate', id]), 1, /no active token has this id/);
});

test('invalid arguments: one line, exit 1 or 2', async (t) => {
  assertRefused(
    await run(t, ['create', '--role', 'admin']),
    2,
    /--role must be one of sender, operator/,
  );
  assertRefused(
    await run(t, ['create', '--name', 'a\nb']),
    2,
    /--name takes at most 255 printable characters/,
  );
  assertRefused(await run(t, ['rotate', 'x']), 2, /UUID/);
  assertRefused(
    await run(t, ['rotate', randomUUID(), '--overlap', 'soon']),
    2,
    /--overlap must be/,
  );
  assertRefused(await run(t, ['revoke', randomUUID()]), 1, /no active token has this id/);
  assertRefused(await run(t, ['list'], {}), 78, /DATABASE_URL/);
});
