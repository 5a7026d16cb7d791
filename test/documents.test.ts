/** What the documents say of variables, commands, endpoints and errors, held against the code, both ways. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, test } from 'node:test';
import { promisify } from 'node:util';
import { COMMANDS as EVENT_COMMANDS } from '../src/commands/events.ts';
import { COMMANDS as IDENTITY_COMMANDS } from '../src/commands/identity.ts';
import { COMMANDS as SECRETS_COMMANDS } from '../src/commands/secrets.ts';
import { COMMANDS as WEBHOOK_COMMANDS } from '../src/commands/webhook.ts';
import type { Route } from '../src/http/call.ts';
import { ERRORS } from '../src/http/errors.ts';
import { routes as identity } from '../src/identity/routes.ts';
import { createRoutes } from '../src/secrets/routes.ts';
import { createRoutes as createWebhookRoutes, inboxPage } from '../src/webhook/routes.ts';
import { createDatabase } from './support/database.ts';
import { VARIABLES } from './support/settings.ts';
import { ADMIN_PASSWORD, AUTH_TOKEN, startGatehouse, WEBHOOK_TOKEN } from './support/gatehouse.ts';

const webhook = createWebhookRoutes(await inboxPage());
const run = promisify(execFile);
const root = dirname(import.meta.dirname);
const read = (name: string) => readFileSync(join(root, name), 'utf8');
const readme = read('README.md');

/** The rows of the first table under a heading, as cells. */
function table(heading: string): string[][] {
  const section = readme.split(`\n## ${heading}\n`)[1]?.split('\n## ')[0] ?? '';
  const lines = section.split('\n').filter((line) => line.startsWith('|'));
  return lines.slice(2).map((line) => line.slice(1, -1).split('|').map((cell) => cell.trim().replace(/^`(.*)`$/, '$1')));
}

const secrets = await createRoutes({ expires_in: { default: 1, max: 1 }, max_reads: { default: 1, max: 1 } }, true);

test('README lists every variable with its default, and none that does not exist', () => {
  const said = table('Configuration').map(([name, fallback]) => [name, fallback]);
  assert.deepEqual(said, Object.entries(VARIABLES).map(([name, variable]) => [name, variable.fallback]));
});

test('README lists every error code with its status and message', () => {
  assert.deepEqual(table('Errors'), Object.entries(ERRORS).map(([code, { status, message }]) => [code, String(status), message]));
});

test('README lists every endpoint', () => {
  const builtIn = ['/livez', '/readyz', '/openapi.json'];
  const row = (name: string) => (route: Route<never>) => [name, `${route.method} ${route.pattern}`, route.summary];
  const own = (routes: ReadonlyArray<Route<never>>) => routes.filter(({ pattern }) => !builtIn.includes(pattern));
  const expected = [
    ...own(identity).map(row('identity')),
    ...own(secrets).map(row('secrets')),
    ...own(webhook).map(row('webhook')),
    ...identity.filter(({ pattern }) => builtIn.includes(pattern)).map(row('each')),
  ];
  assert.deepEqual(table('Endpoints'), expected);
});

test('README lists every command, and so does --help', async () => {
  const said = table('Commands');
  const { stdout } = await run(process.execPath, ['--import', 'tsx', join(root, 'src/cli.ts'), '--help'], { cwd: root });
  const helped = stdout.split('\n').filter((line) => line.startsWith('  ')).map((line) => [line.slice(2, 17).trim(), line.slice(18)]);
  assert.deepEqual(said, helped);
  assert.deepEqual(said.slice(2).map(([name]) => name), [...IDENTITY_COMMANDS, ...SECRETS_COMMANDS, ...WEBHOOK_COMMANDS, ...EVENT_COMMANDS].map(({ name }) => name));
});

test('the changelog knows the version of the package', () => {
  const { version }: { version: string } = JSON.parse(read('package.json'));
  assert.equal(/^## ([0-9.]+)/m.exec(read('CHANGELOG.md'))?.[1], version);
});

test('every file and folder that a document names exists', () => {
  const all = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter((name) => !/^(node_modules|dist|\.git|\.data)\b/.test(name));
  for (const document of ['README.md', 'SECURITY.md', 'CONTRIBUTING.md', 'FORWARD-AUTH.md', 'WEBHOOKS.md']) {
    const named = [...read(document).matchAll(/(?:`|\()((?:src|test|scripts)\/[A-Za-z0-9_.*/-]+|[A-Z][A-Za-z]+(?:\.md)?)(?:`|\))/g)].map(([, name = '']) => name);
    for (const name of named.filter((one) => one.includes('/') || one.endsWith('.md'))) {
      const pattern = new RegExp(`^${name.replace(/\/$/, '').replaceAll('.', '\\.').replaceAll('*', '[^/]*')}$`);
      assert.ok(all.some((file) => pattern.test(file)), `${document} names ${name}, which does not exist`);
    }
  }
});

test('make help has a line for each target that README and CONTRIBUTING name', async () => {
  const { stdout } = await run('make', ['-s', 'help'], { cwd: root });
  const named = [...`${readme}${read('CONTRIBUTING.md')}`.matchAll(/\bmake ([a-z-]+)/g)].map(([, target]) => target);
  const targets = new Set(named.filter((target) => read('Makefile').includes(`\n${target}:`)));
  assert.ok(targets.size >= 5, 'the documents name the targets');
  for (const target of targets) assert.match(stdout, new RegExp(`^ +make ${target} +\\S`, 'm'));
});

/** What differs from run to run, made equal. A token is told from a word by its length. */
function normal(text: string): string {
  return text
    .replace(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, '<uuid>')
    .replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g, '<time>')
    .replace(/"([A-Za-z0-9_-]{43}|key:[A-Za-z0-9_-]{49})"/g, '"<key>"')
    .replace(/"curl\/[0-9.]+"/g, '"curl"')
    .trim();
}

test("README's tour: each command, pasted in order, gives the answer that is printed below it", async (context) => {
  const database = await createDatabase(context);
  const { url } = await startGatehouse(context, ['identity', 'secrets', 'webhook'], database.url);
  const place = mkdtempSync(join(tmpdir(), 'gatehouse-tour-'));
  after(() => rmSync(place, { recursive: true, force: true }));
  mkdirSync(join(place, '.data'));
  writeFileSync(join(place, '.data/admin-password'), `${ADMIN_PASSWORD}\n`);
  writeFileSync(join(place, '.data/auth-token'), AUTH_TOKEN);
  writeFileSync(join(place, '.data/webhook-token'), WEBHOOK_TOKEN);
  const tour = readme.split('\n## A tour\n')[1]?.split('\n## ')[0] ?? '';
  const steps = [...tour.matchAll(/```sh\n([\s\S]*?)```\n```json\n([\s\S]*?)```/g)];
  assert.ok(steps.length >= 8, 'the tour has its steps');
  // One shell for all, as in a terminal; a mark after each answer, which has no newline of its own.
  const script = steps.map(([, commands = '']) => `${commands.replaceAll(/^(curl .*)$/gm, '$1; echo')}echo ----`).join('\n');
  const ported = script
    .replaceAll('localhost:3000', url.identity)
    .replaceAll('localhost:8080', url.secrets)
    .replaceAll('localhost:8000', url.webhook);
  const { stdout } = await run('sh', ['-c', ported], { cwd: place });
  const answers = stdout.split('----\n').slice(0, -1);
  assert.deepEqual(answers.map(normal), steps.map(([, , answer = '']) => normal(answer)));
});
