/** `make start` itself, in a checkout of its own, with stand-ins for the three services. */
import assert from 'node:assert/strict';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer as createWebServer } from 'node:http';
import { join } from 'node:path';
import { after, type TestContext } from 'node:test';
import { withConnection } from '../../../scripts/postgres.ts';
import { makeDirectory } from '../../support/directories.ts';
import { freePorts } from '../../support/ports.ts';
import { root, startProcess } from '../../support/process.ts';
import { test, until } from '../../support/until.ts';

const checkout = makeDirectory({ after }, 'checkout');
cpSync(join(root, 'scripts'), join(checkout, 'scripts'), { recursive: true });
symlinkSync(join(root, 'node_modules'), join(checkout, 'node_modules'));
writeFileSync(join(checkout, 'package.json'), '{"type":"module"}');

// It replies on the three ports, and prints its environment and the signals that it gets.
const standIn = `
import { createServer } from 'node:http';
import { readFileSync, existsSync, writeFileSync } from 'node:fs';
const { env } = process;
const say = (line) => console.log(JSON.stringify(line));
process.on('SIGINT', () => say({ signal: 'SIGINT' }));
let patience = Number(env.PATIENCE ?? 0);
process.on('SIGTERM', () => { say({ signal: 'SIGTERM' }); if (patience-- === 0) process.exit(); });
const first = env.FIRST_CREDENTIALS_DIR + '/admin-password';
if (!env.ADMIN_PASSWORD && !existsSync(first)) {
  writeFileSync(first, 'a-generated-password');
  writeFileSync(env.FIRST_CREDENTIALS_DIR + '/admin-link', env.SIGNIN_ORIGIN + '/link#a-token');
}
const secrets = ['SERVER_SECRET', 'IDENTITY_SECRET', 'AUTH_TOKEN', 'WEBHOOK_TOKEN'].map((name) =>
  [name, env[name] ?? readFileSync(env[name + '_FILE'], 'utf8').trim()]);
say({ environment: { ...env, ...Object.fromEntries(secrets) } });
if (env.FAIL) { console.error('a port is taken'); process.exit(3); }
for (const name of ['IDENTITY', 'SECRETS', 'WEBHOOK']) {
  const server = createServer((request, response) => response.end('{}'));
  server.listen(env[name + '_PORT'], '127.0.0.1');
}
`;
mkdirSync(join(checkout, 'dist'));
mkdirSync(join(checkout, 'src'));
writeFileSync(join(checkout, 'dist/cli.js'), standIn);
writeFileSync(join(checkout, 'src/cli.ts'), standIn);

const [IDENTITY_PORT = '', SECRETS_PORT = '', WEBHOOK_PORT = ''] = await freePorts(3);
const PORTS = { IDENTITY_PORT, SECRETS_PORT, WEBHOOK_PORT };

function start(t: TestContext, variables: Record<string, string> = {}, ...args: string[]) {
  const env = { PATH: process.env.PATH ?? '', ...PORTS, ...variables };
  // Compiled, to save the time that tsx takes; --watch needs tsx itself.
  const script = args.includes('--watch')
    ? ['--import', 'tsx', 'scripts/start.ts']
    : ['scripts/start.js'];
  const command = [process.execPath, ...script, ...args];
  const running = startProcess(t, command, env, { cwd: checkout, detached: true });
  const output = () => running.stdout() + running.stderr();
  return {
    ...running,
    ended: running.ended.then(({ code }) => code),
    output,
    /** Of each stand-in that was started. */
    environments: () => running.log().flatMap(({ environment = [] }) => environment),
    signals: () => running.log().flatMap(({ signal = [] }) => signal),
    /** What is printed when all is ready, and later. */
    summary: () => output().slice(output().search(ready)),
    /** As Ctrl-C does: to the whole process group. */
    press: (signal: NodeJS.Signals) => process.kill(-running.pid, signal),
  };
}

const environmentOf = (run: ReturnType<typeof start>): Record<string, string> =>
  Object(run.environments()[0]);
const query = (url = '', text: string): Promise<unknown[]> =>
  withConnection(url, async (sql) => [...(await sql.unsafe(text))]);
