/** `webhook.emit`: what a program stores in its own transaction, by the rights of its own role. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import postgres, { type Sql } from 'postgres';
import { runCommand } from '../../support/commands.ts';
import { ask, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { createDatabase } from '../../support/database.ts';
import { untilSql } from '../../support/connections.ts';
import { reply, startRecorder } from '../../support/recorder.ts';
import { openWebhook, WEBHOOK_SECRET } from '../../support/senders.ts';
import { createToken } from '../../support/tokens.ts';

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
const database = await createDatabase(owner);
const settings = { WEBHOOK_SECRET, WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on', WEBHOOK_EVENTS: 'a*,b_%*' };
const started = { ...settings, WEBHOOK_FORWARD_URL: target.url };
const { url } = await startGatehouse(owner, ['webhook'], database.url, started);
await startGatehouse(owner, ['webhook'], database.url, started);
const stored = openWebhook(owner, database.url);
const { sql } = database;
const run = (words: readonly string[]) =>
  runCommand(words, { DATABASE_URL: database.url, ...settings });

/** A role of its own, which may emit for a token of its own. */
async function addEmitter(name = `orders-${randomUUID()}`) {
  const { id } = await createToken(stored, { name, role: 'sender', source: 'generic' }, null);
  const role = `app_${randomUUID().replaceAll('-', '')}`;
  await sql.unsafe(`create role ${role} login password 'x'`);
  const granted = await run(['outbox', 'grant', role, '--token', id]);
  assert.equal(granted.code, 0, granted.stderr);
  const address = new URL(database.url);
  address.username = role;
  address.password = 'x';
  const caller = postgres(address.href, { max: 2, onnotice: () => {} });
  roles.set(role, caller);
  return { id, name, role, caller };
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

const statusOf = async (id: string) => {
  const [row] = await sql<Array<{ status: string }>>`
    select coalesce(o.status, case when w.event_id is null then 'stored' else 'waiting' end)
      as status
    from webhook.events e left join webhook.outcomes o on o.event_id = e.id
      left join webhook.work w on w.event_id = e.id
    where e.id = ${id}`;
  return row?.status;
};
const untilDone = (id: string) =>
  untilSql(async () => (await statusOf(id)) === 'done', `event ${id} is delivered`);

test('an event exists if its transaction commits, and is delivered as any other', async () => {
  let lost = '';
  await assert.rejects(
    caller.begin(async (inner) => {
      lost = await emit({ data: { lost: true } }, inner);
      throw new Error('rolled back');
    }),
    /rolled back/,
  );
  const id = await caller.begin((inner) => emit({ data: { b: 1, a: 'ä' } }, inner));
  await untilDone(id);
  assert.equal(await statusOf(lost), undefined);
  const [request] = target.received.filter(({ headers }) => headers['webhook-id'] === id);
  assert.deepEqual(JSON.parse(request?.body ?? ''), { event: 'a.made', data: { b: 1, a: 'ä' } });
  assert.equal(request?.headers['content-type'], 'application/json');
  const [event] = await sql`select source, token_id, ip from webhook.events where id = ${id}`;
  assert.deepEqual({ ...event }, { source: 'outbox', token_id: emitter.id, ip: '127.0.0.1' });
});

test('a delivery id stores one event, whatever its body and whoever sent the first', async () => {
  const delivery_id = randomUUID();
  const [one, two] = await Promise.all([emit({ delivery_id }), emit({ delivery_id, data: {} })]);
  assert.equal(one, two);
  assert.equal(await emit({ delivery_id, event: 'a.other' }), one);
  const { id, token } = await createToken(
    stored,
    { name: 'both', role: 'sender', source: 'generic' },
    null,
  );
  assert.equal((await run(['outbox', 'grant', emitter.role, '--token', 'both'])).code, 0);
  const received = await ask('POST', `${url.webhook}/webhook`, {
    bearer: token,
    headers: { 'webhook-id': 'd-1' },
    body: { event: 'a.made', data: { page_id: 'p' } },
  });
  assert.equal(await emit({ token: 'both', delivery_id: 'd-1' }), received.json.id);
  assert.equal(await emit({ token: id, delivery_id: 'd-1' }), received.json.id);
});

test('events of a page are numbered in the order of the commits', async () => {
  const order: string[] = [];
  let begun = () => {};
  const isBegun = new Promise<void>((resolve) => {
    begun = resolve;
  });
  let proceed = () => {};
  const mayCommit = new Promise<void>((resolve) => {
    proceed = resolve;
  });
  const first = caller.begin(async (inner) => {
    const id = await emit({ page_id: 'p' }, inner);
    begun();
    await mayCommit;
    return id;
  });
  await isBegun;
  const second = emit({ page_id: 'p' });
  await untilSql(
    async () => (await sql`select from pg_locks where not granted`).length > 0,
    'the second waits for the first',
  );
  proceed();
  order.push(await first, await second);
  for (const id of order) await untilDone(id);
  const sent = target.received.map(({ headers }) => headers['webhook-id']);
  assert.ok(sent.indexOf(order[0]) < sent.indexOf(order[1]));
});

test('events are selected by the names of the process, and by those of the target', async () => {
  const named = { 'a.made': 'done', 'b_%x': 'done', bxxx: 'skipped', 'c.made': 'skipped' };
  for (const [event, status] of Object.entries(named)) {
    const id = await emit({ event });
    await untilSql(async () => (await statusOf(id)) === status, `${event} is ${status}`);
  }
  const own = await addEmitter();
  const words = ['--forward', target.url, '--events', 'c.*'];
  assert.equal((await run(['token', 'target', own.id, ...words])).code, 0);
  const chosen = await emit({ token: own.name, event: 'c.made' }, own.caller);
  await untilDone(chosen);
  assert.equal(await statusOf(await emit({ token: own.id, event: 'a' }, own.caller)), 'skipped');
});

test('wrong arguments have a code of their own, and nothing is stored', async () => {
  const other = await addEmitter();
  const revoked = await addEmitter();
  assert.equal((await run(['token', 'revoke', revoked.id])).code, 0);
  const [{ count: before = 0 } = {}] = await sql`select count(*)::int4 from webhook.events`;
  const cases: ReadonlyArray<readonly [string, RegExp, Arguments, Sql?]> = [
    ['WH001', /^token "none"/, { token: 'none' }],
    ['WH001', /^token /, { token: null }],
    ['WH001', /^token /, { token: other.id }],
    ['WH001', /^token /, { token: revoked.id }, revoked.caller],
    ['WH001', /^token /, { token: WEBHOOK_TOKEN }],
    ['WH002', /^event /, { event: null }],
    ['WH002', /^event /, { event: '' }],
    ['WH002', /^event /, { event: 'x'.repeat(1_025) }],
    ['WH003', /^data /, { data: null }],
    ['WH003', /^data /, { data: [] }],
    ['WH003', /^data /, { data: 'text' }],
    ['WH004', /^delivery_id /, { delivery_id: '' }],
    ['WH004', /^delivery_id /, { delivery_id: 'ä' }],
    ['WH004', /^delivery_id /, { delivery_id: 'x'.repeat(256) }],
    ['WH005', /^data /, { data: { text: 'x'.repeat(65_536) } }],
    ['22P05', /./, { data: { text: '\u0000' } }],
  ];
  for (const [code, message, given, on] of cases) {
    await assert.rejects(emit(given, on), (error: postgres.PostgresError) => {
      assert.equal(error.code, code, JSON.stringify(given));
      assert.match(error.message, message);
      if (code === 'WH001') assert.match(error.hint ?? '', /gatehouse outbox list/);
      return true;
    });
  }
  const [{ count = 0 } = {}] = await sql`select count(*)::int4 from webhook.events`;
  assert.equal(count, before);
});

test('a role without the grant calls nothing, and one with it reads and changes nothing', async () => {
  const tables = await sql<Array<{ name: string }>>`
    select relname as name from pg_class
    where relnamespace = 'webhook'::regnamespace and relkind = 'r'`;
  assert.ok(tables.length > 10);
  const denied = (work: Promise<unknown>, what: string) =>
    assert.rejects(work, { code: '42501' }, what);
  for (const { name } of tables) {
    await denied(caller.unsafe(`select from webhook.${name}`), name);
    await denied(caller.unsafe(`delete from webhook.${name}`), name);
    await denied(caller.unsafe(`insert into webhook.${name} default values`), name);
  }
  const revoked = await run(['outbox', 'revoke', emitter.role, '--token', 'both']);
  assert.equal(revoked.code, 0, revoked.stderr);
  await emit();
  const gone = await addEmitter();
  assert.equal((await run(['outbox', 'revoke', gone.role, '--token', gone.id])).code, 0);
  await denied(emit({ token: gone.id }, gone.caller), 'after the grant was taken back');
  const again = await run(['outbox', 'revoke', gone.role, '--token', gone.id]);
  assert.deepEqual([again.code, /no such right/.test(again.stderr)], [1, true]);
});

test('a name in a schema of the caller stands for nothing in the function', async () => {
  const own = await addEmitter();
  await sql.unsafe(`create schema ${own.role} authorization ${own.role}`);
  await own.caller.unsafe(`
    create function ${own.role}.convert_to(text, name) returns bytea
      language sql as $$ select '\\x'::bytea $$;
    create temporary table tokens (id uuid)`);
  const id = await own.caller.begin(async (inner) => {
    await inner.unsafe(`set local search_path = ${own.role}, pg_temp, pg_catalog, webhook`);
    return emit({ token: own.id }, inner);
  });
  const [event] = await sql`select length(body) as length from webhook.events where id = ${id}`;
  assert.ok(event?.length > 10);
});

test('settings of the caller change neither what is stored nor that it survives', async () => {
  const hostile = {
    synchronous_commit: 'off',
    standard_conforming_strings: 'off',
    bytea_output: 'escape',
    DateStyle: 'German',
    TimeZone: 'Pacific/Kiritimati',
    quote_all_identifiers: 'on',
    default_transaction_isolation: 'serializable',
  };
  const id = await caller.begin(async (inner) => {
    for (const [name, value] of Object.entries(hostile))
      await inner`select set_config(${name}, ${value}, true)`;
    const stored = await emit({ event: 'b_%', data: { text: 'back\\slash' } }, inner);
    const [setting] = await inner`show synchronous_commit`;
    assert.equal(setting?.synchronous_commit, 'on');
    return stored;
  });
  await untilDone(id);
  const request = target.received.find(({ headers }) => headers['webhook-id'] === id);
  assert.equal(JSON.parse(request?.body ?? '').data.text, 'back\\slash');
});

test('a transaction that began before a change of the target does not use the earlier one', async () => {
  const own = await addEmitter();
  const change = (words: readonly string[]) => run(['token', 'target', own.id, ...words]);
  assert.equal((await change(['--forward', target.url])).code, 0);
  await assert.rejects(
    own.caller.begin('isolation level repeatable read', async (inner) => {
      await inner`select 1`;
      assert.equal((await change(['--default'])).code, 0);
      await emit({ token: own.id }, inner);
    }),
    { code: '40001' },
  );
  await untilDone(await emit({ token: own.id }, own.caller));
});

test('grants name an active sender and a role without rights, and are listed', async () => {
  const [service] = await sql`select current_user as name`;
  const cases = [
    ['nobody', emitter.id, /there is no role "nobody"/],
    [emitter.role, 'none', /no active sender has the name or id "none"/],
    [String(service?.name), emitter.id, /can delete, insert, select, update in the tables/],
  ] as const;
  for (const [role, token, message] of cases) {
    const refused = await run(['outbox', 'grant', role, '--token', token]);
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, message);
  }
  const listed = await run(['outbox', 'list', '--json']);
  const emitters: Array<Record<string, unknown>> = JSON.parse(listed.stdout);
  const found = emitters.find(({ role }) => role === emitter.role);
  assert.deepEqual([found?.token_id, found?.state], [emitter.id, 'active']);
  const checked = await run(['check', 'webhook']);
  assert.match(checked.stdout, new RegExp(`role ${emitter.role} may emit events for token`));
});
