/** What an operator is told outside the services: at least once, by one replica, and briefly. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import dns from 'node:dns/promises';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import https from 'node:https';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { SCHEMA } from '../../src/identity/migrations.ts';
import { bindRoutes } from '../../src/platform/http/route/route.ts';
import { noticeJobs } from '../../src/platform/process/notify.ts';
import type { Service } from '../../src/platform/process/service.ts';
import type { Notify } from '../../src/platform/process/settings.ts';
import { describeError } from '../../src/platform/runtime/errors.ts';
import { createMetrics } from '../../src/platform/runtime/metrics.ts';
import { start } from '../../src/webhook/start.ts';
import { holdTimers } from '../support/clock.ts';
import { runCommand } from '../support/commands.ts';
import { openConnections, untilSql } from '../support/connections.ts';
import { createDatabase, type TestDatabase } from '../support/database.ts';
import { makeDirectory } from '../support/directories.ts';
import { ask, startGatehouse, variables } from '../support/gatehouse.ts';
import { freePorts, listenOn } from '../support/ports.ts';
import { root, type Running, startProgram } from '../support/process.ts';
import { reply, startRecorder } from '../support/recorder.ts';
import { quiet } from '../support/service-context.ts';
import { readConfig } from '../support/settings.ts';
import { test, until } from '../support/until.ts';

/** As if notifications had begun two days ago. */
const begin = ({ sql }: TestDatabase, schema: string) =>
  sql`insert into ${sql(schema)}.notified values (true, now() - interval '2 days')`;
const makeDue = ({ sql }: TestDatabase, schema: string) =>
  sql`update ${sql(schema)}.notified set next_at = now()`;
/** Waits until what is due was told, or nothing was to be told. */
const untilTold = ({ sql }: TestDatabase, schema: string) =>
  untilSql(async () => {
    const [row] = await sql`select next_at > now() and position > now() - interval '1 minute' as is
      from ${sql(schema)}.notified`;
    return row?.is;
  }, 'all was told');

/** Waits until the log of one of these has a notice that failed so. */
const untilLogged = (replicas: readonly Running[], said: string) =>
  until(
    () =>
      replicas.some((one) =>
        one.log().some(({ job, error }) => job === 'notify' && error === said),
      ),
    `the log says ${said}`,
  );

test('a message is repeated until it was taken, also after kill -9, and by one replica', async (t) => {
  const database = await createDatabase(t);
  const { sql, url } = database;
  await begin(database, 'identity');
  const accounts = [randomUUID(), randomUUID(), randomUUID()];
  const failed = accounts.flatMap((account) => new Array(4).fill(`login.failed ${account}`));
  const others = ['link.created', 'link.used', 'user.secured', 'login.succeeded'];
  for (const note of [...failed, ...others.map((event) => `${event} ${accounts[0]}`)])
    await sql`
      insert into identity.audit (id, created_at, event, via, user_id, count, detail)
      values (gen_random_uuid(), now() - interval '1 minute', split_part(${note}, ' ', 1),
        'nobody', split_part(${note}, ' ', 2)::uuid, 1, '')`;
  const chat = await startRecorder(t);
  const environment = {
    ...variables(url),
    IDENTITY_PORT: '0',
    NOTIFY_URL: `${chat.url}/services/secret?tpl=1`,
    NOTIFY_ALLOW_PRIVATE: 'on',
  };
  const replica = async () => {
    const running = startProgram(t, root, ['serve', 'identity'], environment);
    await running.ready('identity');
    return running;
  };
  const untilSent = (count: number) =>
    until(() => chat.received.length >= count, `message ${count}`);

  chat.answer(reply(500, ''));
  const first = [await replica(), await replica()];
  await untilSent(1);
  await untilLogged(first, 'NOTIFY_URL answered with 500');
  chat.answer(() => {});
  await makeDue(database, 'identity');
  await untilSent(2);
  for (const one of first) one.signal('SIGKILL');
  await Promise.all(first.map(({ ended }) => ended));
  assert.doesNotMatch(first.map((one) => one.stdout() + one.stderr()).join(), /services\/secret/);
  chat.answer(reply(200, 'ok'));
  await Promise.all([replica(), replica()]);
  await makeDue(database, 'identity');
  await untilSent(3);
  await untilTold(database, 'identity');
  await makeDue(database, 'identity');
  await untilTold(database, 'identity');
  const text =
    'Gatehouse, identity: accounts secured: 1, for 1 accounts; ' +
    'links made to set a password (invitations, resets): 1, for 1 accounts; ' +
    'links used: 1, for 1 accounts; wrong passwords and codes: 12, for 3 accounts.';
  assert.deepEqual(
    chat.received.map(({ method, target, headers, body }) => [
      `${method} ${target}`,
      headers['content-type'],
      JSON.parse(body),
    ]),
    new Array(3).fill(['POST /services/secret?tpl=1', 'application/json', { text }]),
  );
});

