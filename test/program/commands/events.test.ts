/**
 * The event commands: list, show, redeliver and tail. `transcripts/events.txt` has what they
 * refuse.
 */
import assert from 'node:assert/strict';
import { after, type TestContext } from 'node:test';
import { connect } from '../../../scripts/postgres.ts';
import { runCommand, startCommand } from '../../support/commands.ts';
import { untilSql } from '../../support/connections.ts';
import { openInbox } from '../../support/inbox.ts';
import { root, startProgram } from '../../support/process.ts';
import { test, until } from '../../support/until.ts';

const inbox = await openInbox({ after });
const { sql, put, send } = inbox;
const environment = { DATABASE_URL: inbox.databaseUrl };
const run = (words: readonly string[], given = environment) =>
  runCommand(['event', ...words], given);

const HOUR = 3_600;
const errors = ['one', 'two'];
const dead = await put({ event: 'push', source: 'github', status: 'dead', age: 3_000, errors });
await put({ event: 'page.updated', status: 'done', deliveryId: 'msg_1', age: 20 * HOUR });
await put({ event: 'page.created', source: 'notion', age: 9 * 24 * HOUR });

/** What each option selects. `test/api/webhook/inbox.test.ts` has the filters themselves. */
const FILTERS: Readonly<Record<string, string>> = {
  '--status dead': 'push',
  '--event page.*': 'page.updated page.created',
  '--source github': 'push',
  '--since 3600': 'push',
  '--since 24h': 'push page.updated',
  '--since 0': '',
  '--delivery-id msg_1': 'page.updated',
  '--text "push"': 'push',
  '--limit 2': 'push page.updated',
};
test('event list takes every filter, and lists the newest first', async () => {
  for (const [words, names] of Object.entries(FILTERS)) {
    const { stdout, stderr } = await run(['list', '--json', ...words.split(' ')]);
    const events: Array<{ event: string }> = JSON.parse(stdout);
    assert.equal(events.map(({ event }) => event).join(' '), names, words + stderr);
  }
});

test('list and show print what the interface answers, with every failure', async () => {
  await sql`
    update webhook.failures set run = 2, attempt = 1, duration_ms = 7, answer_status = 1,
      target = 'command /bin/x'
    where event_id = ${dead} and error = 'two'`;
  for (const [words, path] of [
    [['list'], '/events'],
    [['show', dead], `/events/${dead}`],
  ] as const) {
    const { stdout } = await run([...words, '--json']);
    assert.deepEqual(JSON.parse(stdout), (await inbox.call('GET', path)).json);
  }
  const { stdout: table } = await run(['list']);
  assert.match(table, / +github +push +dead +0 +two\n/);
  const { stdout: shown } = await run(['show', dead]);
  assert.match(
    shown,
    /^attempt 1 {2}\S+ one\nredelivery 1, attempt 1 {2}\S+ two command \/bin\/x, 7 ms, status 1$/m,
  );
});

test('event redeliver --status redelivers more than 1,000, past those that are being delivered', async (t) => {
  const own = await openInbox(t);
  const add = (status: string, count: number) => own.sql`
    with event as (insert into webhook.events (id, token_id, event, body, received_at)
      select gen_random_uuid(), (select id from webhook.tokens limit 1), 'many', '',
        now() - make_interval(secs => 5000 - n) from generate_series(1, ${count}::int) n
      returning id, received_at)
    insert into webhook.outcomes (event_id, status, attempts, received_at)
    select id, ${status}, 3, received_at from event`;
  await add('dead', 2_500);
  await add('done', 10);
  await own.sql`
    insert into webhook.work (event_id, token_id, received_at, run, lease, due_at)
    select id, token_id, e.received_at, 2, gen_random_uuid(), now() + interval '1 hour'
    from webhook.events e join webhook.outcomes o on o.event_id = e.id
    where o.status = 'dead' order by e.received_at desc limit 1500`;
  const words = ['redeliver', '--status', 'dead'];
  const { stderr } = await run(words, { DATABASE_URL: own.databaseUrl });
  const said = '1000 events will be delivered again, by a service that has a target.\n';
  assert.equal(stderr, said);
  const left =
    await own.sql`select status, count(*)::int from webhook.outcomes group by 1 order by 1`;
  assert.deepEqual(
    left.map((row) => Object.values(row)),
    [
      ['dead', 1_500],
      ['done', 10],
    ],
  );
});

