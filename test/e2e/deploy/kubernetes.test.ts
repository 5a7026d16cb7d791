/** The manifests against the types of the Kubernetes API. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { after, test } from 'node:test';
import { KUBERNETES, readDeployFile } from '../../support/deploy.ts';
import { root } from '../../support/process.ts';
import { runTool } from './tools.ts';

const place = mkdtempSync(join(tmpdir(), 'gatehouse-kubernetes-'));
after(() => rmSync(place, { recursive: true }));
// Without a manifest npm would install into a project in a parent directory.
writeFileSync(join(place, 'package.json'), '{ "private": true, "type": "module" }');
const flags = [
  '--ignore-scripts',
  '--no-package-lock',
  '--no-audit',
  '--no-fund',
  '--loglevel=error',
];
execFileSync('npm', ['install', ...flags, 'kubernetes-types@1.30.0', 'yaml@2.9.1'], {
  cwd: place,
  timeout: 120_000,
});

interface Manifest {
  readonly kind: string;
}
const {
  parseAllDocuments,
}: {
  parseAllDocuments(text: string, options: object): Array<{ errors: unknown[]; toJS(): Manifest }>;
} = await import(pathToFileURL(join(place, 'node_modules/yaml/dist/index.js')).href);
// As programs in Go read it: there, a bare "on" is true.
const documents = KUBERNETES.flatMap((name) =>
  parseAllDocuments(readDeployFile(name), { version: '1.1', merge: true }),
);
const manifests = documents.map((document) => document.toJS());

/** Where the package has the type of a kind. */
const MODULES: Readonly<Record<string, string>> = {
  ConfigMap: 'core/v1',
  Deployment: 'apps/v1',
  Job: 'batch/v1',
  Namespace: 'core/v1',
  NetworkPolicy: 'networking/v1',
  PodDisruptionBudget: 'policy/v1',
  Service: 'core/v1',
};

/** @returns what the compiler reports about these manifests as literals of their types */
function check(given: readonly Manifest[]): string {
  const literals = given.map((one, index) => {
    const { kind } = one;
    const type = `import('kubernetes-types/${MODULES[kind]}').${kind} & { apiVersion: string; kind: '${kind}' }`;
    return `export const manifest${index}: ${type} = ${JSON.stringify(one)};`;
  });
  writeFileSync(join(place, 'manifests.ts'), literals.join('\n'));
  const modules = ['--module', 'esnext', '--moduleResolution', 'bundler', '--types', ''];
  const options = ['--ignoreConfig', '--noEmit', '--strict', '--skipLibCheck', ...modules];
  return runTool(join(root, 'node_modules/.bin/tsc'), [...options, join(place, 'manifests.ts')])
    .output;
}

test('every field of the manifests exists in the API and has its type', () => {
  assert.deepEqual(
    documents.flatMap(({ errors }) => errors),
    [],
  );
  assert.equal(check(manifests), '');
  assert.ok(manifests.length >= 12);
});

test('a misspelled field, a wrong type and a missing field are noticed', () => {
  const changed = (from: string, to: string) => {
    const text = JSON.stringify(manifests);
    assert.ok(text.includes(from), from);
    const given: Manifest[] = JSON.parse(text.replace(from, to));
    return check(given);
  };
  assert.match(
    changed('"readOnlyRootFilesystem"', '"readonlyRootFilesystem"'),
    /readonlyRootFilesystem/,
  );
  assert.match(
    changed('"enableServiceLinks":false', '"enableServiceLinks":"false"'),
    /not assignable to type 'boolean/,
  );
  assert.match(
    changed('"policyTypes":["Ingress"', '"policyTypes":[1'),
    /not assignable to type 'string'/,
  );
  assert.match(changed('"selector":{"matchLabels":', '"selectors":{"matchLabels":'), /selector/);
  assert.match(changed('"failureThreshold":3', '"failuresThreshold":3'), /failuresThreshold/);
});
