/** The limits of failed logins, as an operator clears them. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { runCommand } from '../../support/commands.ts';
import { createDatabase } from '../../support/database.ts';
import { startGatehouse } from '../../support/gatehouse.ts';
import { BEHIND_PROXY, loginFrom, loginsFrom, passTime } from '../../support/logins.ts';
import { addUser, openIdentity, PASSWORD } from '../../support/users.ts';

const { url, sql } = await createDatabase();
const { identity } = (await startGatehouse({ after }, ['identity'], url, BEHIND_PROXY)).url;
const database = openIdentity({ after }, url);
for (const name of ['ada', 'grace']) await addUser(database, name);

const run = (...words: readonly string[]) => runCommand(words, { DATABASE_URL: url });

/** How many limits have counted a failure that still counts. */
async function countedLimits(): Promise<number> {
  const rows = await sql`
    select from identity.throttles where attempts > 0 and window_ends_at > now()`;
  return rows.length;
}

async function assertNothingCounts(username: string): Promise<void> {
  const { code, stderr } = await run('user', 'unlock', username);
  assert.deepEqual([code, stderr], [0, `User "${username}" has no failed login that counts.\n`]);
}

test('user unlock forgets what has failed for one user, and no other', async () => {
  assert.equal(await countedLimits(), 0);
  assert.deepEqual(
    await loginsFrom(identity, '192.0.2.1', 'ada', 6),
    [401, 401, 401, 401, 401, 429],
  );
  assert.deepEqual(await loginsFrom(identity, '2001:db8::1', 'ada', 2), [401, 401]);
  assert.deepEqual(await loginsFrom(identity, '192.0.2.1', 'grace', 1), [401]);
  // The account of ada and of grace, the three pairs of account and network, and two networks.
  assert.equal(await countedLimits(), 7);

  const unlocked = await run('user', 'unlock', 'ada');
  assert.deepEqual(
    [unlocked.code, unlocked.stdout, unlocked.stderr],
    [0, '', 'Unlocked user "ada": 3 limits cleared.\n'],
  );
  assert.equal(await countedLimits(), 4, 'those of grace and of the networks');
  const [row] = await sql`
    select event, via, count, user_id = (select id from identity.users
      where username = 'ada') as about
    from identity.audit where event = 'login.unlocked'`;
  assert.deepEqual({ ...row }, { event: 'login.unlocked', via: 'command', count: 3, about: true });
  assert.equal((await loginFrom(identity, '192.0.2.1', 'ada', PASSWORD)).status, 200);

  await assertNothingCounts('ada');
  // A failure of yesterday.
  assert.deepEqual(await loginsFrom(identity, '192.0.2.1', 'ada', 1), [401]);
  await passTime(sql, 24 * 3_600);
  await assertNothingCounts('ada');
  assert.equal(
    (await sql`select from identity.audit where event = 'login.unlocked'`).length,
    1,
    'nothing was changed',
  );
});

test('user unlock also clears the limit of codes, and keeps the networks that are known', async () => {
  const [{ id } = { id: '' }] = await sql<
    Array<{ id: string }>
  >`select id from identity.users where username = 'grace'`;
  assert.equal((await loginFrom(identity, '192.0.2.5', 'grace', PASSWORD)).status, 200);
  const known = () =>
    sql`select key from identity.throttles where known_until > now() order by key`;
  const before = [...(await known())];
  // As `factors/codes.ts` counts wrong codes.
  const { codeLimit } = await import('../../../src/identity/factors/codes.ts');
  const { auditEvent } = await import('../../../src/identity/store/audit.ts');
  const { readThrottleSecret } = await import('../../../src/identity/store/failures.ts');
  const { giveBackAttempts, takeAttempt } = await import('../../../src/platform/db/throttle.ts');
  const limit = codeLimit(await readThrottleSecret(database), id);
  for (let count = 0; count < 20; count += 1)
    assert.equal(await takeAttempt(database, 'identity', limit), 0);
  assert.ok((await takeAttempt(database, 'identity', limit)) > 0);
  const actor = {
    via: 'session',
    userId: null,
    keyId: null,
    ip: '192.0.2.5',
    requestId: null,
    caller: null,
  } as const;
  await auditEvent(database, { event: 'factor.failed', actor }, id);

  assert.equal((await run('user', 'unlock', id)).code, 0);
  assert.equal(await takeAttempt(database, 'identity', limit), 0);
  assert.deepEqual([...(await known())], before);
  await giveBackAttempts(database, 'identity', [limit.key]);
  await assertNothingCounts('grace');
});