/** It prints nothing at the start, so this sends events until one is shown. */
async function untilFollowing({ stdout }: { stdout(): string }): Promise<void> {
  await untilSql(async () => {
    await send('is anybody there');
    return stdout() !== '';
  }, 'it prints');
}

async function follow(t: TestContext, ...words: readonly string[]) {
  const tail = startCommand(['event', 'tail', ...words], environment);
  t.after(async () => {
    tail.leave();
    await tail.ended;
  });
  await untilFollowing(tail);
  return tail;
}

test('event tail prints each event once, as text or JSON, until nobody reads', async (t) => {
  const tails = [await follow(t), await follow(t, '--json')];
  const sent = [await send('one'), await send('two'), await send('three')];
  for (const [index, tail] of tails.entries()) {
    const read = (line: string): string => (index === 0 ? line.slice(0, 36) : JSON.parse(line).id);
    const seen = () => tail.stdout().split('\n').slice(0, -1).map(read);
    await until(() => seen().includes(sent[2] ?? ''));
    assert.deepEqual(
      seen().filter((id) => sent.includes(id)),
      sent,
    );
    tail.leave();
    assert.deepEqual([(await tail.ended).code, tail.stderr()], [0, '']);
  }
});

test('an interrupt, or an output without a reader, ends event tail without a stack', async (t) => {
  const start = (deaf: boolean) => startProgram(t, root, ['event', 'tail'], environment, { deaf });
  const deaf = start(true);
  let isOver = false;
  const ended = deaf.ended.finally(() => {
    isOver = true;
  });
  await untilSql(async () => {
    await send('to nobody');
    return isOver;
  }, 'it ends');
  assert.deepEqual([(await ended).signal, deaf.stderr()], [null, '']);

  const tail = start(false);
  await untilFollowing(tail);
  tail.signal('SIGINT');
  const { code, signal } = await tail.ended;
  // By the signal itself, so that a shell loop ends, too.
  assert.deepEqual([code, signal, tail.stderr()], [null, 'SIGINT', '']);
});

test('event tail exits with 1 and one line when the database goes away', async (t) => {
  const tail = await follow(t);
  const other = connect(inbox.databaseUrl);
  t.after(() => other.end());
  let code: number | null = null;
  void tail.ended.then((end) => {
    code = end.code;
  });
  // Like a failover: new connections are ended, too.
  await untilSql(async () => {
    await other`select pg_terminate_backend(pid) from pg_stat_activity
      where application_name = 'gatehouse-webhook-admin' and datname = current_database()`;
    return code !== null;
  }, 'it ends');
  assert.equal(code, 1);
  assert.match(tail.stderr(), /^gatehouse: [^\n]+\n$/);
});

/** Escape sequences that change the window title and the previous line. */
const EVIL = '\u001b]0;title\u0007\u001b[1A\u001b[2K\u009b31m\rsp\u202eoof\u007f';
test('no control character of a sender reaches a terminal; a pipe gets the body as it is', async () => {
  const body = `{"a":"${EVIL}\u0000\r\n é"}`;
  const event = `evil${EVIL}\nforged  line`;
  const id = await put({ event, body, status: 'dead', errors: ['an error'] });
  for (const words of [['list'], ['show', id], ['list', '--json'], ['show', id, '--json']]) {
    const { stdout } = await startCommand(['event', ...words], environment, '', true).ended;
    assert.match(stdout, /evil/);
    assert.doesNotMatch(stdout, /[^\P{Cc}\n]|\p{Bidi_Control}/u, words.join(' '));
    assert.doesNotMatch(stdout, /^forged/m);
  }
  assert.ok((await run(['show', id])).stdout.endsWith(`\n${body}\n`));
  assert.equal(JSON.parse((await run(['show', id, '--json'])).stdout).body, body);
});
