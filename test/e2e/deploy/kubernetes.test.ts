/** The manifests against the types of the Kubernetes API. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { test } from 'node:test';
import { KUBERNETES, readDeployFile } from '../../support/deploy.ts';
import { root } from '../../support/process.ts';
import { installPackages, runTool } from '../tools.ts';

const place = installPackages('kubernetes-types@1.30.0', 'yaml@2.9.1');

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

test('every field of the manifests exists in the API and has its type', () => {
  assert.deepEqual(
    documents.flatMap(({ errors }) => errors),
    [],
  );
  assert.ok(manifests.length >= 12);
  const literals = manifests.map((one, index) => {
    const { kind } = one;
    const type = `import('kubernetes-types/${MODULES[kind]}').${kind} & { apiVersion: string; kind: '${kind}' }`;
    return `export const manifest${index}: ${type} = ${JSON.stringify(one)};`;
  });
  writeFileSync(join(place, 'manifests.ts'), literals.join('\n'));
  const modules = ['--module', 'esnext', '--moduleResolution', 'bundler', '--types', ''];
  const options = ['--ignoreConfig', '--noEmit', '--strict', '--skipLibCheck', ...modules];
  const compiler = join(root, 'node_modules/.bin/tsc');
  const { output } = runTool(compiler, [...options, join(place, 'manifests.ts')]);
  assert.equal(output, '');
});
