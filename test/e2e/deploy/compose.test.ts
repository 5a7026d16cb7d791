/**
 * compose.yaml as docker-compose reads it, and what it starts: PostgreSQL's script, the services,
 * and a real Caddy.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { composeServices } from '../../support/deploy.ts';
import { buildProgram, root, type Running, startProgram } from '../../support/process.ts';
import { startPostgres, withConnection } from '../../../scripts/postgres.ts';
import { findProgram, start } from '../programs.ts';
import { runTool } from './tools.ts';
import { PAGE, signIn, visit as visitHost } from './visit.ts';

const place = mkdtempSync(join(tmpdir(), 'gatehouse-compose-'));
cpSync(join(root, 'deploy'), join(place, 'deploy'), { recursive: true, dereference: true });
const file = join(place, 'deploy/compose.yaml');
const secrets = join(place, 'deploy/compose/secrets');
execFileSync(join(place, 'deploy/compose/new-secrets'));
const secret = (name: string) => readFileSync(join(secrets, name), 'utf8');

// `postgres` listens on loopback, so its name is replaced in the URL.
const server = await startPostgres({ directory: join(place, 'server'), durable: false });
const { port: databasePort, password, username } = new URL(server.url);
const services = new Map<string, Running>();
/** What runs until the end of the file. Within a test, `after` would end it with the test. */
const endings: Array<() => Promise<void> | void> = [];
const owner = {
  after: (fn: () => Promise<void> | void) => {
    endings.unshift(fn);
  },
};
const received: IncomingMessage[] = [];
const program = createServer((request, response) => {
  received.push(request);
  response.end('the program');
});
let caddy = 0;

before(async () => {
  program.listen(0, '127.0.0.1');
  await once(program, 'listening');
});
after(async () => {
  for (const end of endings) await end();
  program.close().closeAllConnections();
  await server.stop();
  rmSync(place, { recursive: true });
});

function portOfProgram(): number {
  const address = program.address();
  return typeof address === 'object' && address !== null ? address.port : 0;
}

const visit = (name: string, sent = {}, port = caddy) =>
  visitHost(`${name}.example.org`, port, sent);

const DOMAIN = { DOMAIN: 'example.org' };
const config = (name: string, environment = {}) =>
  runTool('docker-compose', ['--file', name, 'config'], environment);

test('docker-compose accepts the file, and says what is missing without a domain', () => {
  const { code, output } = config(file, DOMAIN);
  assert.equal(code, 0, output);
  assert.match(output, /SIGNIN_ORIGIN: https:\/\/login\.example\.org$/m);
  const without = config(file);
  assert.notEqual(without.code, 0);
  assert.match(without.output, /set DOMAIN, for example to example\.org/);
  writeFileSync(`${file}.wrong`, readFileSync(file, 'utf8').replaceAll('read_only:', 'readonly:'));
  assert.match(config(`${file}.wrong`, DOMAIN).output, /readonly/);
});

test("the script for PostgreSQL creates Gatehouse's role and database", async () => {
  // After a rotation, with a password that needs escapes.
  const changed = secret('database-url').replace(/(?<=gatehouse:)\w+/, '%40%C3%A4p:%25w');
  writeFileSync(join(secrets, 'database-url'), changed);
  // The role of this server's superuser has the name already.
  const script = join(place, 'deploy/compose/init.sh');
  writeFileSync(script, readFileSync(script, 'utf8').replaceAll('gatehouse', 'compose'));
  const connection = {
    PGHOST: '127.0.0.1',
    PGPORT: databasePort,
    PGUSER: username,
    PGPASSWORD: decodeURIComponent(password),
    PGDATABASE: 'postgres',
  };
  const { code, output } = runTool(script, [], { ...connection, SECRETS: secrets });
  assert.deepEqual([code, output], [0, '']);
  await withConnection(server.url, async (sql) => {
    const [role] =
      await sql`select rolsuper, rolcreatedb, rolcreaterole, rolcanlogin from pg_roles where rolname = 'compose'`;
    assert.deepEqual(
      { ...role },
      { rolsuper: false, rolcreatedb: false, rolcreaterole: false, rolcanlogin: true },
    );
  });
});

test('the services start with its settings and that role', async () => {
  const url = secret('database-url').replace(/gatehouse(?=[:?])/g, 'compose');
  writeFileSync(join(place, 'url'), url.replace('@postgres:5432', `@127.0.0.1:${databasePort}`));
  for (const { words, environment } of composeServices()) {
    const [, service = ''] = words;
    const moved = Object.entries(environment).map(([name, value]) => [
      name,
      value.replace('/run/secrets/', `${secrets}/`),
    ]);
    const own = {
      DATABASE_URL_FILE: join(place, 'url'),
      TRUSTED_PROXIES: '127.0.0.1',
      HOST: '127.0.0.1',
      METRICS_HOST: '127.0.0.1',
      METRICS_PORT: '0',
      CONTROL_SOCKET: join(place, `control-${service}`),
      [`${service.toUpperCase()}_PORT`]: '0',
      PASSWORD_SCRYPT: 'ln=4,r=8,p=1',
    };
    const running = startProgram(owner, buildProgram(), words, {
      ...Object.fromEntries(moved),
      ...own,
    });
    await running.ready(service);
    assert.equal(running.stderr().includes('with password'), false, 'nothing secret is printed');
    services.set(service, running);
  }
});

