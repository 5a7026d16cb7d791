/** The event commands: list, show, redeliver and tail. `transcripts/events.txt` has what they refuse. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, type TestContext } from 'node:test';
import { connect } from '../../../scripts/postgres.ts';
import { assertRefused, runCommand } from '../../support/commands.ts';
import { untilSql } from '../../support/connections.ts';
import { openInbox, type Wish } from '../../support/inbox.ts';
import { buildProgram, type Running, startProgram } from '../../support/process.ts';
import { startOnTerminal, withoutTerminal } from '../../support/terminal.ts';
import { test, until } from '../../support/until.ts';

const program = buildProgram();
const inbox = await openInbox({ after });
const { sql, put, send } = inbox;
const environment = { DATABASE_URL: inbox.databaseUrl };
const UNKNOWN = '00000000-0000-4000-8000-000000000000';
const AGAIN = 'will be delivered again, by a service that has a target.\n';

const run = (words: readonly string[], more: Readonly<Record<string, string>> = environment) =>
  runCommand(['event', ...words], more);

const WISHES: Readonly<Record<string, Wish>> = {
  stored: { event: 'page.created', source: 'notion', age: 9 * 86_400 },
  waiting: {
    event: 'page.updated',
    status: 'waiting',
    attempts: 2,
    age: 3 * 86_400,
    errors: ['was busy'],
  },
  done: {
    event: 'page.updated',
    status: 'done',
    attempts: 1,
    deliveryId: 'msg_1',
    age: 20 * 3_600,
  },
  dead: {
    event: 'push',
    source: 'github',
    status: 'dead',
    attempts: 2,
    age: 3_000,
    errors: ['one', 'two'],
  },
  skipped: { event: '100%', source: 'standard', status: 'skipped', age: 100 },
};
const ids = new Map<string, string>();
for (const [name, wish] of Object.entries(WISHES)) ids.set(name, await put(wish));
const idOf = (name: string) => ids.get(name) ?? assert.fail(name);
const nameOf = (id: unknown) => [...ids].find(([, one]) => one === id)?.[0] ?? String(id);
const ALL = ['skipped', 'dead', 'done', 'waiting', 'stored'];

test('event list prints a table, newest first, with the last error and without bodies', async () => {
  const { code, stdout, stderr } = await run(['list']);
  assert.deepEqual([code, stderr], [0, '']);
  const [head = '', ...lines] = stdout.trimEnd().split('\n');
  assert.match(head, /^ID +RECEIVED +SOURCE +EVENT +STATUS +ATTEMPTS +LAST ERROR$/);
  assert.deepEqual(
    lines.map((line) => nameOf(line.slice(0, 36))),
    ALL,
  );
  assert.match(lines[1] ?? '', /^[0-9a-f-]{36} +\d{4}-\S+Z +github +push +dead +2 +two$/);
  assert.match(lines[4] ?? '', / +notion +page\.created +stored +0 +–$/);
  assert.ok(!stdout.includes('page_id'));
});

test('event list --json equals GET /events', async () => {
  const { code, stdout } = await run(['list', '--json']);
  assert.equal(code, 0);
  assert.deepEqual(JSON.parse(stdout), (await inbox.call('GET', '/events')).json);
});

/** The options, and the events that they list. */
const FILTERS: Readonly<Record<string, string>> = {
  ...Object.fromEntries(ALL.map((status) => [`--status ${status}`, status])),
  '--event page.*': 'done waiting stored',
  '--event %': '',
  '--event 100%': 'skipped',
  '--source github': 'dead',
  '--since 3600': 'skipped dead',
  '--since 55m': 'skipped dead',
  '--since 24h': 'skipped dead done',
  '--since 7d': 'skipped dead done waiting',
  '--since 0': '',
  '--since 1w': 'skipped dead done waiting',
  '--delivery-id msg_1': 'done',
  '--delivery-id msg_%': '',
  '--text "push"': 'dead',
  '--limit 2': 'skipped dead',
  '--status done --event page.* --source generic --since 7d --limit 9999': 'done',
};
test('event list takes every filter, alone and together', async () => {
  for (const [words, names] of Object.entries(FILTERS)) {
    const { code, stdout, stderr } = await run(['list', '--json', ...words.split(' ')]);
    assert.equal(code, 0, stderr);
    const events: Array<{ id: string }> = JSON.parse(stdout);
    assert.equal(events.map(({ id }) => nameOf(id)).join(' '), names, words);
  }
});

