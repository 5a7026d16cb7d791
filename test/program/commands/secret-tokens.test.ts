/** The commands for named tokens of secrets, and their effect on a running service. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { assertRefused, runCommand } from '../../support/commands.ts';
import { ask, launch } from '../../support/gatehouse.ts';

const gatehouse = await launch(['secrets'], { LOG_LEVEL: 'debug' });
const { sql, databaseUrl } = gatehouse;
const base = gatehouse.url.secrets;

const run = (
  words: readonly string[],
  given: Record<string, string> = { DATABASE_URL: databaseUrl },
) => runCommand(['secret', 'token', ...words], given);
async function create(...options: string[]): Promise<{ id: string; token: string }> {
  const { code, stdout, stderr } = await run(['create', ...options]);
  assert.equal(code, 0, stderr);
  assert.match(stdout, /^share:[A-Za-z0-9_-]{43}\n$/);
  return { token: stdout.trim(), id: / id (\S+)\.\n/.exec(stderr)?.[1] ?? assert.fail(stderr) };
}
const statusOf = async (bearer: string, path = '/api/store/options') =>
  (await ask('GET', base + path, { bearer })).status;
test('create: a sender may store, and an operator may do everything', async () => {
  const sender = await create('--name', 'Ada');
  const operator = await create('--role', 'operator');
  assert.equal(await statusOf(sender.token), 200);
  assert.equal(await statusOf(sender.token, '/api/store'), 403);
  assert.equal(await statusOf(operator.token, '/api/store'), 200);
});

test('create: only a digest is stored, and no token is logged', async () => {
  const { id, token } = await create();
  await statusOf(token);
  const [row] = await sql`select t::text as row from secrets.tokens t where id = ${id}`;
  assert.ok(!row?.row.includes(token) && !row?.row.includes(Buffer.from(token).toString('hex')));
  assert.ok(!gatehouse.stdout().includes(token));
});

test('list: name, role and state, never a token', async () => {
  const { id, token } = await create('--name', 'Grace\u00a0Hopper', '--role', 'operator');
  const { code, stdout } = await run(['list']);
  assert.equal(code, 0);
  assert.match(
    stdout,
    new RegExp(
      `^ID +NAME +ROLE +CREATED +STATE\n[\\s\\S]*^${id} +Grace.Hopper +operator +\\S+Z +active$`,
      'm',
    ),
  );
  assert.ok(!stdout.includes(token));
  const rows: Array<Record<string, unknown>> = JSON.parse((await run(['list', '--json'])).stdout);
  assert.deepEqual(Object.keys(rows[0] ?? {}), [
    'id',
    'name',
    'role',
    'created_at',
    'revoked_at',
    'previous_until',
  ]);
});

test('rotate: both tokens are valid during the overlap, then the new one alone', async () => {
  const { id, token } = await create();
  const rotated = await run(['rotate', id, '--overlap', '1h']);
  const next = rotated.stdout.trim();
  assert.deepEqual([rotated.code, await statusOf(token), await statusOf(next)], [0, 200, 200]);
  assert.match(
    (await run(['list'])).stdout,
    new RegExp(`^${id} .*active, replaced; the old one until `, 'm'),
  );
  await sql`update secrets.tokens set previous_until = now() - interval '1 second' where id = ${id}`;
  assert.deepEqual([await statusOf(token), await statusOf(next)], [401, 200]);
  const last = (await run(['rotate', id, '--overlap', '0'])).stdout.trim();
  assert.deepEqual([await statusOf(next), await statusOf(last)], [401, 200]);
});

test('revoke: at once, with the token that it has replaced, and again without an error', async () => {
  const { id, token } = await create();
  const next = (await run(['rotate', id])).stdout.trim();
  assert.equal((await run(['revoke', id])).code, 0);
  assert.deepEqual([await statusOf(token), await statusOf(next)], [401, 401]);
  assert.equal((await run(['revoke', id])).code, 0);
  assertRefused(await run(['rotate', id]), 1, /no active token has this id/);
});

test('invalid arguments: one line, exit 1 or 2', async () => {
  assertRefused(
    await run(['create', '--role', 'admin']),
    2,
    /--role must be one of sender, operator/,
  );
  assertRefused(
    await run(['create', '--name', 'a\nb']),
    2,
    /--name takes at most 255 printable characters/,
  );
  assertRefused(await run(['rotate', 'x']), 2, /UUID/);
  assertRefused(await run(['rotate', randomUUID(), '--overlap', 'soon']), 2, /--overlap must be/);
  assertRefused(await run(['revoke', randomUUID()]), 1, /no token has this id/);
  assertRefused(await run(['list'], {}), 78, /DATABASE_URL/);
});
