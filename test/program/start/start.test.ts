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
import { startProcess } from '../../support/process.ts';
import { test, until } from '../../support/until.ts';

const repository = join(import.meta.dirname, '../../..');
const checkout = makeDirectory({ after }, 'checkout');
cpSync(join(repository, 'scripts'), join(checkout, 'scripts'), { recursive: true });
symlinkSync(join(repository, 'node_modules'), join(checkout, 'node_modules'));
writeFileSync(join(checkout, 'package.json'), '{"type":"module"}');

// It replies on the three ports, and prints the values and signals that it gets.
const standIn = `
import { createServer } from 'node:http';
import { readFileSync, existsSync, writeFileSync } from 'node:fs';
const say = (word, value) => console.log(JSON.stringify({ [word]: value }));
process.on('SIGINT', () => say('signal', 'SIGINT'));
let patience = Number(process.env.PATIENCE ?? 0);
process.on('SIGTERM', () => { say('signal', 'SIGTERM'); if (patience-- === 0) process.exit(); });
say('database', process.env.DATABASE_URL);
const hosts = ['IDENTITY_HOST', 'SECRETS_HOST', 'WEBHOOK_HOST'];
for (const name of hosts) say(name, process.env[name] ?? 'unset');
const first = process.env.FIRST_CREDENTIALS_DIR + '/admin-password';
say('directory', process.env.FIRST_CREDENTIALS_DIR);
if (process.env.ADMIN_PASSWORD) say('ADMIN_PASSWORD', process.env.ADMIN_PASSWORD);
else if (!existsSync(first)) {
  writeFileSync(first, 'a-generated-password');
  const link = process.env.SIGNIN_ORIGIN + '/link#a-token';
  writeFileSync(process.env.FIRST_CREDENTIALS_DIR + '/admin-link', link);
}
const pages = ['SIGNIN_PAGES', 'SHARE_PAGES', 'INBOX_PAGE', 'SIGNIN_ORIGIN', 'SIGNIN_VERIFY_URL'];
const more = ['RETURN_ORIGINS', 'INBOX_USERS', 'SITE_LINKS', 'WEBHOOK_FORWARD_ALLOW_PRIVATE'];
for (const name of [...pages, ...more]) say(name, process.env[name]);
for (const name of ['SERVER_SECRET', 'IDENTITY_SECRET', 'AUTH_TOKEN', 'WEBHOOK_TOKEN']) {
  const file = process.env[name + '_FILE'];
  say(name, process.env[name] ?? readFileSync(file, 'utf8').trim());
}
if (process.env.FAIL) { console.error('a port is taken'); process.exit(3); }
for (const name of ['IDENTITY', 'SECRETS', 'WEBHOOK']) {
  const server = createServer((request, response) => response.end('{}'));
  server.listen(process.env[name + '_PORT'], '127.0.0.1');
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
    /** The values that the stand-in has printed under this name. */
    said: (word: string) =>
      [...output().matchAll(new RegExp(`^\\{"${word}":"(.*)"\\}$`, 'gm'))].map(
        ([, value = '']) => value,
      ),
    /** As Ctrl-C does: to the whole process group. */
    press: (signal: NodeJS.Signals) => process.kill(-running.pid, signal),
  };
}

const query = (url = '', text: string): Promise<unknown[]> =>
  withConnection(url, async (sql) => [...(await sql.unsafe(text))]);

/** As identity's. The administrator has replaced the first password. */
const USERS = `
  create schema identity
  create view users as
    select 'admin' as username, false as password_generated, now() as password_set_at`;

const postgresRuns = () => existsSync(join(checkout, '.data/postgres/data/postmaster.pid'));
const kept = (name: string) => readFileSync(join(checkout, '.data', name), 'utf8').trim();
const ready = /Gatehouse is ready/;

const said = (run: ReturnType<typeof start>, names: readonly string[]) =>
  Object.fromEntries(names.map((name) => [name, run.said(name).join()]));
const HOSTS = ['IDENTITY_HOST', 'SECRETS_HOST', 'WEBHOOK_HOST'];

test('a first start generates and prints everything, and Ctrl-C ends it in order', async (t) => {
  const run = start(t);
  await run.prints(ready);
  await run.prints(/"42"/);
  const [database] = run.said('database');
  await query(database, 'create table kept as select 42 as number');
  await query(database, USERS);
  for (const name of ['server-secret', 'identity-secret', 'auth-token', 'webhook-token']) {
    assert.equal(statSync(join(checkout, '.data', name)).mode & 0o777, 0o600);
    assert.deepEqual(run.said(name.toUpperCase().replace('-', '_')), [kept(name)]);
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
    directory: join(checkout, '.data'),
    IDENTITY_HOST: '127.0.0.1',
    SECRETS_HOST: '127.0.0.1',
    WEBHOOK_HOST: '127.0.0.1',
  };
  assert.deepEqual(said(run, Object.keys(expected)), expected);
  const forCommands = ['signin-pages', 'signin-origin', 'webhook-forward-allow-private'];
  assert.deepEqual(forCommands.map(kept), ['on', origin, 'on']);

  const shown = run.output().slice(run.output().search(ready));
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
  const signals = run.said('signal');
  assert.deepEqual(signals, ['SIGTERM'], 'it comes from make start, not from the terminal');
  assert.equal(postgresRuns(), false);
});

test('a second start reuses everything, rejects a third, and ends when PostgreSQL ends', async (t) => {
  const before = kept('auth-token');
  const run = start(t);
  await run.prints(ready);
  assert.deepEqual(run.said('AUTH_TOKEN'), [before]);
  const rows = await query(run.said('database')[0], 'select number from kept');
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
  assert.deepEqual(run.said('signal'), ['SIGTERM']);
});

test('a kill leaves no process behind', async (t) => {
  const run = start(t);
  await run.prints(ready);
  run.signal('SIGKILL');
  // Its output is closed when the last process that could write to it has ended.
  await run.ended;
  await until(() => !postgresRuns());
  assert.deepEqual(run.said('signal'), ['SIGTERM']);
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
  const given = {
    AUTH_TOKEN: 'given-token',
    WEBHOOK_TOKEN: 'given-webhook',
    SIGNIN_ORIGIN: 'https://login.example.org',
    INBOX_PAGE: 'off',
    IDENTITY_HOST: '0.0.0.0',
  };
  const database = 'postgres://elsewhere/';
  // An empty variable counts as unset.
  const more = {
    DATABASE_URL: database,
    ADMIN_PASSWORD: '',
    HOST: '::',
    PATIENCE: '1',
    NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(clock)}`,
  };
  const run = start(t, { ...given, ...more });
  await run.prints(ready);
  assert.deepEqual(said(run, [...Object.keys(given), 'database']), { ...given, database });
  assert.deepEqual(Object.values(said(run, HOSTS)), ['0.0.0.0', '127.0.0.1', 'unset']);
  assert.match(run.output(), /first password a-generated-password\n/);
  assert.equal(postgresRuns(), false);
  const shown = run.output().slice(run.output().search(ready));
  assert.ok(!shown.includes('given-'));
  assert.match(shown, /bearer token from AUTH_TOKEN\n/);

  // A terminal and a program in between may both deliver one Ctrl-C.
  run.press('SIGINT');
  run.press('SIGTERM');
  await until(() => run.said('signal').length === 1);
  writeFileSync(later, '');
  run.press('SIGINT');
  assert.equal(await run.ended, 0);
  assert.deepEqual(run.said('signal'), ['SIGTERM', 'SIGTERM']);
});

test('with --watch the services restart from source after every change', async (t) => {
  const run = start(t, { DATABASE_URL: 'postgres://elsewhere/' }, '--watch');
  await run.prints(ready);
  writeFileSync(join(checkout, 'src/cli.ts'), `console.log('changed');\n${standIn}`);
  await run.prints(/changed/);
  await until(() => run.said('WEBHOOK_TOKEN').length === 2);
  run.press('SIGINT');
  assert.equal(await run.ended, 0);
  assert.deepEqual(run.said('signal'), ['SIGTERM', 'SIGTERM']);
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