/** @returns the address of a server whose certificate ends in five days */
async function startTls(t: TestContext, directory: string): Promise<string> {
  const key = join(directory, 'key');
  const cert = join(directory, 'cert');
  const words = 'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost';
  const files = ['-keyout', key, '-out', cert, '-days', '5'];
  spawnSync('openssl', [...words.split(' '), ...files]);
  const server = https.createServer({ key: readFileSync(key), cert: readFileSync(cert) });
  return `https://127.0.0.1:${await listenOn(t, server)}`;
}

test('a program gets dead events, refused senders and certificates, and no secret', async (t) => {
  const database = await createDatabase(t);
  const { sql, url } = database;
  const directory = makeDirectory(t, 'notify');
  const told = join(directory, 'told');
  const program = join(directory, 'tell');
  writeFileSync(program, `#!/bin/sh\ncat >> ${told}\nenv >> ${told}\n`, { mode: 0o700 });
  const near = await startTls(t, directory);
  await begin(database, 'webhook');
  await sql`insert into webhook.outcomes (event_id, status, attempts, ended_at)
    select gen_random_uuid(), status, 1, now() - interval '1 minute'
    from unnest(array['dead', 'dead', 'done']) status`;
  await sql`insert into webhook.unstored (token_id, reason, hour, count, first_at)
    select gen_random_uuid(), reason, date_trunc('hour', now()), 7, now() - interval '1 minute'
    from unnest(array['invalid_signature', 'unauthorized', 'handshake']) reason`;
  const { url: address } = await startGatehouse(t, ['webhook'], url, {
    NOTIFY_COMMAND: program,
    WEBHOOK_FORWARD_URL: `${near}/path?key`,
    WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
    WEBHOOK_SECRET: 'a secret of the tests that is long enough',
    TZ: 'UTC',
  });
  await untilTold(database, 'webhook');
  const [text = '', ...lines] = readFileSync(told, 'utf8').split('\n');
  assert.match(
    text,
    /^Gatehouse, webhook: events given up \(dead\): 2; senders refused: 2 \(invalid_signature, unauthorized\); the certificate of https:\/\/127\.0\.0\.1:\d+ ends on \w{3} [ \d]\d [\d:]{8} \d{4} GMT\.$/,
  );
  assert.ok(text.includes(near));
  assert.ok(lines.includes('TZ=UTC'));
  assert.doesNotMatch(lines.join(), /WEBHOOK|NOTIFY|DATABASE|secret/);
  const { text: metrics } = await ask('GET', `${address.metrics}/metrics`);
  assert.match(metrics, /^gatehouse_notifications_sent_total\{service="webhook"\} 1$/m);
});