test('Caddy accepts the file and starts', async () => {
  const home = join(place, 'caddy');
  const given = join(place, 'deploy/compose/Caddyfile');
  const using = (name: string) => ['--config', name, '--adapter', 'caddyfile'];
  const validate = (name: string) =>
    runTool('caddy', ['validate', ...using(name)], {
      ...DOMAIN,
      XDG_DATA_HOME: home,
      XDG_CONFIG_HOME: home,
    });
  const { code, output } = validate(given);
  assert.equal(code, 0, output);
  writeFileSync(
    `${given}.wrong`,
    readFileSync(given, 'utf8').replace('copy_headers', 'copy_header'),
  );
  assert.notEqual(validate(`${given}.wrong`).code, 0, 'a misspelled directive is noticed');
  const urls = await Promise.all(
    [...services].map(async ([name, running]) => [name, new URL(await running.url(name)).host]),
  );
  const app = `127.0.0.1:${portOfProgram()}`;
  const upstreams: Readonly<Record<string, string>> = { ...Object.fromEntries(urls), app };
  const { port } = await start(owner, {
    name: 'caddy',
    unprivileged: true,
    // It makes a certificate for each name after it has opened its port.
    async isReady(port) {
      const visits = ['login', 'secrets', 'hooks', 'app'].map((name) => visit(name, {}, port));
      return (await Promise.allSettled(visits)).every(({ status }) => status === 'fulfilled');
    },
    prepare(directory, free) {
      // Certificates of its own authority, a free port, and loopback. Everything else is as in the
      // file.
      const options = [
        'local_certs',
        'skip_install_trust',
        'auto_https disable_redirects',
        `https_port ${free}`,
        'default_bind 127.0.0.1',
        'admin off',
      ].join('\n\t');
      const own = readFileSync(given, 'utf8')
        .replace('admin off', options)
        .replace(
          /\b(identity|secrets|webhook|app):\d+/g,
          (_, name: string) => upstreams[name] ?? '',
        );
      writeFileSync(join(directory, 'Caddyfile'), own);
      const env = { ...DOMAIN, XDG_DATA_HOME: directory, XDG_CONFIG_HOME: directory };
      return {
        command: [findProgram('caddy') ?? 'caddy', 'run', ...using(join(directory, 'Caddyfile'))],
        env,
      };
    },
  });
  caddy = port;
});

test('secrets and events pass through Caddy, with the address of the client', async () => {
  const json = { 'content-type': 'application/json' };
  const headers = {
    ...json,
    authorization: `Bearer ${secret('auth-token')}`,
    'x-forwarded-for': '203.0.113.9',
  };
  const stored = await visit('secrets', {
    method: 'POST',
    path: '/api/store/encrypt',
    headers,
    body: '{"password":"x"}',
  });
  assert.equal(stored.status, 201);
  assert.equal(
    (await visit('secrets', { path: '/', headers: PAGE })).status,
    200,
    'the share page',
  );
  const sender = { ...json, authorization: `Bearer ${secret('webhook-token')}` };
  const body = '{"event":"tested","data":{"page_id":"1"}}';
  assert.equal(
    (await visit('hooks', { method: 'POST', path: '/webhook', headers: sender, body })).status,
    200,
  );
  const line = await services
    .get('secrets')
    ?.line(({ message, status }) => message === 'request' && status === 201);
  assert.equal(line?.ip, '127.0.0.1', 'not what the client claims to be');
});

test('only signed-in users reach the program, and it gets their names', async () => {
  const away = await visit('app', { path: '/page', headers: PAGE });
  assert.equal(away.status, 303);
  assert.match(String(away.headers.location), /^https:\/\/login\.example\.org\/login\?/);
  assert.equal((await visit('app', { path: '/page' })).status, 401);
  assert.equal(received.length, 0);

  const cookie = await signIn('login.example.org', caddy, secret('admin-password'));
  const forged = { 'x-auth-username': 'forged', 'x-auth-other': 'forged' };
  const page = await visit('app', {
    path: '/page',
    headers: { ...PAGE, ...forged, cookie: `theme=dark; ${cookie}` },
  });
  assert.equal(page.text, 'the program');
  const [seen] = received;
  assert.equal(seen?.headers['x-auth-username'], 'admin');
  assert.equal(seen?.headers['x-auth-super-admin'], 'true');
  assert.equal(seen?.headers['x-auth-other'], undefined);
  assert.equal(seen?.headers.cookie, 'theme=dark');
});

test('without identity no request reaches the program', async () => {
  const before = received.length;
  services.get('identity')?.signal('SIGTERM');
  assert.deepEqual(await services.get('identity')?.ended, { code: 0, signal: null });
  assert.equal((await visit('app', { path: '/page', headers: PAGE })).status, 502);
  assert.equal(received.length, before);
});
