/**
 * `webhook.emit`: what a program stores in its own transaction, by the rights of its own role.
 * `transcripts/outbox.txt` has the commands that give and take these.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import postgres, { type Sql } from 'postgres';
import { revokeToken } from '../../../src/platform/db/tokens.ts';
import { runCommand } from '../../support/commands.ts';
import { untilLocked } from '../../support/connections.ts';
import { ask, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { reply, startRecorder } from '../../support/recorder.ts';
import { WEBHOOK_SECRET } from '../../support/senders.ts';
import { createToken } from '../../support/tokens.ts';
import { latch } from '../../support/until.ts';
import { launchWebhook } from '../../support/webhook.ts';
import { stateOf, untilStatus } from '../../support/webhook-store.ts';

const owner = { after };
const roles = new Map<string, Sql>();
// Before the connection ends that was opened first.
after(async () => {
  for (const [role, caller] of roles) {
    await caller.end();
    await sql.unsafe(`drop owned by ${role}; drop role ${role}`);
  }
});
const target = await startRecorder(owner);
target.answer(reply(200, {}));
const settings = { WEBHOOK_SECRET, WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on', WEBHOOK_EVENTS: 'a*,b_%*' };
const started = { ...settings, WEBHOOK_FORWARD_URL: target.url };
const { base, sql, database, databaseUrl, storesNothing } = await launchWebhook(started);
await startGatehouse(owner, ['webhook'], databaseUrl, started);

async function run(...words: readonly string[]): Promise<void> {
  const done = await runCommand(words, { DATABASE_URL: databaseUrl, ...settings });
  assert.equal(done.code, 0, done.stderr);
}
const createSender = (name: string) =>
  createToken(database, { name, role: 'sender', source: 'generic' }, null);

async function addRole() {
  const role = `app_${randomUUID().replaceAll('-', '')}`;
  await sql.unsafe(`create role ${role} login password 'x'`);
  const address = new URL(databaseUrl);
  Object.assign(address, { username: role, password: 'x' });
  const caller = postgres(address.href, { max: 2, onnotice: () => {} });
  roles.set(role, caller);
  return { role, caller };
}

/** A role of its own, which may emit for a token of its own. */
async function addEmitter(name = `orders-${randomUUID()}`) {
  const { id } = await createSender(name);
  const added = await addRole();
  await run('outbox', 'grant', added.role, '--token', id);
  return { id, name, ...added };
}

const emitter = await addEmitter();
const { caller } = emitter;

type Texts = Record<'token' | 'event' | 'delivery_id' | 'page_id', string | null>;
type Arguments = Readonly<Partial<Texts & { data: unknown }>>;

async function emit(given: Arguments = {}, on: Pick<Sql, 'unsafe'> = caller): Promise<string> {
  const { token = emitter.id, event = 'a.made', data = { total: 1 } } = given;
  const { delivery_id = null, page_id = null } = given;
  const [row] = await on.unsafe<Array<{ id: string }>>(
    'select webhook.emit($1, $2, $3::text::jsonb, $4, $5) as id',
    [token, event, data === null ? null : JSON.stringify(data), delivery_id, page_id],
  );
  return row?.id ?? assert.fail('no id');
}

const untilDone = (id: string) => untilStatus(sql, id, 'done');
const requestOf = (id: string) =>
  target.received.find(({ headers }) => headers['webhook-id'] === id) ?? assert.fail();

test('an event exists if its transaction commits, and is delivered as any other', async () => {
  let lost = '';
  const failed = caller.begin(async (inner) => {
    lost = await emit({}, inner);
    throw new Error('rolled back');
  });
  await assert.rejects(failed, /rolled back/);
  const id = await caller.begin((inner) => emit({ data: { b: 1, a: 'ä' } }, inner));
  await untilDone(id);
  assert.deepEqual([...(await sql`select from webhook.events where id = ${lost}`)], []);
  const { body, headers } = requestOf(id);
  assert.deepEqual(JSON.parse(body), { event: 'a.made', data: { b: 1, a: 'ä' } });
  assert.equal(headers['content-type'], 'application/json');
  const [event] = await sql`select source, token_id, ip from webhook.events where id = ${id}`;
  assert.deepEqual({ ...event }, { source: 'outbox', token_id: emitter.id, ip: '127.0.0.1' });
});

test('a delivery id stores one event, whatever its body and whoever sent the first', async () => {
  const delivery_id = randomUUID();
  const [one, two] = await Promise.all([emit({ delivery_id }), emit({ delivery_id, data: {} })]);
  assert.deepEqual([two, await emit({ delivery_id, event: 'a.other' })], [one, one]);
  const other = await addEmitter();
  const theirs = await emit({ token: other.id, delivery_id }, other.caller);
  assert.equal(await emit({ token: other.id, delivery_id }, other.caller), theirs);
  assert.deepEqual([theirs === one, await emit({ delivery_id })], [false, one]);
  const { id, token } = await createSender('both');
  await run('outbox', 'grant', emitter.role, '--token', 'both');
  const { json } = await ask('POST', base, {
    bearer: token,
    headers: { 'webhook-id': 'd-1' },
    body: { event: 'a.made', data: { page_id: 'p' } },
  });
  for (const name of ['both', id])
    assert.equal(await emit({ token: name, delivery_id: 'd-1' }), json.id);
});

