/** `key list` on more than one page of keys. `transcripts/keys.txt` has the rest. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { runCommand } from '../../support/commands.ts';
import { createDatabase } from '../../support/database.ts';
import { ask, logIn, startGatehouse } from '../../support/gatehouse.ts';
import { addUser, assertUser, openIdentity } from '../../support/users.ts';
import { wordsOf } from '../../support/words.ts';

const file = await createDatabase();
const environment = { DATABASE_URL: file.url };
const { identity } = (await startGatehouse({ after }, ['identity'], file.url)).url;
const database = openIdentity({ after }, file.url);
const administrator = await logIn(identity);

async function listed(...more: readonly string[]): Promise<Array<Record<string, unknown>>> {
  const words = ['key', 'list', '--json', ...more];
  const { code, stdout, stderr } = await runCommand(words, environment);
  assert.deepEqual([code, stderr], [0, '']);
  return JSON.parse(stdout);
}

test('key list has all keys, newest first, or those of one user', async () => {
  const userId = await addUser(database, 'collector');
  await file.sql`
    insert into identity.api_keys (id, key_digest, key_prefix, name, user_id, created_at)
    select gen_random_uuid(), sha256(n::text::bytea), 'key:abcdefgh', 'number ' || n, ${userId},
      now() - n * interval '1 minute' from generate_series(1, 230) n`;
  const made = await runCommand(['key', 'create', '--without-user'], environment);
  assert.equal(made.code, 0, made.stderr);
  const all = await listed();
  const ofUser = await listed('--user', 'Collector');
  assert.deepEqual(
    ofUser.map(({ name }) => name),
    Array.from({ length: 230 }, (_, index) => `number ${index + 1}`),
  );
  assert.deepEqual(await listed('--user', userId), ofUser);
  const pages = await Promise.all(
    [1, 2, 3].map((page) =>
      ask('GET', `${identity}/api/key/?limit=100&page=${page}`, { bearer: administrator }),
    ),
  );
  assert.deepEqual(
    all,
    pages.flatMap(({ json }) => json.data),
  );
  assert.equal(all.length, 231);
  const [one] = ofUser;
  assert.deepEqual(
    Object.keys(one ?? {}),
    wordsOf(`
    id key name user_id created_by created_by_username made_by rights scopes provision_groups
    groups revoked expires_at last_used_at created_at updated_at deleted_at user
  `),
  );
  assert.equal(one?.key, 'key:abcdefgh…');
  assertUser(JSON.parse(JSON.stringify(one.user)));
});
