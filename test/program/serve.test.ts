/** What serves and where, when it is ready, and what it says of itself. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { Server } from 'node:net';
import { hostname, networkInterfaces } from 'node:os';
import { isDeepStrictEqual } from 'node:util';
import type { ServiceName } from '../../src/serve.ts';
import { runCommand } from '../support/commands.ts';
import { untilSql } from '../support/connections.ts';
import { createDatabase, createEmptyDatabase } from '../support/database.ts';
import { readDocument } from '../support/documents.ts';
import { ask, type Gatehouse, logIn, startGatehouse, WEBHOOK_TOKEN } from '../support/gatehouse.ts';
import { freePorts } from '../support/ports.ts';
import { startProxy } from '../support/proxy.ts';
import { type Given, SERVICES } from '../support/settings.ts';
import { test, until } from '../support/until.ts';

const file = await createDatabase();
const UNREADY = { identity: 500, secrets: 503, webhook: 503 } as const;
const everywhere = (status: number) =>
  Object.fromEntries(SERVICES.map((service) => [service, status]));
const page = (event: string) => ({ event, data: { page_id: '1' } });

async function probe({ url }: Gatehouse, path: string) {
  const asked = SERVICES.map(async (service) => {
    const { status } = await ask('GET', url[service] + path);
    return [service, status] as const;
  });
  return Object.fromEntries(await Promise.all(asked));
}
const linesOf = (house: Gatehouse, message: string) =>
  house.log().filter((line) => line.message === message);
const untilReady = (house: Gatehouse) =>
  until(() => linesOf(house, 'ready').length === SERVICES.length, 'all services are ready');
/** On a busy machine, the first probe after a change may come before the check has noticed it. */
const untilProbed = (house: Gatehouse, expected: Readonly<Record<string, number>>) =>
  untilSql(
    async () => isDeepStrictEqual(await probe(house, '/readyz'), expected),
    'the probes say so',
  );
const RETRIED = 'not ready yet, trying again';

test('without a database the process is alive, not ready, and recovers by itself', async (t) => {
  const proxy = await startProxy(t, file.url);
  await proxy.cut();
  const house = await startGatehouse(t, SERVICES, proxy.url, {}, 'listening');
  assert.deepEqual(await probe(house, '/livez'), everywhere(200));
  assert.deepEqual(await probe(house, '/readyz'), UNREADY);
  await until(() => linesOf(house, RETRIED).length >= SERVICES.length);
  await proxy.restore();
  await untilReady(house);
  await untilProbed(house, everywhere(200));
});

test('with MIGRATE=off the services log and wait until the schema is up to date', async (t) => {
  const { url, sql } = await createEmptyDatabase(t);
  const house = await startGatehouse(t, SERVICES, url, { MIGRATE: 'off' }, 'listening');
  await until(() => linesOf(house, RETRIED).length >= SERVICES.length);
  const said = /^warn the schema "\w+" is not up to date; run "gatehouse migrate"$/;
  for (const { level, error } of linesOf(house, RETRIED)) assert.match(`${level} ${error}`, said);
  assert.deepEqual(await probe(house, '/readyz'), UNREADY);
  const made = await sql`select from pg_namespace where nspname in ${sql(SERVICES)}`;
  assert.equal(made.length, 0, 'nothing was made');
  assert.equal((await runCommand(['migrate'], { DATABASE_URL: url })).code, 0);
  await untilReady(house);
  assert.deepEqual(await probe(house, '/readyz'), everywhere(200));
});

/** A table of each service that its start writes to. */
const TABLES = { identity: 'locks', secrets: 'server_keys', webhook: 'tokens' } as const;
// A statement that met a lock is repeated before the start is.
const CODES = ['57014', '53100', '53200', '08P01', '55P03'];
const PAUSES = [250, 500, 1_000, 1_000];

test('passing trouble of the database delays the start of each service, and is logged', async (t) => {
  const { url, sql } = await createDatabase(t);
  await sql.unsafe(`
    create function trouble() returns trigger language plpgsql as $$
    declare try bigint := nextval((tg_table_schema || '.tries')::regclass);
    begin
      if try <= ${CODES.length} then
        raise exception 'trouble' using errcode = (array['${CODES.join("','")}'])[try];
      end if;
      return new;
    end $$`);
  for (const service of SERVICES)
    await sql.unsafe(`
      create sequence ${service}.tries;
      create trigger trouble before insert on ${service}.${TABLES[service]}
      for each row execute function trouble()`);
  const house = await startGatehouse(t, SERVICES, url, {}, 'listening');
  await untilReady(house);
  for (const service of SERVICES) {
    const own = linesOf(house, RETRIED).filter((line) => line.service === service);
    const logged = own.map(({ level, error, pause_ms: pause }) => {
      const [, code] = /SQLSTATE (\w+)/.exec(String(error)) ?? [];
      return [level, code, pause];
    });
    assert.deepEqual(
      logged,
      PAUSES.map((pause, index) => ['warn', CODES[index], pause]),
      service,
    );
  }
});

