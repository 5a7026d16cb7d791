/** What transcripts cannot show: a name that is taken meanwhile, and many failed codes. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { codeLimit } from '../../../src/identity/factors/codes.ts';
import { readThrottleSecret } from '../../../src/identity/store/failures.ts';
import { takeAttempt } from '../../../src/platform/db/throttle.ts';
import { runCommand } from '../../support/commands.ts';
import { createDatabase } from '../../support/database.ts';
import { makeDirectory } from '../../support/directories.ts';
import { meanwhile } from '../../support/meanwhile.ts';
import { addUser, openIdentity } from '../../support/users.ts';

const { url, sql } = await createDatabase();
const database = openIdentity({ after }, url);

test('an import names the line whose username is taken meanwhile, and goes on', async (t) => {
  const file = join(makeDirectory(t, 'import'), 'users.csv');
  writeFileSync(file, 'username,email\nmet,met@example.org\nlater,later@example.org\n');
  const id = await addUser(database, 'renamed');
  const [finished] = await meanwhile(
    sql,
    (held) => held`update identity.users set username_key = 'met' where id = ${id}`,
    () => [runCommand(['user', 'import', file], { DATABASE_URL: url })],
  );
  assert.equal(finished?.code, 1);
  assert.match(finished.stderr, /^line 2: username is taken by another user\n.*New users: 1, /s);
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
  const { stderr } = await runCommand(['user', 'unlock', id], { DATABASE_URL: url });
  assert.equal(stderr, 'Unlocked user "grace": 1 limit cleared.\n');
  assert.equal(await take(), 0);
});