test('event show prints an event, its failures in order, and its body as received', async () => {
  const { code, stdout } = await run(['show', idOf('dead')]);
  assert.equal(code, 0);
  for (const line of [
    /^status +dead$/m,
    /^source +github$/m,
    /^ip +192\.0\.2\.7$/m,
    /^user-agent +a test$/m,
    /^delivery id +–$/m,
    /^attempt 1 .* one\nattempt 2 .* two$/m,
  ])
    assert.match(stdout, line);
  assert.ok(stdout.endsWith('\n{"event":"push","data":{"page_id":"p"}}\n'));
  const json = await run(['show', idOf('dead'), '--json']);
  assert.deepEqual(
    JSON.parse(json.stdout),
    (await inbox.call('GET', `/events/${idOf('dead')}`)).json,
  );
});

test('event redeliver counts new, repeated and waiting events, and leaves those being delivered', async () => {
  const one = await put({ status: 'dead', attempts: 3 });
  const other = await put({ status: 'done' });
  const waits = await put({ status: 'waiting', attempts: 2 });
  const runs = await put({ status: 'waiting', attempts: 1 });
  await sql`update webhook.work set due_at = now() + interval '1 hour' where event_id = ${waits}`;
  await sql`update webhook.work set due_at = now() + interval '1 hour',
    lease = gen_random_uuid()
    where event_id = ${runs}`;
  const finished = await run(['redeliver', one, other, waits, runs]);
  assert.deepEqual(finished, {
    code: 0,
    signal: null,
    stdout: '',
    stderr: `3 events ${AGAIN}The other events are unknown or being delivered.\n`,
  });
  const work = await sql`select attempts, due_at <= now() as due from webhook.work
      where event_id in ${sql([one, other, waits, runs])} order by attempts`;
  assert.deepEqual(
    work.map(({ attempts, due }) => [attempts, due]),
    [
      [0, true],
      [0, true],
      [1, false],
      [2, true],
    ],
  );
  assert.equal(
    (await sql`select from webhook.outcomes where event_id in ${sql([one, other])}`).length,
    0,
    'it is as if nothing had become of them',
  );
  assert.equal(
    (await run(['redeliver', await put({ status: 'skipped' })])).stderr,
    `1 event ${AGAIN}`,
  );
  assert.equal((await run(['redeliver', one, one])).stderr, `1 event ${AGAIN}`);
  assertRefused(await run(['redeliver', runs]), 1, /unknown or being delivered/);
  assertRefused(await run(['redeliver', UNKNOWN]), 1, /unknown or being delivered/);
  await sql`delete from webhook.work where event_id <> ${idOf('waiting')}`;
});

test('event redeliver --status redelivers all events with a status, even more than 1,000', async (t) => {
  const own = await openInbox(t);
  const here = { DATABASE_URL: own.databaseUrl };
  const add = (status: string, count: number) => own.sql`
    with event as (insert into webhook.events (id, token_id, event, body) select gen_random_uuid(),
      (select id
      from webhook.tokens limit 1), 'many', '' from generate_series(1, ${count}::int) returning id)
    insert into webhook.outcomes (event_id, status, attempts) select id, ${status}, 3 from event`;
  await add('dead', 2_500);
  await add('done', 10);
  await add('skipped', 1_000);
  await own.sql`insert into webhook.events (id, token_id, event, body) select gen_random_uuid(),
      (select id
    from webhook.tokens limit 1), 'many', '' from generate_series(1, 7)`;
  const left = async () =>
    Object.fromEntries(
      (
        await own.sql`select coalesce(o.status, 'stored') as status, count(*)::int as count
          from webhook.events e left join webhook.outcomes o on o.event_id = e.id
            where not exists (select
          from webhook.work where event_id = e.id) group by 1`
      ).map(({ status, count }) => [status, count]),
    );
  for (const [status, said, after] of [
    ['dead', '2500 events', { done: 10, skipped: 1_000, stored: 7 }],
    ['skipped', '1000 events', { done: 10, stored: 7 }],
    ['stored', '7 events', { done: 10 }],
    ['dead', '0 events', { done: 10 }],
  ] as const) {
    assert.deepEqual(await run(['redeliver', '--status', status], here), {
      code: 0,
      signal: null,
      stdout: '',
      stderr: `${said} ${AGAIN}`,
    });
    assert.deepEqual(await left(), after, status);
  }
  assert.equal((await own.sql`select from webhook.work`).length, 3_507);
});