/**
 * The probe of each service says so, also if checks are shared or follow each other; and the log.
 */
async function assertUnready(house: Gatehouse, problem: RegExp): Promise<void> {
  for (const service of SERVICES) {
    const asked = () => ask('GET', `${house.url[service]}/readyz`);
    await untilSql(async () => problem.test((await asked()).text), `${service} says ${problem}`);
    const isOwn = (line: Record<string, unknown>) =>
      line.service === service && problem.test(String(line.error));
    await until(() => linesOf(house, 'not ready').some(isOwn), `${service} logs ${problem}`);
  }
  const all = () => probe(house, '/readyz');
  const seen = [...(await Promise.all([all(), all(), all()])), await all()];
  assert.deepEqual(seen, new Array(4).fill(UNREADY));
}

test('on a read-only database, without disk space or a connection for requests, no service is ready', async (t) => {
  const { sql, url } = await createEmptyDatabase(t);
  const name = new URL(url).pathname.slice(1);
  const role = `limited_${name}`;
  await sql.unsafe(
    `create role ${role} login password 'limited'; grant create, temporary on database ${name} to ${role}`,
  );
  const own = Object.assign(new URL(url), { username: role, password: 'limited' });
  const house = await startGatehouse(t, SERVICES, own.href);
  await untilProbed(house, everywhere(200));
  for (const [set, reset, problem] of [
    // As on a standby.
    [
      `alter database ${name} set default_transaction_read_only = on`,
      `alter database ${name} reset default_transaction_read_only`,
      /25006: the server accepts no/,
    ],
    // Like a full disk for a statement that needs space, where an update in place still succeeds.
    [
      `alter database ${name} set temp_file_limit = 0`,
      `alter database ${name} reset temp_file_limit`,
      /53400: a limit in the configuration/,
    ],
    // One for each probe, and none for requests.
    [
      `alter role ${role} connection limit ${SERVICES.length}`,
      `alter role ${role} connection limit -1`,
      /SQLSTATE 53300: no connection is left/,
    ],
  ] as const) {
    // A changed default applies to new connections.
    const change = async (statement: string) => {
      await sql.unsafe(`set default_transaction_read_only = off; ${statement}`);
      await sql`select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and application_name like 'gatehouse-%'`;
    };
    await change(set);
    await assertUnready(house, problem);
    await change(reset);
    await untilProbed(house, everywhere(200));
  }
  // The database, and with it what the role owns, is dropped before.
  await house.stop();
  await sql.unsafe(`drop owned by ${role} cascade; drop role ${role}`);
});

test('metrics have their own listener, and only there', async (t) => {
  const house = await startGatehouse(t, SERVICES, file.url);
  await logIn(house.url.identity);
  await ask('GET', `${house.url.secrets}/api/store`);
  await ask('POST', `${house.url.webhook}/webhook`, { bearer: WEBHOOK_TOKEN, body: '{' });
  const { headers, text } = await ask('GET', `${house.url.metrics}/metrics`);
  assert.equal(headers.get('content-type'), 'text/plain; version=0.0.4; charset=utf-8');
  for (const line of [
    'gatehouse_requests_total{service="identity",route="POST /api/auth/login",status="200"} 1',
    'gatehouse_requests_total{service="secrets",route="GET /api/store",status="401"} 1',
    'gatehouse_requests_refused_total{service="webhook",route="POST /webhook",reason="invalid_body"} 1',
  ])
    assert.ok(text.includes(`\n${line}\n`), line);
  assert.equal((await ask('GET', `${house.url.metrics}/api/store`)).status, 404);
  assert.deepEqual(await probe(house, '/metrics'), everywhere(404));
});

// That no other line has a path, a query or a token: test/repository/secrecy.test.ts.
test('each request is logged once, with its route instead of its path', async (t) => {
  const house = await startGatehouse(t, SERVICES, file.url);
  const bearer = await logIn(house.url.identity);
  for (const [service, method, path, route, status] of [
    ['identity', 'GET', `/api/session/info?session=${bearer}`, 'GET /api/session/info', 200],
    ['identity', 'DELETE', '/api/session/x/revoke', 'DELETE /api/session/{session_id}/revoke', 400],
    ['identity', 'PATCH', '/api/test/?marked=1', '(none)', 405],
    ['webhook', 'POST', `/webhook?token=${WEBHOOK_TOKEN}`, 'POST /webhook', 200],
  ] as const) {
    const isWebhook = service === 'webhook';
    const request_id = `request-${service}-${status}`;
    const answer = await ask(method, house.url[service] + path, {
      ...(isWebhook ? { body: page('tested') } : { bearer }),
      headers: { 'x-request-id': request_id },
    });
    assert.deepEqual([answer.status, answer.headers.get('x-request-id')], [status, request_id]);
    const lines = () => house.log().filter((line) => line.request_id === request_id);
    await until(() => lines().length > 0);
    const [{ time, duration_ms, user_id, session_id, token_id, ...rest } = {}, ...others] = lines();
    assert.ok(typeof time === 'string' && typeof duration_ms === 'number');
    const accepted = { app: 'gatehouse-webhook', event_id: answer.json?.id, outcome: 'accepted' };
    const expected = {
      level: 'info',
      instance: hostname(),
      version: '0.1.0',
      service,
      ...(isWebhook ? accepted : {}),
      message: 'request',
      request_id,
      method,
      route,
      status,
      ip: '127.0.0.1',
    };
    assert.deepEqual([rest, others], [expected, []]);
  }
});

