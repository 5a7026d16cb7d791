/** What an operator is told of server secrets: at start, in the metrics, and never at a secret's expense. */
import assert from 'node:assert/strict';
import { after, test, type TestContext } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { createServerKey } from '../../src/crypto/box.ts';
import { MIGRATIONS } from '../../src/secrets/migrations.ts';
import { createDatabase, type TestDatabase } from '../support/database.ts';
import { ask, type Gatehouse, SERVER_SECRET, startGatehouse } from '../support/gatehouse.ts';
import { startHousekeeping } from '../support/housekeeping.ts';
import { secretsClient } from '../support/secrets.ts';
import { until } from '../support/until.ts';

const OLD = SERVER_SECRET;
const NEW = 'new-server-secret-0123456789abcdefghijklmn';
const OTHER = 'other-server-secret-0123456789abcdefghijkl';
const idOf = (secret: string) => createServerKey(secret).id;

const start = async (owner: Parameters<typeof startGatehouse>[0], { url }: TestDatabase, current: string, previous = '') =>
  startGatehouse(owner, ['secrets'], url, { SERVER_SECRET: current, SERVER_SECRET_PREVIOUS: previous });

const NEW_HERE = 'SERVER_SECRET is a new one for this database: right in a rotation, otherwise a mistake';
const MISSING = 'a server secret is missing: add the one with this key id to SERVER_SECRET_PREVIOUS';

/** What was said of server secrets, in order. It comes when all are counted, which nobody waits for; the current one is always told. */
async function said(gatehouse: Gatehouse): Promise<unknown[][]> {
  await until(() => gatehouse.log().some(({ state }) => state === 'current'), 'the report');
  // All of it is written in one go.
  await setImmediate();
  const lines = gatehouse.log().filter(({ message }) => message === NEW_HERE || message === MISSING || message === 'server secret');
  return lines.map(({ level, message, key_id, state, secrets }) => [level, message, key_id, state, secrets].filter((one) => one !== undefined));
}

/** A database on which OLD has sealed three secrets, one of which may be read once. */
async function withThree(t: TestContext) {
  const database = await createDatabase(t);
  const gatehouse = await start(t, database, OLD);
  const client = secretsClient(gatehouse.url.secrets);
  const made = [await client.keep('marked-text'), await client.keep('marked-text', { max_reads: 1 }), await client.keep('marked-text', { passphrase: 'marked-words' })];
  return { database, gatehouse, client, made };
}

const rowsOf = async ({ sql }: TestDatabase) => [...(await sql`select * from secrets.secrets order by id`)].map((row) => ({ ...row }));

test('the first server secret of a database is no news but its key id, and neither is the same one at the next start', async (t) => {
  const database = await createDatabase(t);
  const first = await start(t, database, OLD);
  assert.deepEqual(await said(first), [['info', 'server secret', idOf(OLD), 'current', 0]]);
  await secretsClient(first.url.secrets).keep('x');
  await first.stop();
  assert.deepEqual(await said(await start(t, database, OLD)), [['info', 'server secret', idOf(OLD), 'current', 1]]);
});

test('a wrong SERVER_SECRET is told at start, by key id and with what it keeps closed; nothing is used up, and the service serves', async (t) => {
  const { database, gatehouse, made } = await withThree(t);
  const before = await rowsOf(database);
  await gatehouse.stop();

  const wrong = await start(t, database, NEW);
  assert.deepEqual(await said(wrong), [
    ['warn', NEW_HERE, idOf(NEW)],
    ['error', MISSING, idOf(OLD), 'missing', 3],
    ['info', 'server secret', idOf(NEW), 'current', 0],
  ]);
  assert.equal((await ask('GET', `${wrong.url.secrets}/readyz`)).status, 200);
  const there = secretsClient(wrong.url.secrets);
  for (const { id, secret } of made) assert.equal((await there.decrypt(id, secret)).json.error.code, 'key_unknown');
  assert.deepEqual(await rowsOf(database), before);
  assert.equal((await there.decrypt((await there.keep('new')).id, 'x')).status, 404, 'what is new is served');
  const written = wrong.stdout() + wrong.stderr();
  for (const mark of [OLD, NEW, 'marked-', ...made.map(({ secret }) => secret)]) assert.ok(!written.includes(mark));
  await wrong.stop();

  // Back with the right one: the wrong one is no stranger any more, and holds one itself now.
  const right = await start(t, database, OLD);
  assert.deepEqual((await said(right)).sort(), [
    ['error', MISSING, idOf(NEW), 'missing', 1],
    ['info', 'server secret', idOf(OLD), 'current', 3],
  ]);
  const back = secretsClient(right.url.secrets);
  for (const { id, secret } of made.slice(0, 2)) assert.equal((await back.decrypt(id, secret)).json.password, 'marked-text');
});

