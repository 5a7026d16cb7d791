/** `user unlock`, where `transcripts/user-unlock.txt` cannot fail so often. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { codeLimit } from '../../../src/identity/factors/codes.ts';
import { readThrottleSecret } from '../../../src/identity/store/failures.ts';
import { takeAttempt } from '../../../src/platform/db/throttle.ts';
import { runCommand } from '../../support/commands.ts';
import { createDatabase } from '../../support/database.ts';
import { addUser, openIdentity } from '../../support/users.ts';

const { url, sql } = await createDatabase();
const database = openIdentity({ after }, url);

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
