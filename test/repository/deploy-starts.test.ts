/** The processes that compose.yaml, the systemd units and the Kubernetes manifests start. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { configure, SERVICE_NAMES } from '../../src/serve.ts';
import {
  compose,
  composeServices,
  type Deployed,
  kubernetesWorkloads,
  systemdUnits,
  valuesOf,
} from '../support/deploy.ts';
import { makeDirectory } from '../support/directories.ts';
import { readDocument } from '../support/documents.ts';
import { root } from '../support/process.ts';
import { VARIABLES } from '../support/settings.ts';

const DEPLOYED = [...composeServices(), ...systemdUnits(SERVICE_NAMES), ...kubernetesWorkloads()];
const place = makeDirectory({ after }, 'deploy');
const secrets = join(place, 'secrets');
const createSecrets = () => execFileSync('sh', [join(root, 'deploy/compose/new-secrets'), secrets]);
createSecrets();

/** The environment with the secrets in another directory. */
function environmentOf({ environment, secrets: seen }: Deployed, directory = secrets) {
  const moved = Object.entries(environment).map(([name, value]) => [
    name,
    value.replace(`${seen}/`, `${directory}/`),
  ]);
  return { ...Object.fromEntries(moved), FIRST_CREDENTIALS_DIR: place };
}

test('there are files for all services', () => {
  const words = DEPLOYED.map((one) => one.words.join(' '));
  const each = SERVICE_NAMES.map((name) => `serve ${name}`);
  assert.deepEqual(words.sort(), ['migrate', ...each, ...each, ...each].sort());
});

for (const deployed of DEPLOYED) {
  const { from, environment, files, secrets: seen } = deployed;
  const [command, service = 'identity'] = deployed.words;

  test(`${from}: every setting exists and is accepted, and its secrets are there`, async () => {
    const { NODE_OPTIONS: options, ...settings } = environment;
    assert.equal(options, command === 'serve' ? '--max-semi-space-size=8' : undefined);
    const known = (name: string) => Object.hasOwn(VARIABLES, name.replace(/_FILE$/, ''));
    const unknown = Object.keys(settings).filter(
      (name) => !known(name) && !Object.hasOwn(VARIABLES, name),
    );
    assert.deepEqual(unknown, []);
    const purpose = command === 'serve' ? 'serve' : 'administer';
    const { services, metrics, warnings } = await configure(
      [service],
      purpose,
      environmentOf(deployed),
    );
    // The connection of compose.yaml stays in a network of the machine. SECURITY.md says when TLS
    // is needed.
    const meant = warnings.filter((text) => !text.includes('to the database at postgres'));
    assert.deepEqual(meant, []);
    const [{ name, port } = { name: '', port: 0 }] = services;
    assert.deepEqual([name, String(port)], [service, VARIABLES[`${service.toUpperCase()}_PORT`]]);
    if (!from.startsWith('systemd')) assert.equal(metrics?.port ?? 9464, 9464);

    const named = Object.values(environment).filter((value) => value.startsWith(`${seen}/`));
    assert.deepEqual(named.map((path) => path.slice(seen.length + 1)).sort(), [...files].sort());
  });
}

test('new-secrets creates the files that compose.yaml names, all different, and changes none', () => {
  const names = valuesOf(compose, 'file').map((path) => path.replace('./compose/secrets/', ''));
  assert.deepEqual(names.sort(), readdirSync(secrets).sort());
  const read = () => names.map((name) => readFileSync(join(secrets, name), 'utf8'));
  const first = read();
  const values = first.filter((value) => value !== '');
  assert.equal(new Set(values).size, names.filter((name) => !name.endsWith('-previous')).length);
  createSecrets();
  assert.deepEqual(read(), first);
  assert.equal(statSync(secrets).mode & 0o777, 0o700);
});

test('the commands for systemd make credentials that their owner can read, and services take', async () => {
  const text = readDocument('docs/deployment-files.md');
  const [commands = ''] = /^install -d -m 700 [\s\S]*?; done\)$/m.exec(text) ?? [];
  const directory = join(place, 'systemd');
  execFileSync('sh', ['-e', '-c', commands.replaceAll('/etc/gatehouse/credentials', directory)]);
  for (const name of readdirSync(directory))
    assert.equal(statSync(join(directory, name)).mode & 0o777, 0o600, name);
  for (const unit of systemdUnits(SERVICE_NAMES)) {
    const given = environmentOf(unit, directory);
    assert.deepEqual((await configure(unit.words.slice(1), 'serve', given)).warnings, []);
  }
});