test('events of a page are numbered in the order of the commits', async () => {
  const begun = latch();
  const mayCommit = latch();
  const first = caller.begin(async (inner) => {
    const id = await emit({ page_id: 'p' }, inner);
    begun.open();
    await mayCommit.opened;
    return id;
  });
  await begun.opened;
  const second = emit({ page_id: 'p' });
  await untilLocked(sql, 1);
  mayCommit.open();
  const order = [await first, await second];
  for (const id of order) await untilDone(id);
  const sent = target.received.map(({ headers }) => headers['webhook-id']);
  assert.deepEqual(
    sent.filter((id) => order.includes(String(id))),
    order,
  );
});

test('events are selected by the names of the process, and by those of the target', async () => {
  const named = { 'a.made': 'done', 'b_%x': 'done', bxxx: 'skipped', 'c.made': 'skipped' };
  for (const [event, status] of Object.entries(named))
    await untilStatus(sql, await emit({ event }), status);
  const own = await addEmitter();
  await run('token', 'target', own.id, '--forward', target.url, '--events', 'c.*');
  await untilDone(await emit({ token: own.name, event: 'c.made' }, own.caller));
  const other = await emit({ token: own.id, event: 'a' }, own.caller);
  assert.equal((await stateOf(sql, other)).status, 'skipped');
});

test('wrong arguments have a code of their own, and nothing is stored', async () => {
  const other = await addEmitter();
  const revoked = await addEmitter();
  await run('token', 'revoke', revoked.id);
  const cases: ReadonlyArray<readonly [code: string, given: Arguments, on?: Sql]> = [
    ['WH001', { token: 'none' }],
    ['WH001', { token: null }],
    ['WH001', { token: other.id }],
    ['WH001', { token: revoked.id }, revoked.caller],
    ['WH001', { token: WEBHOOK_TOKEN }],
    ['WH002', { event: null }],
    ['WH002', { event: '' }],
    ['WH002', { event: 'x'.repeat(1_025) }],
    ['WH003', { data: null }],
    ['WH003', { data: [] }],
    ['WH003', { data: 'text' }],
    ['WH004', { delivery_id: '' }],
    ['WH004', { delivery_id: 'ä' }],
    ['WH004', { delivery_id: 'x'.repeat(256) }],
    ['WH005', { data: { text: 'x'.repeat(65_536) } }],
    ['22P05', { data: { text: '\u0000' } }],
  ];
  await storesNothing(async () => {
    for (const [code, given, on] of cases)
      await assert.rejects(emit(given, on), { code }, JSON.stringify(given));
  });
});

test('a role without the grant calls nothing, and one with it reads and changes nothing', async () => {
  const tables = await sql`
    select relname as name from pg_class
    where relnamespace = 'webhook'::regnamespace and relkind = 'r'`;
  assert.ok(tables.length > 10);
  const denied = (work: Promise<unknown>, what?: string) =>
    assert.rejects(work, { code: '42501' }, what);
  for (const { name } of tables)
    for (const words of ['select from', 'delete from', 'insert into'])
      await denied(
        caller.unsafe(
          `${words} webhook.${name}${words === 'insert into' ? ' default values' : ''}`,
        ),
        `${words} ${name}`,
      );
  // With a right that remains, and without any.
  await run('outbox', 'grant', emitter.role, '--token', (await createSender('another')).id);
  await run('outbox', 'revoke', emitter.role, '--token', 'another');
  await emit();
  const gone = await addEmitter();
  await run('outbox', 'revoke', gone.role, '--token', gone.id);
  await denied(emit({ token: gone.id }, gone.caller));
});

test('a member of the role may emit, and a name is that of the active sender', async () => {
  const own = await addEmitter();
  const member = await addRole();
  await assert.rejects(emit({ token: own.id }, member.caller), /permission denied/);
  await sql.unsafe(`grant ${own.role} to ${member.role}`);
  await emit({ token: own.id }, member.caller);
  await createToken(database, { name: own.name, role: 'operator', source: 'generic' }, null);
  await revokeToken(database, 'webhook', (await createSender(own.name)).id);
  await emit({ token: own.name }, own.caller);
});

test('names and settings of the caller change neither what is stored nor that it survives', async () => {
  const own = await addEmitter();
  await sql.unsafe(`create schema ${own.role} authorization ${own.role}`);
  await own.caller.unsafe(`
    create function ${own.role}.convert_to(text, name) returns bytea
      language sql as $$ select '\\x'::bytea $$;
    create temporary table tokens (id uuid)`);
  const hostile = {
    search_path: `${own.role}, pg_temp, pg_catalog, webhook`,
    synchronous_commit: 'off',
    standard_conforming_strings: 'off',
    bytea_output: 'escape',
    DateStyle: 'German',
    TimeZone: 'Pacific/Kiritimati',
    quote_all_identifiers: 'on',
    default_transaction_isolation: 'serializable',
  };
  const data = { text: 'back\\slash' };
  const id = await own.caller.begin(async (inner) => {
    for (const [name, value] of Object.entries(hostile))
      await inner`select set_config(${name}, ${value}, true)`;
    const stored = await emit({ token: own.id, event: 'b_%', data }, inner);
    const [setting] = await inner`show synchronous_commit`;
    assert.equal(setting?.synchronous_commit, 'on');
    return stored;
  });
  await untilDone(id);
  assert.deepEqual(JSON.parse(requestOf(id).body), { event: 'b_%', data });
});

test('a transaction that began before a change of the target does not use the earlier one', async () => {
  const own = await addEmitter();
  await run('token', 'target', own.id, '--forward', target.url);
  const late = own.caller.begin('isolation level repeatable read', async (inner) => {
    await inner`select 1`;
    await run('token', 'target', own.id, '--default');
    await emit({ token: own.id }, inner);
  });
  await assert.rejects(late, { code: '40001' });
  await untilDone(await emit({ token: own.id }, own.caller));
});
