/** What both images must be. */
import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { lstatSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { createEmptyDatabase } from '../../support/database.ts';
import { ask, AUTH_TOKEN, variables } from '../../support/gatehouse.ts';
import { createLines } from '../../support/lines.ts';
import { SERVICES } from '../../support/settings.ts';
import { until } from '../../support/until.ts';
import { type Container, createBuilder, endOf, findNode, tree } from './build.ts';

const MIB = 2 ** 20;
const { version: VERSION } = JSON.parse(readFileSync(join(tree, 'package.json'), 'utf8'));
/** What buildah itself adds to a container. */
const MOUNTED = /^(dev|proc|sys|run|etc\/(hosts|hostname|resolv\.conf)|var\/run)(\/|$)/;

const listFiles = (directory: string): string[] =>
  readdirSync(directory, { recursive: true, encoding: 'utf8' })
    .filter((name) => !MOUNTED.test(name))
    .sort();
export function sizeOf(directory: string, names: readonly string[]): number {
  const files = names
    .map((name) => lstatSync(join(directory, name)))
    .filter((file) => file.isFile());
  return files.reduce((sum, { size }) => sum + size, 0);
}

/** An image of a Dockerfile, a container of it, and the container's files. */
type BuiltImage = Awaited<ReturnType<typeof buildTwice>>;

/** Call at the top level of a test file. Builds the image twice. */
export async function testImage(
  dockerfile: string,
  check: (container: Container, own: readonly string[]) => void,
): Promise<void> {
  const built = await buildTwice(dockerfile);
  addContentTests(built, check);
  addRunTests(built);
}

async function buildTwice(dockerfile: string) {
  const builder = createBuilder();
  after(builder.remove);
  const { url: databaseUrl } = await createEmptyDatabase();
  builder.buildBase();
  builder.build('gatehouse', dockerfile, 'tree');
  builder.build('again', dockerfile, 'copy');
  const image = builder.inspect('gatehouse');
  const container = builder.create('gatehouse');
  const hasBase = dockerfile === 'Dockerfile';
  const base = hasBase ? listFiles(builder.create('localhost/gatehouse-base').files) : [];
  const isOfBase = new Set(base);
  const files = listFiles(container.files);
  // Those that its base does not have.
  const own = files.filter((name) => !isOfBase.has(name));
  return { dockerfile, builder, image, container, files, own, databaseUrl };
}

function addContentTests(
  { dockerfile, builder, image, container, own }: BuiltImage,
  check: (container: Container, own: readonly string[]) => void,
): void {
  const { config, layers } = image;

  test(`${dockerfile}: two builds give the same layer, whatever times and modes the files have`, () => {
    assert.match(layers.at(-1) ?? '', /^sha256:[0-9a-f]{64}$/);
    assert.equal(layers.length, dockerfile === 'Dockerfile' ? 2 : 1);
    assert.deepEqual(builder.inspect('again').layers, layers);
  });

  test(`${dockerfile}: the image says how it is run`, () => {
    const { User, Entrypoint, Cmd, ExposedPorts, Healthcheck, Labels } = config;
    assert.deepEqual(
      [User, Entrypoint, Cmd],
      ['1000:1000', ['node', '/app/dist/cli.js'], ['serve']],
    );
    assert.deepEqual(Object.keys(ExposedPorts).sort(), ['3000/tcp', '8000/tcp', '8080/tcp']);
    assert.deepEqual(Healthcheck.Test.slice(0, 3), ['CMD', 'node', '-e'], 'without a shell');
    assert.deepEqual(
      ['title', 'licenses', 'version'].map((name) => Labels[`org.opencontainers.image.${name}`]),
      ['Gatehouse', 'MIT', VERSION],
    );
  });

  test(`${dockerfile}: the image adds the program and its package; its user can change nothing`, () => {
    const app = own.filter((name) => name.startsWith('app/'));
    const isExpected =
      /^app\/(dist|node_modules\/postgres)(\/|$)|^app\/(package\.json|node_modules|LICENSE|sbom\.cdx\.json)$/;
    const outside = app.filter((name) => !isExpected.test(name));
    assert.deepEqual(outside, []);
    assert.ok(
      app.includes('app/dist/cli.js') && app.includes('app/node_modules/postgres/package.json'),
    );
    assert.deepEqual(
      app.filter((name) => /^app\/dist\/.*\.(ts|map)$|\.env|\.git/.test(name)),
      [],
    );
    for (const name of own) {
      const { uid, mode, mtimeMs } = lstatSync(join(container.files, name));
      const isLink = lstatSync(join(container.files, name)).isSymbolicLink();
      assert.deepEqual([name, uid, mtimeMs], [name, 0, 0]);
      assert.ok(isLink || (mode & 0o022) === 0, `${name} is writable`);
    }
    assert.ok(sizeOf(container.files, app) < 3 * MIB);
    const sbom = readFileSync(join(container.files, 'app/sbom.cdx.json'), 'utf8');
    assert.match(sbom, new RegExp(`"pkg:generic/node@${process.versions.node}"`));
    check(container, own);
  });
}

function addRunTests({
  dockerfile,
  builder,
  container,
  image,
  files,
  databaseUrl,
}: BuiltImage): void {
  const { Test: healthcheck } = image.config.Healthcheck;

  test(`${dockerfile}: the image serves as an ordinary user, is healthy, and ends on SIGTERM`, async (t) => {
    const given = { ...variables(databaseUrl), SIGNIN_PAGES: 'on', SHARE_PAGES: 'on' };
    const child = builder.start(container, ['node', '/app/dist/cli.js', 'serve'], given);
    t.after(() => {
      const node = findNode(child);
      if (node !== undefined) process.kill(node, 'SIGKILL');
    });
    const ended = endOf(child);
    const ports = await untilReady(child);
    await useServices(ports);
    const node = findNode(child);
    assert.ok(node);
    const status = readFileSync(`/proc/${node}/status`, 'utf8');
    assert.match(status, /^Uid:\t1000\t1000\t1000\t1000$/m);
    assert.match(status, /^CapEff:\t0+$/m);
    const seen = { IDENTITY_PORT: ports.identity ?? '', SECRETS_PORT: '1', PORT: '1' };
    const health = () => builder.run(container, healthcheck.slice(1), seen).code;
    assert.equal(health(), 0);
    process.kill(node, 'SIGTERM');
    assert.equal(await ended, 0);
    assert.notEqual(health(), 0);
    assert.deepEqual(listFiles(container.files), files, 'no file is new');
  });

  test(`${dockerfile}: "gatehouse" is on the PATH`, () => {
    const words = ['gatehouse', 'user', 'list', '--json'];
    const { code, stdout, output } = builder.run(container, words, { DATABASE_URL: databaseUrl });
    assert.equal(code, 0, output);
    assert.match(stdout, /"username":"admin"/);
  });
}

/** @returns the port of each service, once all are ready */
async function untilReady(child: ChildProcess): Promise<Readonly<Record<string, string>>> {
  const lines = createLines((line): Array<Record<string, unknown>> =>
    line.startsWith('{') ? [JSON.parse(line)] : [],
  );
  let errors = '';
  child.stdout?.setEncoding('utf8').on('data', lines.write);
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    errors += text;
  });
  const linesOf = (message: string) => lines.parsed().filter((line) => line.message === message);
  const isSettled = () => child.exitCode !== null || linesOf('ready').length === SERVICES.length;
  await until(isSettled, 'the services are ready');
  assert.equal(child.exitCode, null, errors);
  return Object.fromEntries(
    linesOf('listening').map(({ service, port }) => [String(service), String(port)]),
  );
}

async function useServices(ports: Readonly<Record<string, string>>): Promise<void> {
  const at = (service: string, path: string) => `http://127.0.0.1:${ports[service]}${path}`;
  for (const service of SERVICES) {
    for (const path of ['/livez', '/readyz']) {
      assert.equal((await ask('GET', at(service, path))).status, 200);
    }
  }
  const page = await ask('GET', at('identity', '/login'));
  assert.equal(page.status, 200, 'a page, which is a file');
  const body = { password: 'x' };
  const address = at('secrets', '/api/store/encrypt');
  assert.equal((await ask('POST', address, { bearer: AUTH_TOKEN, body })).status, 201);
}
