/**
 * compose.yaml in Docker: the commands of docs/deployment-files.md, docs/deploy.md and
 * docs/database.md, from an empty machine to a restored database. Each test goes on where the one
 * before it ended.
 */
import assert from 'node:assert/strict';
import { appendFileSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { blocksUnder } from '../../support/documents.ts';
import { untilSql } from '../../support/connections.ts';
import { SERVICES } from '../../support/settings.ts';
import { type HeaderFields, NAVIGATION } from '../nginx/setup.ts';
import { startDocker, untilHealthy } from './docker.ts';
import { createStack, DOMAIN } from './stack.ts';

const HOSTS = ['login', 'secrets', 'hooks'] as const;
const MIB = 2 ** 20;
/** Of the network in front, in compose.yaml: this machine, and Caddy. */
const GATEWAY = '172.30.0.1';
const CADDY = '172.30.0.2';

interface Stored {
  readonly id: string;
  readonly secret: string;
}

const docker = await startDocker({ after });
const stack = createStack(docker);
const { compose, containerOf, inspect, secret, visit } = stack;

const pidOf = (service: string) => inspect(service, '{{.State.Pid}}');
const untilAllServed = async () => {
  for (const name of HOSTS) await stack.untilServed(name);
};
const send = (name: string, path: string, tokenName: string, body: object) =>
  visit(name, {
    method: 'POST',
    path,
    headers: [
      ['Content-Type', 'application/json'],
      ['Authorization', `Bearer ${secret(tokenName)}`],
    ],
    body: JSON.stringify(body),
  });
const store = async (password: string, limits = {}): Promise<Stored> => {
  const body = { password, ...limits };
  const reply = await send('secrets', '/api/store/encrypt', 'auth-token', body);
  assert.equal(reply.status, 201, reply.text);
  return JSON.parse(reply.text);
};
const read = ({ id, secret: key }: Stored) =>
  send('secrets', `/api/store/decrypt?id=${id}`, 'auth-token', { secret: key });
const assertReads = async (stored: Stored, password: string) => {
  const { text } = await read(stored);
  assert.deepEqual(JSON.parse(text), { password });
};

/** Signs in on the page. @returns the session's cookie */
async function signIn(): Promise<readonly ['Cookie', string]> {
  const fields = { username: 'admin', password: secret('admin-password'), return_to: '' };
  const { headers, text } = await visit('login', {
    method: 'POST',
    path: '/login',
    headers: [
      ['Content-Type', 'application/x-www-form-urlencoded'],
      ['Origin', `https://login.${DOMAIN}`],
      ['Sec-Fetch-Site', 'same-origin'],
    ],
    body: String(new URLSearchParams(fields)),
  });
  return [
    'Cookie',
    /__Secure-gatehouse=[^;]+/.exec(headers.getSetCookie().join())?.[0] ?? assert.fail(text),
  ];
}
let cookie: Awaited<ReturnType<typeof signIn>>;

test('the documented command starts everything, and Docker finds it healthy', async () => {
  compose('up', '--detach', '--build');
  await untilAllServed();
  for (const service of ['postgres', ...SERVICES]) await untilHealthy(docker, containerOf(service));
});

test('people sign in, and secrets and events arrive, with the address of the client', async () => {
  cookie = await signIn();
  const stored = await store('kept by the stack');
  await assertReads(stored, 'kept by the stack');
  const event = { event: 'tested', data: { page_id: '1' } };
  const accepted = await send('hooks', '/webhook', 'webhook-token', event);
  assert.match(accepted.text, /"status":"accepted"/);
  const forged = await visit('secrets', {
    headers: [...NAVIGATION, ['X-Forwarded-For', '192.0.2.1']],
  });
  assert.equal(forged.status, 200);
  const lines = compose('logs', '--no-color', 'secrets').stdout;
  assert.doesNotMatch(lines, /"ip":"192\.0\.2\.1"/);
  const isOurs = lines.includes(`"ip":"${GATEWAY}"`);
  assert.ok(isOurs, 'the address by which this machine reaches Caddy');
});

test('only signed-in users reach the program, which gets their names and its own cookies', async () => {
  const program = `require('node:http')
    .createServer((request, response) => response.end(JSON.stringify(request.headers)))
    .listen(5000)`;
  const where = ['--detach', '--network', 'deploy_programs', '--network-alias', 'app'];
  const image = inspect('identity', '{{.Config.Image}}');
  const words = ['run', ...where, '--entrypoint', 'node', image, '-e', program];
  const container = docker.run('docker', words).stdout.trim();
  const names = ['X-Auth-Username', 'X-Auth-Other', 'X_Auth_Email'];
  const forged: HeaderFields = names.map((name) => [name, 'forged']);
  const headers = [...forged, ['Cookie', `theme=dark; ${cookie[1]}`] as const];
  const ask = () => visit('app', { path: '/page', headers });
  await untilSql(async () => (await ask()).status === 200, 'the program is reached');
  const seen: Readonly<Record<string, string>> = JSON.parse((await ask()).text);
  assert.deepEqual(
    Object.entries(seen).filter(([name, value]) => value === 'forged' || /_/.test(name)),
    [],
  );
  assert.deepEqual([seen['x-auth-username'], seen['x-auth-super-admin']], ['admin', 'true']);
  assert.equal(seen.cookie, 'theme=dark');
  assert.equal((await visit('app', { path: '/page', headers: forged })).status, 401);
  const away = await visit('app', { headers: NAVIGATION });
  assert.match(String(away.headers.get('location')), new RegExp(`^https://login.${DOMAIN}/login`));
  docker.run('docker', ['rm', '--force', container]);
});

test('a process has no privileges, nor has its role; it cannot write, and has the limits of the file', () => {
  const rights = 'rolsuper, rolcreatedb, rolcreaterole, rolcanlogin';
  assert.equal(queryOf(`select ${rights} from pg_roles where rolname = 'gatehouse'`), 'f|f|f|t');
  for (const service of SERVICES) {
    const id = pidOf(service);
    const status = readFileSync(`/proc/${id}/status`, 'utf8');
    assert.match(status, /^Uid:\t1000\t1000\t1000\t1000$/m);
    assert.match(status, /^CapBnd:\t0+$/m);
    assert.match(status, /^NoNewPrivs:\t1$/m);
    assert.match(readFileSync(`/proc/${id}/limits`, 'utf8'), /^Max core file size +0 +0 /m);
    const run = (script: string) =>
      docker.tryRun('docker', ['exec', containerOf(service), 'node', '-e', script]).output;
    assert.equal(Number(run('console.log(process.constrainedMemory())')), 256 * MIB);
    assert.match(run("require('node:fs').writeFileSync('/tmp/x', '')"), /EROFS/);
  }
});

test('only Caddy can be reached from outside', () => {
  const published = docker.run('docker', ['ps', '--format', '{{.Names}} {{.Ports}}']).stdout;
  const open = published.split('\n').filter((line) => line.includes('0.0.0.0:'));
  assert.equal(open.length, 1);
  assert.match(open.join(''), /caddy/);
  const addresses = '{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}';
  for (const [service, port] of [
    ['identity', 3000],
    ['webhook', 8000],
    ['postgres', 5432],
  ] as const) {
    for (const address of inspect(service, addresses).split(' ')) {
      assert.match(connectFrom('programs', address, port), /ETIMEDOUT|silent/, service);
    }
  }
  const inFront = inspect('identity', '{{.NetworkSettings.Networks.deploy_front.IPAddress}}');
  assert.equal(connectFrom('front', inFront, 3000).trim(), 'connected', 'as Caddy does');
  // PostgreSQL's network leads nowhere else.
  assert.match(connectFrom('database', CADDY, 443), /ENETUNREACH|silent/);
});

/** @returns how a connection from a container in a network of the file ends */
function connectFrom(network: string, host: string, port: number): string {
  const script = `
    const socket = require('node:net').connect(${port}, '${host}');
    socket.on('connect', () => end('connected')).on('error', (error) => end(error.code));
    setTimeout(() => end('silent'), 2000);
    const end = (text) => { console.log(text); process.exit(); };`;
  const words = ['run', '--rm', '--network', `deploy_${network}`, '--entrypoint', 'node'];
  const image = inspect('identity', '{{.Config.Image}}');
  return docker.run('docker', [...words, image, '-e', script]).output;
}

test('Docker starts a killed process again, and nothing is lost', async () => {
  const stored = await store('kept over a kill');
  for (const service of [...SERVICES, 'postgres']) process.kill(Number(pidOf(service)), 'SIGKILL');
  await untilAllServed();
  await assertReads(stored, 'kept over a kill');
  assert.equal(inspect('secrets', '{{.RestartCount}}'), '1');
});

test('an upgrade by the documented command keeps what is stored and who is signed in', async () => {
  const stored = await store('kept over an upgrade');
  const before = SERVICES.map(containerOf);
  appendFileSync(join(stack.place, 'src/index.ts'), '\nexport const UPGRADED = true;\n');
  compose('up', '--detach', '--build');
  await untilAllServed();
  for (const [index, service] of SERVICES.entries())
    assert.notEqual(containerOf(service), before[index], `${service} is a new container`);
  await assertReads(stored, 'kept over an upgrade');
  assert.equal((await visit('app', { headers: [...NAVIGATION, cookie] })).status, 502);
});

test('a backup is restored with the documented commands', async () => {
  const stored = await store('in the backup');
  const once = await store('in the backup, for one reader', { max_reads: 1 });
  const before = countRows();
  const dump = ['exec', '-T', 'postgres', 'pg_dump', '--username=postgres', '--format=custom'];
  const backup = join(docker.directory, 'gatehouse.dump');
  shell(`docker-compose --file ${stack.file} ${dump.join(' ')} gatehouse > ${backup}`);
  const later = await store('after the backup');
  assert.notEqual(countRows(), before);
  compose('stop', ...SERVICES);
  for (const service of SERVICES)
    assert.equal(inspectStopped(service), '0 false', `${service} ends within its grace`);
  const restore = 'pg_restore --username=postgres --clean --if-exists --dbname=gatehouse';
  shell(`docker-compose --file ${stack.file} exec -T postgres ${restore} < ${backup}`);
  for (const service of SERVICES) compose('run', '--rm', service, 'restored', service, '--confirm');
  compose('start', ...SERVICES);
  await untilAllServed();
  assert.equal(countRows(), before);
  await assertReads(stored, 'in the backup');
  assert.equal((await read(once)).status, 404, 'it could have been read after the backup');
  assert.equal((await read(later)).status, 404);
  const away = await visit('app', { headers: [...NAVIGATION, cookie] });
  assert.equal(away.status, 303, 'sessions of before the backup have ended');
});

/** @returns how many secrets, events, users and sessions are stored */
function countRows(): string {
  const tables = ['secrets.secrets', 'webhook.events', 'identity.users', 'identity.sessions'];
  return queryOf(`select ${tables.map((name) => `(select count(*) from ${name})`).join(', ')}`);
}

/** @returns the row, its columns separated by | */
function queryOf(statement: string): string {
  const words = ['exec', '-T', 'postgres', 'psql', '--username=postgres', '--dbname=gatehouse'];
  const only = ['--tuples-only', '--no-align', '--command', statement];
  return compose(...words, ...only).stdout.trim();
}

function shell(command: string, environment: Readonly<Record<string, string>> = { DOMAIN }): void {
  const { code, output } = docker.tryRun('sh', ['-euc', command], environment);
  assert.equal(code, 0, output);
}

/** @returns the exit status, and whether the kernel ended the process for lack of memory */
function inspectStopped(service: string): string {
  const id = compose('ps', '--all', '--quiet', service).stdout.trim();
  return docker.inspect(id, '{{.State.ExitCode}} {{.State.OOMKilled}}');
}

test('after the documented rotations, backup and rebuild, and "down", everything is there', async () => {
  const before = await store('stored before the rotation');
  const directory = join(stack.place, 'deploy/compose/secrets');
  const contents = () =>
    readdirSync(directory).map((name) => readFileSync(join(directory, name), 'utf8'));
  const old = contents();
  follow(`echo DOMAIN=${DOMAIN} > deploy/.env`);
  const unchanged = ['admin-password', 'postgres-password', 'webhook-token'];
  for (const block of blocksUnder('docs/deploy.md', '### With Compose')) follow(block);
  const changed = contents();
  const kept = readdirSync(directory).filter((_, index) => old[index] === changed[index]);
  assert.deepEqual(kept, unchanged, 'each other file has another value');
  await untilAllServed();
  const after = await store('stored after it');
  await assertReads(before, 'stored before the rotation');
  const count = countRows();

  const [backup = '', restore = '', rebuild = ''] = blocksUnder(
    'docs/database.md',
    '### With Compose',
  );
  follow(backup);
  compose('down', '--volumes');
  for (const lost of ['deploy/compose/secrets', 'deploy/.env'])
    rmSync(join(stack.place, lost), { recursive: true });
  follow(rebuild);
  await untilAllServed();
  follow(restore);
  await untilAllServed();
  assert.equal(countRows(), count);
  await assertReads(before, 'stored before the rotation');
  await assertReads(after, 'stored after it');
  assert.deepEqual(contents(), changed);
  await signIn();
  compose('down');
  compose('up', '--detach');
  await untilAllServed();
  await assertReads(after, 'stored after it');
});

/** Runs the commands of a document as they are written, with docker-compose 1.29. */
const follow = (commands: string) =>
  shell(
    `cd ${stack.place}
    docker() { shift; docker-compose "$@"; }
    ${commands}`,
    {},
  );
