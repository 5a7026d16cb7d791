/** A database that an earlier version has filled, brought up to date: nothing is lost, and what is new is true from the start. */
import assert from 'node:assert/strict';
import { createHash, randomUUID } from 'node:crypto';
import { test, type TestContext } from 'node:test';
import { hashPassword } from '../../src/crypto/password.ts';
import { migrate } from '../../src/db/migrate.ts';
import { MIGRATIONS, SCHEMA } from '../../src/identity/migrations.ts';
import { removeEndedSessions } from '../../src/identity/store/sessions.ts';
import { createSessionToken } from '../../src/identity/token.ts';
import { createDatabase, type TestDatabase } from '../support/database.ts';
import { type Answer, ask, startGatehouse } from '../support/gatehouse.ts';
import { recount, totals } from '../support/totals.ts';
import { assertSession, assertSuccess, CHEAP, isOpen, openIdentity, PASSWORD } from '../support/users.ts';

interface Old extends TestDatabase {
  readonly admin: string;
  readonly tokens: readonly string[];
}

/** A database at the first step, with rows as the version of that step wrote them. */
async function createOld(t: TestContext): Promise<Old> {
  const file = await createDatabase(t);
  const { sql } = file;
  assert.equal(await migrate(openIdentity(t, file.url), SCHEMA, MIGRATIONS.slice(0, 1)), 1);
  const hash = await hashPassword(PASSWORD, CHEAP.cost);
  const addUser = async (name: string, isAdmin: boolean) => {
    const id = randomUUID();
    await sql`
      insert into identity.users (id, username, username_key, email, email_key, first_name, last_name, password_hash, enabled, verified, super_admin)
      values (${id}, ${name}, ${name}, ${`${name}@example.org`}, ${`${name}@example.org`}, '', '', ${hash}, true, true, ${isAdmin})`;
    return id;
  };
  const tokens: string[] = [];
  const addSession = async (userId: string) => {
    const [id, token] = [randomUUID(), createSessionToken()];
    await sql`insert into identity.sessions (id, token_digest, user_id, expires_at) values (${id}, ${createHash('sha256').update(token).digest()}, ${userId}, now() + interval '1 day')`;
    tokens.push(token);
    return id;
  };
  const [admin, ada, gone] = [await addUser('admin', true), await addUser('ada', false), await addUser('gone', false)];
  for (let count = 0; count < 3; count += 1) await addSession(admin);
  for (let count = 0; count < 2; count += 1) await addSession(ada);
  await sql`update identity.sessions set revoked = true where id = ${await addSession(ada)}`;
  await sql`update identity.sessions set deleted_at = now() where id = ${await addSession(ada)}`;
  await sql`update identity.users set deleted_at = now() where id = ${gone}`;
  return { ...file, admin, tokens };
}

test('totals are right, and sessions and passwords still open the door, when the service starts on a database of the first step', async (t) => {
  const { url, sql, admin, tokens } = await createOld(t);
  const { identity } = (await startGatehouse(t, ['identity'], url, { SESSION_IDLE_TTL: '300' })).url;
  const counted = await totals(sql);
  await recount(sql);
  assert.deepEqual(counted, await totals(sql));
  assert.ok(counted.length > 2, JSON.stringify(counted));

  assert.deepEqual(await Promise.all(tokens.map((token) => isOpen(identity, token))), [true, true, true, true, true, false, false]);
  const [bearer = ''] = tokens;
  const read = async (path: string): Promise<Answer> => {
    const answer = await ask('GET', `${identity}/api/${path}`, { bearer });
    assertSuccess(answer, 'paged');
    return answer;
  };
  const total = async (path: string) => (await read(path)).json._meta.pagination.total;
  assert.deepEqual(await Promise.all(['user/?limit=5', 'session/', `session/?user=${admin}`, 'session/?active=true', 'session/?active=false', 'key/', 'audit/'].map(total)), [2, 6, 3, 5, 1, 0, 0]);
  const { data } = (await read('session/?limit=100')).json;
  data.forEach(assertSession);
  assert.deepEqual(data.map(({ ip, user_agent }: { ip: null; user_agent: null }) => [ip, user_agent]), data.map(() => [null, null]));

  const login = await ask('POST', `${identity}/api/auth/login`, { body: { username: 'ada', password: PASSWORD } });
  assertSuccess(login);
  assert.equal(await isOpen(identity, login.json.data.session), true);
  assert.deepEqual(await Promise.all(['session/', 'audit/'].map(total)), [7, 1]);
  // What was there before the totals is taken from them when it goes.
  await sql`update identity.sessions set expires_at = now() - interval '31 days' where deleted_at is null`;
  assert.equal(await removeEndedSessions(openIdentity(t, url), 86_400, 100), 7);
  const left = await totals(sql);
  await recount(sql);
  assert.deepEqual(left, await totals(sql));
});

test('of two that bring an old database up to date at once, each step is applied once, and the totals are right', async (t) => {
  const { url, sql } = await createOld(t);
  const applied = await Promise.all([openIdentity(t, url), openIdentity(t, url)].map((database) => migrate(database, SCHEMA, MIGRATIONS)));
  assert.equal(applied.reduce((sum, steps) => sum + steps), MIGRATIONS.length - 1);
  const counted = await totals(sql);
  await recount(sql);
  assert.deepEqual(counted, await totals(sql));
  // One secret for all replicas, so that they count in the same places.
  assert.equal((await sql`select from identity.throttle_secret`).length, 1);
});
