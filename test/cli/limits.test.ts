/** The limits of failed logins, as an operator sees and clears them. */
import assert from 'node:assert/strict';
import { after, test, type TestContext } from 'node:test';
import { createDatabase } from '../support/database.ts';
import { startGatehouse } from '../support/gatehouse.ts';
import { BEHIND_PROXY, loginFrom, loginsFrom } from '../support/logins.ts';
import { buildProgram, runProgram } from '../support/process.ts';
import { addUser, openIdentity, PASSWORD } from '../support/users.ts';

const program = buildProgram();
const { url, sql } = await createDatabase();
const { identity } = (await startGatehouse({ after }, ['identity'], url, BEHIND_PROXY)).url;
const database = openIdentity({ after }, url);
for (const name of ['ada', 'grace']) await addUser(database, name);

const run = (t: TestContext, ...words: readonly string[]) =>
  runProgram(t, program, words, { DATABASE_URL: url });

async function list(t: TestContext, ...words: readonly string[]) {
  const { code, stdout, stderr } = await run(t, 'throttle', 'list', '--json', ...words);
  assert.deepEqual([code, stderr], [0, '']);
  const rows: Array<{
    limit: string;
    user: string | null;
    network: string | null;
    failures: number;
    wait_seconds: number;
  }> = JSON.parse(stdout);
  return rows
    .map((row) => `${row.limit} ${row.user} ${row.network} ${row.failures} ${row.wait_seconds > 0}`)
    .sort();
}

test('throttle list names what has failed, and user unlock forgets it for one user', async (t) => {
  assert.deepEqual(await list(t), []);
  assert.deepEqual(
    await loginsFrom(identity, '192.0.2.1', 'ada', 6),
    [401, 401, 401, 401, 401, 429],
  );
  assert.deepEqual(await loginsFrom(identity, '2001:db8::1', 'ada', 2), [401, 401]);
  assert.deepEqual(await loginsFrom(identity, '192.0.2.1', 'grace', 1), [401]);
  assert.deepEqual(await loginsFrom(identity, '192.0.2.9', 'nobody-here', 1), [401]);
  const ofAda = [
    'account ada null 7 false',
    'account from network ada 192.0.2.1 5 true',
    'account from network ada 2001:db8:0:0::/64 2 false',
  ];
  const others = ['account from network grace 192.0.2.1 1 false', 'account grace null 1 false'];
  const networks = [
    'network null 192.0.2.1 6 false',
    'network null 192.0.2.9 1 false',
    'network null 2001:db8:0:0::/64 2 false',
  ];
  assert.deepEqual(await list(t), [...ofAda, ...others, ...networks].sort());
  assert.deepEqual(await list(t, '--user', 'grace'), [...others, 'network null 192.0.2.1 6 false']);
  const table = await run(t, 'throttle', 'list', '--user', 'ada');
  assert.match(table.stdout, /^LIMIT +USER +NETWORK +FAILURES +OF +BLOCKED FOR\n/);
  assert.match(table.stdout, /^account from network +ada +192\.0\.2\.1 +5 +5 +\d+ s$/m);

  const unlocked = await run(t, 'user', 'unlock', 'ada');
  assert.deepEqual(
    [unlocked.code, unlocked.stdout, unlocked.stderr],
    [0, '', 'Unlocked user "ada": 3 limits cleared.\n'],
  );
  assert.deepEqual(await list(t), [...others, ...networks].sort());
  const [row] = await sql`
    select event, via, count, user_id = (select id from identity.users where username = 'ada') as about
    from identity.audit where event = 'login.unlocked'`;
  assert.deepEqual({ ...row }, { event: 'login.unlocked', via: 'command', count: 3, about: true });
  assert.equal((await loginFrom(identity, '192.0.2.1', 'ada', PASSWORD)).status, 200);

  const again = await run(t, 'user', 'unlock', 'ada');
  assert.deepEqual(
    [again.code, again.stderr],
    [0, 'User "ada" has no failed login that counts.\n'],
  );
  assert.equal(
    (await sql`select from identity.audit where event = 'login.unlocked'`).length,
    1,
    'nothing was changed',
  );
});

test('user unlock also clears the limit of codes, and keeps the networks that are known', async (t) => {
  const [{ id } = { id: '' }] = await sql<
    Array<{ id: string }>
  >`select id from identity.users where username = 'grace'`;
  assert.equal((await loginFrom(identity, '192.0.2.5', 'grace', PASSWORD)).status, 200);
  const known = () =>
    sql`select key from identity.throttles where known_until > now() order by key`;
  const before = [...(await known())];
  // As `factors/codes.ts` counts wrong codes.
  const { codeLimit } = await import('../../src/identity/factors/codes.ts');
  const { readThrottleSecret } = await import('../../src/identity/store/audit.ts');
  const { takeAttempt } = await import('../../src/db/attempts.ts');
  const { noteFailure } = await import('../../src/identity/factors/store.ts');
  const limit = codeLimit(await readThrottleSecret(database), id);
  for (let count = 0; count < 20; count += 1)
    assert.ok(await takeAttempt(database, 'identity', limit));
  assert.equal(await takeAttempt(database, 'identity', limit), false);
  const actor = {
    via: 'session',
    userId: null,
    keyId: null,
    ip: '192.0.2.5',
    requestId: null,
    caller: null,
  } as const;
  await noteFailure(database, actor, id);
  assert.ok((await list(t, '--user', 'grace')).includes('codes grace null 20 true'));

  assert.equal((await run(t, 'user', 'unlock', id)).code, 0);
  assert.ok(await takeAttempt(database, 'identity', limit));
  assert.deepEqual([...(await known())], before);
});

test('user unlock and throttle list refuse a user that does not exist', async (t) => {
  for (const words of [
    ['user', 'unlock', 'nobody'],
    ['throttle', 'list', '--user', 'nobody'],
  ]) {
    const { code, stdout, stderr } = await run(t, ...words);
    assert.deepEqual([code, stdout], [1, '']);
    assert.equal(
      stderr,
      'gatehouse: there is no user with this id or name; see: gatehouse user list\n',
    );
  }
});