const postgresRuns = () => existsSync(join(checkout, '.data/postgres/data/postmaster.pid'));
const kept = (name: string) => readFileSync(join(checkout, '.data', name), 'utf8').trim();
const ready = /Gatehouse is ready/;

test('a first start generates and prints everything, and Ctrl-C ends it in order', async (t) => {
  const run = start(t);
  await run.prints(ready);
  const environment = environmentOf(run);
  const { DATABASE_URL } = environment;
  await query(DATABASE_URL, 'create table kept as select 42 as number');
  // As identity's. The administrator has replaced the first password.
  await query(
    DATABASE_URL,
    `create schema identity create view users as
      select 'admin' as username, false as password_generated, now() as password_set_at`,
  );
  for (const name of ['server-secret', 'identity-secret', 'auth-token', 'webhook-token']) {
    assert.equal(statSync(join(checkout, '.data', name)).mode & 0o777, 0o600);
    assert.equal(environment[name.toUpperCase().replace('-', '_')], kept(name));
  }
  assert.match(kept('server-secret'), /^[\w-]{43}$/);
  const origin = `http://localhost:${IDENTITY_PORT}`;
  const share = `http://localhost:${SECRETS_PORT}`;
  const inbox = `http://localhost:${WEBHOOK_PORT}`;
  const expected = {
    SIGNIN_PAGES: 'on',
    SHARE_PAGES: 'on',
    INBOX_PAGE: 'on',
    SIGNIN_ORIGIN: origin,
    SIGNIN_VERIFY_URL: `http://127.0.0.1:${IDENTITY_PORT}/api/auth/verify?redirect=401`,
    RETURN_ORIGINS: `${share},${inbox}`,
    INBOX_USERS: 'admin,group:inbox',
    WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
    SITE_LINKS: `Account=${origin}/account,Share=${share}/,Inbox=${inbox}/inbox,Sign out=${origin}/logout`,
    FIRST_CREDENTIALS_DIR: join(checkout, '.data'),
    IDENTITY_HOST: '127.0.0.1',
    SECRETS_HOST: '127.0.0.1',
    WEBHOOK_HOST: '127.0.0.1',
  };
  assert.deepEqual({ ...environment, ...expected }, environment);
  const forCommands = ['signin-pages', 'signin-origin', 'webhook-forward-allow-private'];
  assert.deepEqual(forCommands.map(kept), ['on', origin, 'on']);

  const shown = run.summary();
  for (const text of [
    `Open ${origin}/login and sign in as admin with the first password a-generated-password.`,
    'administrator admin, first password a-generated-password\n',
    `or choose a password of your own at ${origin}/link#a-token\n`,
    `bearer token ${kept('auth-token')}\n`,
    `first webhook token ${kept('webhook-token')}\n`,
  ])
    assert.ok(shown.includes(text), shown);
  for (const name of ['server-secret', 'identity-secret'])
    assert.ok(!shown.includes(kept(name)), `the ${name} is not printed`);

  run.press('SIGINT');
  assert.equal(await run.ended, 0);
  assert.deepEqual(run.signals(), ['SIGTERM'], 'from make start, not from the terminal');
  assert.equal(postgresRuns(), false);
});

test('a second start reuses everything, rejects a third, and ends when PostgreSQL ends', async (t) => {
  const before = kept('auth-token');
  const run = start(t);
  await run.prints(ready);
  const { AUTH_TOKEN, DATABASE_URL } = environmentOf(run);
  assert.equal(AUTH_TOKEN, before);
  const rows = await query(DATABASE_URL, 'select number from kept');
  assert.deepEqual(rows, [{ number: 42 }]);
  assert.match(run.output(), /administrator admin, with the password that was chosen; to set /);
  assert.ok(!run.output().includes('a-generated-password'), 'a replaced password is not printed');

  const third = start(t);
  assert.equal(await third.ended, 1);
  assert.match(third.output(), /^Another "make start" is running in this directory .*\n$/);
  process.kill(Number(kept('postgres/data/postmaster.pid').split('\n')[0]), 'SIGKILL');
  assert.equal(await run.ended, 1);
  const end = /PostgreSQL has ended. The end of its log:\n.*ready to accept connections/s;
  assert.match(run.output(), end);
  assert.deepEqual(run.signals(), ['SIGTERM']);
});

