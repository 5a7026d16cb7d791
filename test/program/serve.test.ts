/** What serves, when it is ready, and what it says of itself. */
import assert from 'node:assert/strict';
import { createServer } from 'node:net';
import { hostname } from 'node:os';
import { isDeepStrictEqual } from 'node:util';
import { SERVICES } from '../support/settings.ts';
import type { ServiceName } from '../../src/serve.ts';
import { runCommand } from '../support/commands.ts';
import { untilSql } from '../support/connections.ts';
import { createDatabase, createEmptyDatabase } from '../support/database.ts';
import {
  ADMIN_PASSWORD,
  ask,
  type Gatehouse,
  logIn,
  startGatehouse,
  variables,
  WEBHOOK_TOKEN,
} from '../support/gatehouse.ts';
import { buildProgram, runProgram, startProgram } from '../support/process.ts';
import { startProxy } from '../support/proxy.ts';
import { test, until } from '../support/until.ts';
import { listenOn } from '../support/ports.ts';

const program = buildProgram();
const file = await createDatabase();
const UNREADY = { identity: 500, secrets: 503, webhook: 503 } as const;

const probe = async (house: Gatehouse, path: string) =>
  Object.fromEntries(
    await Promise.all(
      SERVICES.map(
        async (service) =>
          [service, (await ask('GET', `${house.url[service]}${path}`)).status] as const,
      ),
    ),
  );
const everywhere = (status: number) =>
  Object.fromEntries(SERVICES.map((service) => [service, status]));
const linesOf = (house: Gatehouse, message: string) =>
  house.log().filter((line) => line.message === message);
const untilReady = (house: Gatehouse) =>
  until(() => linesOf(house, 'ready').length === SERVICES.length, 'all services are ready');

/** On a busy machine, the first probe after a change may come before the check has noticed it. */
async function untilProbed(house: Gatehouse, expected: Readonly<Record<string, number>>) {
  const isExpected = async () => isDeepStrictEqual(await probe(house, '/readyz'), expected);
  await untilSql(isExpected, 'the probes say so');
}

test('without a database the process is alive, not ready, and recovers by itself', async (t) => {
  const proxy = await startProxy(t, file.url);
  await proxy.cut();
  const house = await startGatehouse(t, SERVICES, proxy.url, {}, 'listening');
  assert.deepEqual(await probe(house, '/livez'), everywhere(200));
  assert.deepEqual(await probe(house, '/readyz'), UNREADY);
  await until(() => linesOf(house, 'not ready yet, trying again').length >= SERVICES.length);
  await proxy.restore();
  await untilReady(house);
  await untilProbed(house, everywhere(200));
  await proxy.cut();
  assert.deepEqual(await probe(house, '/livez'), everywhere(200));
  await untilProbed(house, UNREADY);
  await proxy.restore();
  await untilProbed(house, everywhere(200));
});

test('with MIGRATE=off the services log and wait until the schema is up to date', async (t) => {
  const { url, sql } = await createEmptyDatabase(t);
  const house = await startGatehouse(t, SERVICES, url, { MIGRATE: 'off' }, 'listening');
  await until(() => linesOf(house, 'not ready yet, trying again').length >= SERVICES.length);
  for (const { level, error } of linesOf(house, 'not ready yet, trying again')) {
    assert.equal(level, 'warn');
    assert.match(
      String(error),
      /^the schema "(identity|secrets|webhook)" is not up to date; run "gatehouse migrate"$/,
    );
  }
  assert.deepEqual(await probe(house, '/readyz'), UNREADY);
  assert.equal(
    (await sql`select from pg_namespace where nspname in ${sql(SERVICES)}`).length,
    0,
    'nothing was made',
  );
  assert.equal((await runCommand(['migrate'], { DATABASE_URL: url })).code, 0);
  await untilReady(house);
  assert.deepEqual(await probe(house, '/readyz'), everywhere(200));
});