test('event redeliver --status goes on past events that are being delivered', async (t) => {
  const own = await openInbox(t);
  await own.sql`
    with event as (insert into webhook.events (id, token_id, event, body, received_at)
      select gen_random_uuid(), (select id from webhook.tokens limit 1), 'many', '',
        now() - make_interval(secs => 5000 - n) from generate_series(1, 1501) n
      returning id, token_id, received_at),
    ended as (insert into webhook.outcomes (event_id, status, attempts, received_at)
      select id, 'dead', 3, received_at from event)
    insert into webhook.work (event_id, token_id, received_at, run, lease, due_at)
    select id, token_id, received_at, 2, gen_random_uuid(), now() + interval '1 hour' from event
    order by received_at desc limit 1500`;
  const { stderr } = await run(['redeliver', '--status', 'dead'], {
    DATABASE_URL: own.databaseUrl,
  });
  assert.equal(stderr, `1 event ${AGAIN}`);
});

/** Starts `event tail` and waits until it prints. */
async function follow(t: TestContext, words: readonly string[] = []): Promise<Running> {
  const running = startProgram(t, program, ['event', 'tail', ...words], environment);
  await untilFollowing(() => running.stdout());
  return running;
}

/** It prints nothing at the start, so this sends events until one is shown. */
async function untilFollowing(shown: () => string): Promise<void> {
  await untilSql(async () => {
    await send('is anybody there');
    return shown() !== '';
  }, 'it prints');
}

test('event tail prints each event once, and an interrupt ends it without a stack', async (t) => {
  for (const [words, read] of [
    [[], (line: string) => line.slice(0, 36)],
    [['--json'], (line: string): string => JSON.parse(line).id],
  ] as const) {
    const tail = await follow(t, words);
    const sent = [await send('one'), await send('two'), await send('three')];
    const seen = () => tail.stdout().split('\n').slice(0, -1).map(read);
    await until(() => seen().includes(sent[2] ?? ''));
    assert.deepEqual(
      seen().filter((id) => sent.includes(id)),
      sent,
    );
    tail.signal('SIGINT');
    const { code, signal } = await tail.ended;
    // By the signal itself, so that a shell loop ends, too.
    assert.deepEqual([code, signal, tail.stderr()], [null, 'SIGINT', '']);
  }
});

test('event tail ends when its output has no reader', async (t) => {
  const deaf = startProgram(t, program, ['event', 'tail'], environment, { deaf: true });
  let isOver = false;
  const ended = deaf.ended.finally(() => {
    isOver = true;
  });
  t.signal.addEventListener('abort', () => {
    isOver = true;
  });
  await untilSql(async () => {
    await send('to nobody');
    return isOver;
  }, 'it ends');
  assert.deepEqual([(await ended).signal, deaf.stderr()], [null, '']);
});

test('event tail exits with 1 and one line when the database goes away', async (t) => {
  const tail = await follow(t);
  const other = connect(inbox.databaseUrl);
  t.after(() => other.end());
  let end: { code: number | null } | null = null;
  const ended = tail.ended.then((one) => {
    end = one;
    return one;
  });
  // Like a failover: new connections are ended, too.
  await untilSql(async () => {
    await other`select pg_terminate_backend(pid) from pg_stat_activity
      where application_name = 'gatehouse-webhook-admin' and datname = current_database()`;
    return end !== null;
  }, 'it ends');
  assert.equal((await ended).code, 1);
  assert.match(tail.stderr(), /^gatehouse: [^\n]+\n$/);
});

/** Escape sequences that change the window title and the previous line. */
const EVIL = '\u001b]0;title\u0007\u001b[1A\u001b[2K\u009b31m\rsp\u202eoof\u007f\u0000';
test(
  'no control character of a sender reaches a terminal, and none forges a line',
  async (t) => {
    const event = `evil${EVIL.replace('\0', '')}\nforged  line`;
    const id = await put({ event, body: `{"a":"${EVIL}"}`, status: 'dead', errors: ['an error'] });
    t.after(() => sql`delete from webhook.events where id = ${id}`.then(() => {}));
    const commands = [['list'], ['show', id]];
    for (const words of [...commands, ...commands.map((words) => [...words, '--json'])]) {
      const { shown } = await startOnTerminal(
        t,
        [process.execPath, `${program}/dist/cli.js`, 'event', ...words],
        environment,
      ).left;
      assert.match(shown, /evil/);
      assert.doesNotMatch(shown, /[^\P{Cc}\n]|\p{Bidi_Control}/u, words.join(' '));
      assert.doesNotMatch(shown, /^forged/m);
    }
  },
  withoutTerminal,
);

test('without a terminal, event show prints the body byte for byte', async () => {
  const body = `{"a":"${randomUUID()}\u001b[31m\u0000\r\n é"}`;
  const id = await put({ body, status: 'done' });
  const { stdout } = await run(['show', id]);
  assert.ok(stdout.endsWith(`\n${body}\n`));
  assert.equal(JSON.parse((await run(['show', id, '--json'])).stdout).body, body);
});
