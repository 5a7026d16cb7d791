/** Commands of identity at once, with bytes that are no text, and with more rows than a page. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { codeLimit } from '../../../src/identity/factors/codes.ts';
import { readThrottleSecret } from '../../../src/identity/store/failures.ts';
import { takeAttempt } from '../../../src/platform/db/throttle.ts';
import { assertRefused, runCommand } from '../../support/commands.ts';
import { createDatabase } from '../../support/database.ts';
import { makeDirectory } from '../../support/directories.ts';
import { meanwhile } from '../../support/meanwhile.ts';
import { addUser, openIdentity } from '../../support/users.ts';

const { url, sql } = await createDatabase();
const database = openIdentity({ after }, url);
const run = (words: readonly string[], input: string | Buffer = '') =>
  runCommand(words, { DATABASE_URL: url, PASSWORD_SCRYPT: 'ln=4,r=8,p=1' }, input);
const create = (email: string, input: string | Buffer) =>
  run(['user', 'create', '--username', 'race', '--email', email, '--password-stdin'], input);

test('of users created at once under one name, exactly one is stored', async () => {
  const emails = ['1@example.org', '2@example.org', '3@example.org'];
  const finished = await Promise.all(emails.map((email) => create(email, 'a passphrase for it')));
  assert.deepEqual(finished.map(({ code }) => code).sort(), [0, 1, 1]);
  assert.equal((await sql`select from identity.users where username = 'race'`).length, 1);
});

test('an import names the line whose username is taken meanwhile, and goes on', async (t) => {
  const file = join(makeDirectory(t, 'import'), 'users.csv');
  writeFileSync(file, 'username,email\nmet,met@example.org\nlater,later@example.org\n');
  const id = await addUser(database, 'renamed');
  const [finished] = await meanwhile(
    sql,
    (held) => held`update identity.users set username_key = 'met' where id = ${id}`,
    () => [run(['user', 'import', file])],
  );
  assert.equal(finished?.code, 1);
  assert.match(finished.stderr, /^line 2: username is taken by another user\n.*New users: 1, /s);
});

test('a password that is no UTF-8 text is rejected', async () => {
  const input = Buffer.from('fffefdfcfbfaf9f8f7f6f5f4', 'hex');
  assertRefused(await create('4@example.org', input), 2, /UTF-8/);
  assert.equal((await sql`select from identity.users where email like '4%'`).length, 0);
});

test('key list has all keys, newest first', async () => {
  const userId = await addUser(database, 'collector');
  await sql`
    insert into identity.api_keys (id, key_digest, key_prefix, name, user_id, created_at)
    select gen_random_uuid(), sha256(n::text::bytea), 'key:abcdefgh', n::text, ${userId},
      now() - n * interval '1 minute' from generate_series(1, 230) n`;
  for (const words of [[], ['--user', 'Collector']]) {
    const { stdout } = await run(['key', 'list', '--json', ...words]);
    const keys: Array<{ name: string }> = JSON.parse(stdout);
    const names = Array.from({ length: 230 }, (_, index) => String(index + 1));
    assert.deepEqual(
      keys.map(({ name }) => name),
      names,
    );
  }
});

test('user unlock also clears the limit of codes', async () => {
  const id = await addUser(database, 'grace');
  const limit = codeLimit(await readThrottleSecret(database), id);
  const take = () => takeAttempt(database, 'identity', limit);
  for (let count = 0; count < 20; count += 1) assert.equal(await take(), 0);
  assert.ok((await take()) > 0);
  // As `factors/codes.ts` notes it.
  await sql`insert into identity.audit (id, created_at, event, via, user_id, ip, count, detail)
    values (gen_random_uuid(), now(), 'factor.failed', 'session', ${id}, '192.0.2.5', 1, '')`;
  const { stderr } = await run(['user', 'unlock', id]);
  assert.equal(stderr, 'Unlocked user "grace": 1 limit cleared.\n');
  assert.equal(await take(), 0);
});