test('certificates are looked at once a day, from 14 days before their end, each once', async (t) => {
  const { url, sql } = await createDatabase(t);
  const read = (name: string) =>
    readFileSync(join(import.meta.dirname, '../unit/vectors/tls', name));
  let connections = 0;
  const server = https.createServer({ key: read('server.key'), cert: read('server.crt') });
  server.on('connection', () => {
    connections += 1;
  });
  const origin = `https://127.0.0.1:${await listenOn(t, server)}`;
  const plain = await startRecorder(t);
  const [closed] = await freePorts(1);
  for (const target of [
    { url: `${origin}/one` },
    { url: `${origin}/two` },
    { url: plain.url },
    { url: plain.url.replace('http', 'https') },
    { url: `https://127.0.0.1:${closed}/` },
    // A name that no resolver is asked for, as it is too long.
    { url: `https://${'a'.repeat(300)}.example/` },
    { command: ['/bin/true'] },
  ])
    await sql`insert into webhook.tokens (id, name, digest, target)
      values (gen_random_uuid(), 'one', gen_random_uuid()::text::bytea, ${sql.json(target)})`;
  const { webhook } = readConfig(['webhook'], 'serve', {
    ...variables(url),
    WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
  });
  const service: Service = await start(webhook ?? assert.fail(), quiet());
  t.after(() => service.storage?.database.close());
  const ends = [`the certificate of ${origin} ends on Oct 29 14:53:45 2126 GMT`];
  for (const [since, until, said, looks] of [
    ['2126-10-14 23:59:00+00', '2126-10-15 00:01:00+00', [], 1],
    ['2126-10-15 23:59:00+00', '2126-10-16 00:01:00+00', ends, 1],
    ['2126-10-16 00:01:00+00', '2126-10-16 23:59:00+00', [], 0],
    ['2126-11-14 23:59:00+00', '2126-11-15 00:01:00+00', ends, 1],
  ] as const) {
    connections = 0;
    assert.deepEqual([await service.observe?.(since, until), connections], [said, looks], until);
  }
});

/** Runs the job of a service once, which has seen something. */
async function openNotices(t: TestContext, allowPrivate = true) {
  const database = await createDatabase(t);
  await begin(database, 'identity');
  const storage = { database: openConnections(t, database.url, 'notices'), schema: SCHEMA };
  const metrics = createMetrics();
  const asked: string[] = [];
  const observe = (seen: readonly string[]) => async (since: string) => {
    asked.push(since);
    return seen;
  };
  return {
    makeDue: () => makeDue(database, 'identity'),
    /** The beginnings of the times for which the service was asked. */
    asked,
    metrics: () => metrics.text(),
    /** @returns what the log would say of a failure */
    async run(target: Notify['target'], ...seen: readonly string[]) {
      const service = { storage, observe: observe(seen), routes: bindRoutes([], null) };
      const notify = { target, environment: {}, allowPrivate };
      const [job] = noticeJobs('identity', service, 'Site', notify, metrics);
      assert.ok(job);
      return job.batch().then(
        () => 'told',
        (error: unknown) => describeError(error).error,
      );
    },
  };
}

const UNTRUSTED = 'DEPTH_ZERO_SELF_SIGNED_CERT';