test('passing trouble of the database delays a start, and each try is logged with its reason', async (t) => {
  const check = async (service: ServiceName, table: string) => {
    const { url, sql } = await createEmptyDatabase(t);
    assert.equal((await runCommand(['migrate', service], variables(url))).code, 0);
    const codes = ['57014', '53100', '53200', '08P01', '55P03'];
    await sql`create sequence tries`;
    await sql.unsafe(`
      create function trouble() returns trigger language plpgsql as $$
      declare try bigint := nextval('tries');
      begin
        if try <= ${codes.length} then
          raise exception 'trouble' using errcode = (array['${codes.join("','")}'])[try];
        end if;
        return new;
      end $$;
      create trigger trouble before insert on ${service}.${table}
      for each row execute function trouble()`);
    const house = await startGatehouse(t, [service], url, {}, 'listening');
    const lines = () => linesOf(house, 'not ready yet, trying again');
    await until(() => lines().length > 0);
    assert.equal((await ask('GET', `${house.url[service]}/readyz`)).status, UNREADY[service]);
    await until(() => linesOf(house, 'ready').length === 1, 'it is ready');
    // A statement that met a lock is repeated before the start is.
    const logged = lines().map(({ error }) => /SQLSTATE (\w+)/.exec(String(error))?.[1]);
    assert.deepEqual(logged, codes.slice(0, 4), service);
    assert.deepEqual(
      lines().map(({ level, pause_ms: pause }) => [level, pause]),
      [250, 500, 1_000, 1_000].map((pause) => ['warn', pause]),
    );
    await house.stop();
  };
  await Promise.all([
    check('identity', 'locks'),
    check('secrets', 'server_keys'),
    check('webhook', 'tokens'),
  ]);
});

test('serve starts only the named services', async (t) => {
  const running = startProgram(t, program, ['serve', 'webhook', 'identity'], variables(file.url));
  await running.ready('identity', 'webhook');
  const listening = running
    .log()
    .filter(({ message }) => message === 'listening')
    .map(({ service }) => service);
  assert.deepEqual(
    listening.sort(),
    ['identity', 'webhook'],
    'and no metrics, unless they are asked for',
  );
  for (const service of ['identity', 'webhook'])
    assert.equal((await ask('GET', `${await running.url(service)}/readyz`)).status, 200);
});

test('the plain webhook receiver needs no database and warns without a token', async (t) => {
  const running = startProgram(t, program, ['serve', 'webhook'], {
    WEBHOOK_VARIANT: 'plain',
    HOST: '127.0.0.1',
    PORT: '0',
    APP_NAME: 'letterbox',
  });
  await running.ready('webhook');
  const warning = running.log().find(({ level }) => level === 'warn');
  assert.match(String(warning?.message), /accepts events from anyone/);
  const url = await running.url('webhook');
  const answer = await ask('POST', `${url}/webhook`, {
    body: { event: 'tested', data: { page_id: '1' } },
  });
  assert.equal(answer.status, 200);
  const event = await running.line(({ message }) => message === 'event');
  assert.deepEqual(
    [event.id, event.app, event.body],
    [answer.json.id, 'letterbox', { event: 'tested', data: { page_id: '1' } }],
  );
  for (const line of running.log().filter(({ service }) => service === 'webhook'))
    assert.equal(line.app, 'letterbox');
});

// The other ways in which an address is wrong: listen-addresses.test.ts.
test('a port in use ends the process with one line that names it', async (t) => {
  const port = String(await listenOn(t, createServer()));
  const given = { ...variables(file.url), WEBHOOK_PORT: port };
  const { code, stderr } = await runProgram(t, program, ['serve'], given);
  assert.equal(code, 1);
  const said = `webhook cannot listen on 127\\.0\\.0\\.1:${port} \\(EADDRINUSE\\): .* WEBHOOK_PORT `;
  assert.match(stderr, new RegExp(`^gatehouse: ${said}[^\\n]*\\n$`));
});

test('metrics have their own listener, and only there', async (t) => {
  const house = await startGatehouse(t, SERVICES, file.url);
  await logIn(house.url.identity);
  await ask('GET', `${house.url.secrets}/api/store`);
  const { status, headers, text } = await ask('GET', `${house.url.metrics}/metrics`);
  assert.equal(status, 200);
  assert.equal(headers.get('content-type'), 'text/plain; version=0.0.4; charset=utf-8');
  assert.match(
    text,
    /^gatehouse_requests_total\{service="identity",route="POST \/api\/auth\/login",status="200"\} 1$/m,
  );
  assert.match(
    text,
    /^gatehouse_requests_total\{service="secrets",route="GET \/api\/store",status="401"\} 1$/m,
  );
  for (const [body, type] of [
    ['x'.repeat(70_000), 'application/json'],
    ['event=e', 'application/x-www-form-urlencoded'],
    ['{', 'application/json'],
  ] as const) {
    await ask('POST', `${house.url.webhook}/webhook`, {
      bearer: WEBHOOK_TOKEN,
      body,
      headers: { 'content-type': type },
    });
  }
  const refused = (await ask('GET', `${house.url.metrics}/metrics`)).text;
  for (const reason of ['body_too_large', 'unsupported_media_type', 'invalid_body']) {
    assert.match(
      refused,
      new RegExp(
        `^gatehouse_requests_refused_total\\{service="webhook",route="POST /webhook",reason="${reason}"\\} 1$`,
        'm',
      ),
    );
  }
  assert.match(text, /^gatehouse_database_pending\{service="webhook",connection="read"\} 0$/m);
  assert.equal((await ask('GET', `${house.url.metrics}/api/store`)).status, 404);
  for (const service of SERVICES)
    assert.equal((await ask('GET', `${house.url[service]}/metrics`)).status, 404, service);
});