test('each server secret that is missing is told by itself, and those that are held with what they hold', async (t) => {
  const { database } = await withThree(t);
  await secretsClient((await start(t, database, OTHER, OLD)).url.secrets).keep('x');
  const gatehouse = await start(t, database, NEW);
  assert.deepEqual((await said(gatehouse)).filter(([level]) => level === 'error'), [
    ['error', MISSING, idOf(OLD), 'missing', 3],
    ['error', MISSING, idOf(OTHER), 'missing', 1],
  ]);
  const all = await start(t, database, NEW, `${OTHER},${OLD}`);
  assert.deepEqual(await said(all), [
    ['info', 'server secret', idOf(OLD), 'previous', 3],
    ['info', 'server secret', idOf(OTHER), 'previous', 1],
    ['info', 'server secret', idOf(NEW), 'current', 0],
  ]);
});

test('a server secret that holds none any more may go without a word', async (t) => {
  const { database, client, made } = await withThree(t);
  const [kept, once, locked] = made;
  assert.ok(kept && once && locked);
  await client.decrypt(once.id, once.secret);
  await client.remove(kept.id);
  await database.sql`update secrets.secrets set blob = null, commitment = null, tag = null, ending = 'expired', ended_at = now() where id = ${locked.id}`;
  await start(t, database, NEW, OLD);
  assert.deepEqual(await said(await start(t, database, NEW)), [['info', 'server secret', idOf(NEW), 'current', 0]]);
});

test('of replicas that start at once with a new server secret, one says that it is new', async (t) => {
  const { database } = await withThree(t);
  const replicas = await Promise.all([1, 2, 3].map(() => start(t, database, NEW, OLD)));
  assert.equal((await Promise.all(replicas.map(said))).flat().filter(([, message]) => message === NEW_HERE).length, 1);
});

test('a database from before server secrets were noted knows by its rows which were in use', async (t) => {
  const database = await createDatabase(t);
  const { sql } = database;
  const gatehouse = await start(t, database, OLD);
  await secretsClient(gatehouse.url.secrets).keep('x');
  await gatehouse.stop();
  // Back to how the first version left it.
  const [first, ...later] = MIGRATIONS;
  assert.ok(first && later.length > 0);
  await sql`create table kept as select id, key_id, commitment, blob, created_at, expires_at, max_reads, reads from secrets.secrets`;
  await sql`drop table secrets.secrets, secrets.server_keys, secrets.throttles`;
  for (const statement of first.statements) if (/secrets\.secrets/.test(statement)) await sql.unsafe(statement);
  await sql`insert into secrets.secrets select * from kept`;
  await sql`delete from secrets.migrations where name <> ${first.name}`;
  assert.deepEqual(await said(await start(t, database, NEW)), [
    ['warn', NEW_HERE, idOf(NEW)],
    ['error', MISSING, idOf(OLD), 'missing', 1],
    ['info', 'server secret', idOf(NEW), 'current', 0],
  ]);
});

test('the metrics tell how many secrets each known server secret holds, down to none', async (t) => {
  const { database, client, made } = await withThree(t);
  await secretsClient((await start(t, database, NEW, OLD)).url.secrets).keep('x');
  const housekeeping = startHousekeeping({ after }, database.url, { SERVER_SECRET: OTHER });
  const stored = async () => {
    await housekeeping.run('count secrets by server secret');
    return housekeeping.metrics().split('\n').filter((line) => line.startsWith('gatehouse_secrets_stored')).sort();
  };
  const line = (secret: string, secrets: number) => `gatehouse_secrets_stored{key_id="${idOf(secret)}"} ${secrets}`;
  assert.deepEqual(await stored(), [line(OLD, 3), line(NEW, 1)].sort());
  for (const { id } of made) await client.remove(id);
  assert.deepEqual(await stored(), [line(OLD, 0), line(NEW, 1)].sort());
  assert.match(housekeeping.metrics(), /^# TYPE gatehouse_secrets_stored gauge$/m);
});