test('what was not taken is said in the log, and told again at its time, with the cause', async (t) => {
  const { run, makeDue, asked, metrics } = await openNotices(t);
  const directory = makeDirectory(t, 'taken');
  const script = (name: string, text: string, mode = 0o700) => {
    writeFileSync(join(directory, name), `#!/bin/sh\n${text}\n`, { mode });
    return join(directory, name);
  };
  const chat = await startRecorder(t);
  const [port] = await freePorts(1);
  const { url } = chat;
  chat.answer(reply(302, '', { location: `${url}/elsewhere` }));
  for (const [target, said] of [
    [join(directory, 'none'), 'NOTIFY_COMMAND ended with ENOENT'],
    // A path below a file.
    [join(script('file', 'exit 0'), 'none'), 'NOTIFY_COMMAND ended with ENOTDIR'],
    [script('closed', 'exit 0', 0o600), 'NOTIFY_COMMAND ended with EACCES'],
    [script('failing', 'cat > /dev/null; exit 75'), 'NOTIFY_COMMAND ended with 75'],
    [script('killed', 'kill -9 $$'), 'NOTIFY_COMMAND ended with SIGKILL'],
    [new URL(url), 'NOTIFY_URL answered with 302'],
    [new URL(`http://127.0.0.1:${port}`), 'NOTIFY_URL did not answer (ECONNREFUSED)'],
    // Its certificate is checked before the message is sent.
    [new URL(await startTls(t, directory)), `NOTIFY_URL did not answer (${UNTRUSTED})`],
  ] as const) {
    assert.equal(await run(target, 'seen'), said);
    assert.equal(await run(target, 'seen'), 'told', 'nothing is due');
    await makeDue();
  }
  assert.deepEqual([new Set(asked).size, asked.length, chat.received.length], [1, 8, 1]);
  assert.doesNotMatch(metrics(), /notifications_sent/);

  // More than a pipe holds: the program ends before it could be written.
  const seen = 'x'.repeat(1_000_000);
  assert.equal(await run(script('deaf', 'exit 0'), seen), 'told');
  await makeDue();
  assert.equal(await run(script('unused', 'exit 75')), 'told', 'without anything to tell');
  assert.equal(new Set(asked).size, 2, 'what was told is not told again');
  assert.match(metrics(), /^gatehouse_notifications_sent_total\{service="identity"\} 1$/m);
});

test('a program and a chat service that hang are given up, and the program ends', async (t) => {
  const { run, makeDue } = await openNotices(t);
  const endLimits = holdTimers(t, 10_000);
  const directory = makeDirectory(t, 'hangs');
  const program = join(directory, 'hang');
  const id = join(directory, 'id');
  writeFileSync(program, `#!/bin/sh\necho $$ > ${id}.new\nmv ${id}.new ${id}\nexec sleep 600\n`, {
    mode: 0o700,
  });
  const running = run(program, 'seen');
  await until(() => existsSync(id), 'the program runs');
  endLimits();
  assert.equal(await running, 'NOTIFY_COMMAND did not end within 10 s');
  const isGone = () => spawnSync('kill', ['-0', readFileSync(id, 'utf8').trim()]).status !== 0;
  await until(isGone, 'the program has ended');

  await makeDue();
  const chat = await startRecorder(t);
  chat.answer(() => {});
  const posting = run(new URL(chat.url), 'seen');
  await until(() => chat.received.length > 0, 'the message has arrived');
  endLimits();
  assert.equal(await posting, 'NOTIFY_URL did not answer within 10 s');
});

test('a name that has a private address is refused before anything is sent', async (t) => {
  const { run } = await openNotices(t, false);
  const local = [{ address: '127.0.0.1', family: 4 }];
  const { mock } = t.mock.method(dns, 'lookup', async () => local);
  syncBuiltinESMExports();
  t.after(() => {
    mock.restore();
    syncBuiltinESMExports();
  });
  const chat = await startRecorder(t);
  const said = 'NOTIFY_URL is a private address; set NOTIFY_ALLOW_PRIVATE=on to allow it';
  assert.equal(await run(new URL(`http://public.example:${chat.port}/`), 'seen'), said);
  assert.equal(chat.received.length, 0);
});

test('serve and check refuse a private address', async (t) => {
  const { url } = await createDatabase(t);
  const given = { NOTIFY_URL: 'http://127.0.0.1/' };
  const message = 'NOTIFY_URL is a private address; set NOTIFY_ALLOW_PRIVATE=on to allow it.';
  await assert.rejects(startGatehouse(t, ['identity'], url, given), { message });
  const { code, stderr } = await runCommand(['check', 'identity'], { ...variables(url), ...given });
  assert.deepEqual([code, stderr], [1, `gatehouse: ${message}\n`]);
  // It tells nothing.
  await startGatehouse(t, ['secrets'], url, given);
});