test('a kill leaves no process behind', async (t) => {
  const run = start(t);
  await run.prints(ready);
  run.signal('SIGKILL');
  // Its output is closed when the last process that could write to it has ended.
  await run.ended;
  await until(() => !postgresRuns());
  assert.deepEqual(run.signals(), ['SIGTERM']);
});

test('services that fail to start decide the last message and the exit status', async (t) => {
  // Replies of another program on the same ports do not count.
  for (const port of [IDENTITY_PORT, SECRETS_PORT, WEBHOOK_PORT]) {
    const other = createWebServer((_, response) => response.end());
    await new Promise<void>((resolve) => other.listen(Number(port), '127.0.0.1', resolve));
    t.after(() => other.close());
  }
  const run = start(t, { FAIL: 'yes', DATABASE_URL: 'postgres://elsewhere/' });
  assert.equal(await run.ended, 3);
  assert.match(run.output(), /a port is taken\n$/);
  assert.doesNotMatch(run.output(), ready);
});

test('given values and a second signal are forwarded, and no database is started', async (t) => {
  const later = join(checkout, 'later');
  // Its clock stands still until that file exists.
  const clock = `import { existsSync } from 'node:fs';
    performance.now = () => (existsSync(${JSON.stringify(later)}) ? 1_000 : 0);`;
  // An empty variable counts as unset.
  const given = {
    AUTH_TOKEN: 'given-token',
    WEBHOOK_TOKEN: 'given-webhook',
    SIGNIN_ORIGIN: 'https://login.example.org',
    INBOX_PAGE: 'off',
    IDENTITY_HOST: '0.0.0.0',
    DATABASE_URL: 'postgres://elsewhere/',
    HOST: '::',
    PATIENCE: '1',
    NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(clock)}`,
  };
  const run = start(t, { ...given, ADMIN_PASSWORD: '' });
  await run.prints(ready);
  const environment = environmentOf(run);
  assert.deepEqual({ ...environment, ...given }, environment);
  assert.deepEqual([environment.SECRETS_HOST, environment.WEBHOOK_HOST], ['127.0.0.1', undefined]);
  assert.match(run.output(), /first password a-generated-password\n/);
  assert.equal(postgresRuns(), false);
  assert.ok(!run.summary().includes('given-'));
  assert.match(run.summary(), /bearer token from AUTH_TOKEN\n/);

  // A terminal and a program in between may both deliver one Ctrl-C.
  run.press('SIGINT');
  run.press('SIGTERM');
  await until(() => run.signals().length === 1);
  writeFileSync(later, '');
  run.press('SIGINT');
  assert.equal(await run.ended, 0);
  assert.deepEqual(run.signals(), ['SIGTERM', 'SIGTERM']);
});

test('with --watch the services restart from source after every change', async (t) => {
  const run = start(t, { DATABASE_URL: 'postgres://elsewhere/' }, '--watch');
  await run.prints(ready);
  writeFileSync(join(checkout, 'src/cli.ts'), `console.log('changed');\n${standIn}`);
  await run.prints(/changed/);
  await until(() => run.environments().length === 2);
  run.press('SIGINT');
  assert.equal(await run.ended, 0);
  assert.deepEqual(run.signals(), ['SIGTERM', 'SIGTERM']);
});

test('Ctrl-C ends it while PostgreSQL is being set up', async (t) => {
  rmSync(join(checkout, '.data'), { recursive: true, force: true });
  const run = start(t);
  // Not before initdb writes: until it has a session of its own, the signal ends it before it
  // reaches the program that started it.
  const state = join(checkout, '.data');
  const isWriting = () =>
    existsSync(state) &&
    readdirSync(state).some((name) => existsSync(join(state, name, 'data/PG_VERSION')));
  await until(isWriting, 'initdb writes');
  run.press('SIGINT');
  assert.equal(await run.ended, 0, run.output());
  assert.equal(run.output(), '', 'no service was started');
  assert.equal(postgresRuns(), false);
});