test('each request is logged once, without its path, query or token', async (t) => {
  const house = await startGatehouse(t, SERVICES, file.url);
  const session = await logIn(house.url.identity);
  const id = '00000000-0000-4000-8000-00000000abcd';
  const requests: ReadonlyArray<
    readonly [
      service: 'identity' | 'webhook',
      method: string,
      path: string,
      route: string,
      status: number,
    ]
  > = [
    ['identity', 'GET', `/api/session/info?session=${session}`, 'GET /api/session/info', 200],
    [
      'identity',
      'DELETE',
      `/api/session/${id}/revoke?marked=1`,
      'DELETE /api/session/{session_id}/revoke',
      400,
    ],
    ['identity', 'GET', '/marked/path?marked=1', '(none)', 404],
    ['identity', 'PATCH', '/api/test/?marked=1', '(none)', 405],
    ['webhook', 'POST', `/webhook?token=${WEBHOOK_TOKEN}&marked=1`, 'POST /webhook', 200],
  ];
  for (const [index, [service, method, path, route, status]] of requests.entries()) {
    const given = `request-${index}`;
    const body = service === 'webhook' ? { body: { event: 'tested', data: { page_id: '1' } } } : {};
    const answer = await ask(method, `${house.url[service]}${path}`, {
      ...body,
      bearer: service === 'identity' ? session : WEBHOOK_TOKEN,
      headers: { 'x-request-id': given },
    });
    assert.equal(answer.status, status, answer.text);
    assert.equal(answer.headers.get('x-request-id'), given);
    await until(() => house.log().some(({ request_id }) => request_id === given));
    const lines = house.log().filter(({ request_id }) => request_id === given);
    assert.equal(lines.length, 1);
    const { time, duration_ms, user_id, session_id, token_id, ...rest } = lines[0] ?? {};
    const accepted = { event_id: answer.json?.id, outcome: 'accepted' };
    const app = service === 'webhook' ? { app: 'gatehouse-webhook', ...accepted } : {};
    assert.deepEqual(rest, {
      level: 'info',
      instance: hostname(),
      version: '0.1.0',
      service,
      ...app,
      message: 'request',
      request_id: given,
      method,
      route,
      status,
      ip: '127.0.0.1',
    });
    assert.ok(typeof time === 'string' && typeof duration_ms === 'number');
  }
  for (const word of ['marked', id, session, session.slice('session:'.length), WEBHOOK_TOKEN])
    assert.ok(!house.stdout().includes(word), word);
});

test('lost database connections fail requests, but not the process', async (t) => {
  const running = startProgram(t, program, ['serve'], variables(file.url));
  await running.ready(...SERVICES);
  const url = await running.url('identity');
  const statuses = new Set<number>();
  for (let round = 0; round < 5; round += 1) {
    const logins = Array.from({ length: 20 }, () =>
      ask('POST', `${url}/api/auth/logout`, {
        body: { session: 'session:00000000-0000-4000-8000-000000000000' },
      }),
    );
    // Waits for their ends: on a busy machine, the logins below would meet later ones.
    await file.sql`select pg_terminate_backend(pid, 60_000) from pg_stat_activity
      where datname = current_database() and application_name like 'gatehouse-%'`;
    for (const { status } of await Promise.all(logins)) statuses.add(status);
  }
  assert.deepEqual(
    [...statuses].filter((status) => status !== 200 && status !== 500),
    [],
  );
  await until(() => running.log().filter(({ message }) => message === 'request').length >= 100);
  // A login fails if it uses a connection whose end has not been noticed yet. It uses two
  // connections.
  const tryLogIn = () =>
    ask('POST', `${url}/api/auth/login`, { body: { username: 'admin', password: ADMIN_PASSWORD } });
  const tries = [(await tryLogIn()).status, (await tryLogIn()).status, (await tryLogIn()).status];
  assert.ok(
    tries.every((status) => status === 200 || status === 500) && tries.at(-1) === 200,
    tries.join(', '),
  );
  assert.doesNotMatch(running.stderr(), /^gatehouse:|^ +at /m);
});