test('a listener that is taken, or of another machine, is rejected by name and variable', async (t) => {
  const [port = ''] = await freePorts(1);
  const taken = (name: string) =>
    `${name} cannot listen on .*:${port} \\(EADDRINUSE\\): the port is in use; set ${name.toUpperCase()}_PORT to another one\\.$`;
  const away = (host: string, code: string) =>
    `identity cannot listen on ${host}:0 \\(${code}\\): set IDENTITY_HOST to an address `;
  const cases: ReadonlyArray<readonly [said: string, given: Given, ...services: ServiceName[]]> = [
    [taken('secrets'), { IDENTITY_PORT: port, SECRETS_PORT: port }, 'identity', 'secrets'],
    [
      taken('webhook'),
      { IDENTITY_PORT: port, PORT: port, WEBHOOK_PORT: '' },
      'identity',
      'webhook',
    ],
    [taken('metrics'), { SECRETS_PORT: port, METRICS_PORT: port }, 'secrets'],
    // 192.0.2.0/24 is for documentation (RFC 5737): no machine has it.
    [away('192.0.2.1', 'EADDRNOTAVAIL'), { IDENTITY_HOST: '192.0.2.1' }, 'identity'],
    [away('no address', 'ENOTFOUND'), { IDENTITY_HOST: 'no address' }, 'identity'],
  ];
  for (const [said, given, ...services] of cases) {
    const started = startGatehouse(t, services, 'postgres://u@127.0.0.1:9/none', given);
    await assert.rejects(started, new RegExp(said));
  }
});

test('a port that needs a right of the system is rejected by its variable', async (t) => {
  // Which ports these are, and who may use them, differs between machines.
  t.mock.method(Server.prototype, 'listen', function (this: Server) {
    const denied = Object.assign(new Error('permission denied'), { code: 'EACCES' });
    process.nextTick(() => this.emit('error', denied));
    return this;
  });
  const given = { WEBHOOK_PORT: '443' };
  await assert.rejects(startGatehouse(t, ['webhook'], 'postgres://u@127.0.0.1:9/none', given), {
    message:
      'webhook cannot listen on 127.0.0.1:443 (EACCES): set WEBHOOK_PORT to a port above 1023.',
  });
});

const hasIpv6 = Object.values(networkInterfaces())
  .flatMap((all = []) => all)
  .some(({ address }) => address === '::1');
test(
  'a service that listens on :: serves IPv4 and IPv6',
  async (t) => {
    const given = { WEBHOOK_VARIANT: 'plain', WEBHOOK_HOST: '::' };
    const { url } = await startGatehouse(t, ['webhook'], undefined, given);
    const { port } = new URL(url.webhook);
    for (const host of ['127.0.0.1', '[::1]'])
      assert.equal((await ask('GET', `http://${host}:${port}/livez`)).status, 200, host);
  },
  hasIpv6 ? false : 'this machine has no ::1',
);

/**
 * The words of HEALTHCHECK's CMD, as Docker reads them: a backslash at the end of a line joins it
 * to the next.
 */
function healthCheck(): string[] {
  const text = readDocument('Dockerfile').replace(/\\\n/g, '');
  const [, words = ''] = /^HEALTHCHECK .*? CMD (\[.*\])$/m.exec(text) ?? [];
  return JSON.parse(words);
}

test('the health check finds each service by its variables', async (t) => {
  const [command, flag, script = ''] = healthCheck();
  assert.deepEqual([command, flag], ['node', '-e']);
  const isHealthy = (environment: Readonly<Record<string, string>>) =>
    new Promise<boolean>((resolve) => {
      execFile(process.execPath, ['-e', script], { env: environment }, (error) =>
        resolve(error === null),
      );
    });
  const { url, stop } = await startGatehouse(t, SERVICES, file.url);
  const ports = SERVICES.map((name) => [`${name.toUpperCase()}_PORT`, new URL(url[name]).port]);
  // Port 1 is reserved: nothing listens there.
  const nowhere = { IDENTITY_PORT: '1', SECRETS_PORT: '1', PORT: '1', WEBHOOK_PORT: '1' };
  const own = { IDENTITY_PORT: '1', SECRETS_PORT: '1', PORT: new URL(url.webhook).port };
  const given = [...ports.map((one) => ({ ...nowhere, ...Object.fromEntries([one]) })), own];
  for (const one of given) assert.ok(await isHealthy(one));
  await stop();
  for (const one of given) assert.ok(!(await isHealthy(one)));
});
