/** Both images, each built twice and run. */
import assert from 'node:assert/strict';
import { lstatSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test, type TestContext } from 'node:test';
import { createEmptyDatabase } from '../../support/database.ts';
import { ask, variables } from '../../support/gatehouse.ts';
import { secretsClient } from '../../support/secrets.ts';
import { SERVICES } from '../../support/settings.ts';
import { BASE, createBuilder, findNode, tree } from './build.ts';

const MIB = 2 ** 20;
const { version: VERSION } = JSON.parse(readFileSync(join(tree, 'package.json'), 'utf8'));
/** What buildah itself adds to a container. */
const MOUNTED = /^(dev|proc|sys|run|etc\/(hosts|hostname|resolv\.conf)|var\/run)(\/|$)/;

const listFiles = (directory: string): string[] =>
  readdirSync(directory, { recursive: true, encoding: 'utf8' })
    .filter((name) => !MOUNTED.test(name))
    .sort();

const builder = createBuilder();
after(builder.remove);
const { url: databaseUrl } = await createEmptyDatabase();
builder.buildBase();
const ofBase = new Set(listFiles(builder.create(BASE).files));

/** An image of a Dockerfile, a container of it, and the container's files. */
function buildTwice(dockerfile: string, layerCount: number) {
  const name = dockerfile.toLowerCase();
  builder.build(name, dockerfile, 'tree');
  builder.build('again', dockerfile, 'copy');
  const { config, layers } = builder.inspect(name);
  assert.match(layers.at(-1) ?? '', /^sha256:[0-9a-f]{64}$/);
  assert.equal(layers.length, layerCount);
  assert.deepEqual(builder.inspect('again').layers, layers, 'whatever times and modes files have');
  const container = builder.create(name);
  const files = listFiles(container.files);
  // Those that its base does not have.
  const own = layerCount === 1 ? files : files.filter((file) => !ofBase.has(file));
  return { config, container, files, own };
}

type Built = ReturnType<typeof buildTwice>;

const sizeOf = ({ container }: Built, names: readonly string[]) =>
  names
    .map((name) => lstatSync(join(container.files, name)))
    .filter((file) => file.isFile())
    .reduce((sum, { size }) => sum + size, 0);

/** The image adds the program and its package; its user can change nothing. */
function checkContent(built: Built): void {
  const { container, own } = built;
  const { ExposedPorts, Labels } = built.config;
  assert.deepEqual(Object.keys(ExposedPorts).sort(), ['3000/tcp', '8000/tcp', '8080/tcp']);
  assert.deepEqual(
    ['title', 'licenses', 'version'].map((name) => Labels[`org.opencontainers.image.${name}`]),
    ['Gatehouse', 'MIT', VERSION],
  );
  const app = own.filter((name) => name.startsWith('app/'));
  const isExpected =
    /^app\/(dist|node_modules\/postgres)(\/|$)|^app\/(package\.json|node_modules|LICENSE|sbom\.cdx\.json)$/;
  const unexpected = app.filter(
    (name) => !isExpected.test(name) || /^app\/dist\/.*\.(ts|map)$|\.env|\.git/.test(name),
  );
  assert.deepEqual(unexpected, []);
  for (const name of own) {
    const file = lstatSync(join(container.files, name));
    assert.deepEqual([name, file.uid, file.mtimeMs], [name, 0, 0]);
    assert.ok(file.isSymbolicLink() || (file.mode & 0o022) === 0, `${name} is writable`);
  }
  assert.ok(sizeOf(built, app) < 3 * MIB);
  const sbom = readFileSync(join(container.files, 'app/sbom.cdx.json'), 'utf8');
  assert.match(sbom, new RegExp(`"pkg:generic/node@${process.versions.node}"`));
}

/** It serves as an ordinary user, is healthy, and ends on SIGTERM. */
async function checkRun(t: TestContext, { config, container, files }: Built): Promise<void> {
  const given = { ...variables(databaseUrl), SIGNIN_PAGES: 'on', SHARE_PAGES: 'on' };
  const running = builder.start(t, container, [...config.Entrypoint, ...config.Cmd], given);
  await running.ready(...SERVICES);
  const node = findNode(running.pid) ?? assert.fail();
  t.after(() => {
    if (findNode(running.pid) === node) process.kill(node, 'SIGKILL');
  });
  for (const service of SERVICES)
    for (const path of ['/livez', '/readyz'])
      assert.equal((await ask('GET', (await running.url(service)) + path)).status, 200);
  const identity = await running.url('identity');
  assert.equal((await ask('GET', `${identity}/login`)).status, 200, 'a page, which is a file');
  await secretsClient(await running.url('secrets')).keep('x');
  const status = readFileSync(`/proc/${node}/status`, 'utf8');
  assert.match(status, /^Uid:\t1000\t1000\t1000\t1000$/m);
  assert.match(status, /^CapEff:\t0+$/m);
  const seen = { IDENTITY_PORT: new URL(identity).port, SECRETS_PORT: '1', PORT: '1' };
  const [, ...healthcheck] = config.Healthcheck.Test;
  const health = () => builder.run(container, healthcheck, seen).code;
  assert.equal(health(), 0);
  process.kill(node, 'SIGTERM');
  assert.deepEqual(await running.ended, { code: 0, signal: null });
  assert.notEqual(health(), 0);
  assert.deepEqual(listFiles(container.files), files, 'no file is new');

  const words = ['gatehouse', 'user', 'list', '--json'];
  const { code, stdout, output } = builder.run(container, words, { DATABASE_URL: databaseUrl });
  assert.equal(code, 0, output);
  assert.match(stdout, /"username":"admin"/);
}

test('Dockerfile: the image adds the program to its base, is the same in each build, and runs', async (t) => {
  const built = buildTwice('Dockerfile', 2);
  checkContent(built);
  assert.deepEqual(
    built.own.filter((name) => !name.startsWith('app/')),
    ['app', 'usr/local/bin/gatehouse'],
  );
  await checkRun(t, built);
});

test('Dockerfile.minimal: the image holds Node and the program alone, is the same, and runs', async (t) => {
  const built = buildTwice('Dockerfile.minimal', 1);
  checkContent(built);
  const others = built.own.filter(
    (name) => !name.startsWith('app/') && lstatSync(join(built.container.files, name)).isFile(),
  );
  const libraries = others.filter((name) => /^lib.*\.so/.test(name));
  assert.deepEqual(
    others.filter((name) => !libraries.includes(name)),
    ['etc/group', 'etc/passwd', 'usr/bin/env', 'usr/local/LICENSE', 'usr/local/bin/node'],
  );
  assert.ok(libraries.length >= 5 && libraries.length <= 10, libraries.join());
  const rest = sizeOf(built, built.own) - sizeOf(built, ['usr/local/bin/node']);
  assert.ok(rest < 12e6, 'beside Node, it is small');
  await checkRun(t, built);
});
