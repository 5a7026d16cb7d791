/** The processes that compose.yaml, the systemd units and the Kubernetes manifests start. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { configure, SERVICE_NAMES } from '../../src/serve.ts';
import { runCommand } from '../support/commands.ts';
import { createDatabase } from '../support/database.ts';
import {
  compose,
  composeServices,
  type Deployed,
  kubernetesWorkloads,
  systemdUnits,
} from '../support/deploy.ts';
import { readDocument } from '../support/documents.ts';
import { buildProgram, root, startProgram } from '../support/process.ts';
import { VARIABLES } from '../support/settings.ts';
import { mapAt, textAt } from '../support/yaml.ts';

const database = await createDatabase();
const DEPLOYED = [...composeServices(), ...systemdUnits(SERVICE_NAMES), ...kubernetesWorkloads()];

const place = mkdtempSync(join(tmpdir(), 'gatehouse-deploy-'));
after(() => rmSync(place, { recursive: true, force: true }));
const secrets = join(place, 'secrets');
const createSecrets = () => execFileSync('sh', [join(root, 'deploy/compose/new-secrets'), secrets]);
createSecrets();

/** The environment with the secrets of this test. @param url of the database, if it is used */
function environmentOf(
  { environment, secrets: seen }: Deployed,
  url: string | null,
): Record<string, string> {
  const own = mkdtempSync(join(place, 'one-'));
  const moved = Object.entries(environment).map(([name, value]) => [
    name,
    value.replace(`${seen}/`, `${secrets}/`),
  ]);
  const given: Record<string, string> = {
    ...Object.fromEntries(moved),
    FIRST_CREDENTIALS_DIR: own,
    ...('CONTROL_SOCKET' in environment && { CONTROL_SOCKET: join(own, 'control') }),
  };
  if (url !== null) {
    given.DATABASE_URL_FILE = join(own, 'url');
    writeFileSync(given.DATABASE_URL_FILE, url);
  }
  return given;
}

test('there are files for all services', () => {
  const services = DEPLOYED.map(({ words }) => words.join(' '))
    .filter((words) => words !== 'migrate')
    .sort();
  const each = SERVICE_NAMES.map((name) => `serve ${name}`);
  assert.deepEqual(services, [...each, ...each, ...each].sort());
});

for (const deployed of DEPLOYED) {
  const {
    from,
    words: [command, service = 'identity'],
    environment,
    files,
    secrets: seen,
  } = deployed;

  test(`${from}: every setting exists, and its value is accepted`, async () => {
    const { NODE_OPTIONS: options, ...settings } = environment;
    assert.equal(options, command === 'serve' ? '--max-semi-space-size=8' : undefined);
    for (const name of Object.keys(settings)) {
      assert.ok(
        Object.hasOwn(VARIABLES, name) || Object.hasOwn(VARIABLES, name.replace(/_FILE$/, '')),
        name,
      );
    }
    const purpose = command === 'serve' ? 'serve' : 'administer';
    const {
      services: [read],
      metrics,
      warnings,
    } = await configure([service], purpose, environmentOf(deployed, null));
    // The connection of compose.yaml stays in a network of the machine. SECURITY.md says when TLS
    // is needed.
    assert.deepEqual(
      warnings.filter(
        (warning) => !warning.startsWith('The connection to the database at postgres'),
      ),
      [],
    );
    assert.equal(read?.name, service);
    assert.equal(
      read.port,
      Number(VARIABLES[`${service.toUpperCase()}_PORT`]),
      'the port that is not set',
    );
    if (!from.startsWith('systemd')) assert.equal(metrics?.port ?? 9464, 9464);
  });

  test(`${from}: every secret that a setting names is there, and no other`, () => {
    const named = Object.values(environment).filter((value) => value.startsWith(`${seen}/`));
    assert.deepEqual(named.map((path) => path.slice(seen.length + 1)).sort(), [...files].sort());
  });

  // `make e2e NAME=deploy` starts these, with Caddy.
  if (from.startsWith('compose.yaml')) continue;
  test(`${from}: it starts`, async (t) => {
    const given: Record<string, string> = environmentOf(deployed, database.url);
    if (command === 'migrate') {
      assert.equal((await runCommand(['migrate'], given)).code, 0);
      return;
    }
    const free = {
      HOST: '127.0.0.1',
      [`${service.toUpperCase()}_PORT`]: '0',
      METRICS_HOST: '127.0.0.1',
    };
    const running = startProgram(t, buildProgram(), deployed.words, {
      ...given,
      ...free,
      ...('METRICS_PORT' in given ? { METRICS_PORT: '0' } : {}),
    });
    await running.ready(service);
    running.signal('SIGTERM');
    assert.deepEqual(await running.ended, { code: 0, signal: null });
  });
}

test('new-secrets creates the files that compose.yaml names, all different, and changes none', () => {
  const names = Object.values(mapAt(compose, 'secrets')).map((one) => textAt(one, 'file'));
  assert.deepEqual(
    names.map((name) => name.replace('./compose/secrets/', '')).sort(),
    readdirSync(secrets).sort(),
  );
  const read = () =>
    readdirSync(secrets)
      .sort()
      .map((name) => readFileSync(join(secrets, name), 'utf8'));
  const first = read();
  const values = first.filter((value) => value !== '');
  assert.equal(new Set(values).size, values.length);
  assert.equal(values.length, names.filter((name) => !name.endsWith('-previous')).length);
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
  for (const {
    words: [, service = ''],
    environment,
    secrets: seen,
  } of systemdUnits(SERVICE_NAMES)) {
    const moved = Object.entries(environment).map(([name, value]) => [
      name,
      value.replace(seen, directory),
    ]);
    const { warnings } = await configure([service], 'serve', Object.fromEntries(moved));
    assert.deepEqual(warnings, []);
  }
});
