/** What both images must be. */
import assert from 'node:assert/strict';
import { lstatSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { createEmptyDatabase } from '../../test/support/database.ts';
import { ask, AUTH_TOKEN, variables } from '../../test/support/gatehouse.ts';
import { createLines } from '../../test/support/lines.ts';
import { SERVICES } from '../../test/support/settings.ts';
import { until } from '../../test/support/until.ts';
import { type Container, createBuilder, endOf, findNode } from './build.ts';

const MIB = 2 ** 20;
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

/** Call at the top level of a test file. Builds the image twice. */
export async function testImage(
  dockerfile: string,
  check: (container: Container, own: readonly string[]) => void,
): Promise<void> {
  const builder = createBuilder();
  after(builder.remove);
  const database = await createEmptyDatabase();
  builder.buildBase();
  builder.build('gatehouse', dockerfile, 'tree');
  builder.build('again', dockerfile, 'copy');
  const { config, layers } = builder.inspect('gatehouse');
  const container = builder.create('gatehouse');
  const base = new Set(
    dockerfile === 'Dockerfile' ? listFiles(builder.create('localhost/gatehouse-base').files) : [],
  );
  const files = listFiles(container.files);
  const own = files.filter((name) => !base.has(name));

  test(`${dockerfile}: two builds give the same layer, whatever times and modes the files have`, () => {
    assert.match(layers.at(-1) ?? '', /^sha256:[0-9a-f]{64}$/);
    assert.equal(layers.length, dockerfile === 'Dockerfile' ? 2 : 1);
    assert.deepEqual(builder.inspect('again').layers, layers);
  });

  test(`${dockerfile}: the image says how it is run`, () => {
    const { User, Entrypoint, Cmd, ExposedPorts, Healthcheck } = config;
    assert.deepEqual(
      [User, Entrypoint, Cmd],
      ['1000:1000', ['node', '/app/dist/cli.js'], ['serve']],
    );
    assert.deepEqual(Object.keys(ExposedPorts).sort(), ['3000/tcp', '8000/tcp', '8080/tcp']);
    assert.deepEqual(Healthcheck.Test.slice(0, 3), ['CMD', 'node', '-e'], 'without a shell');
  });

  test(`${dockerfile}: it adds the program and its one package, and nothing that its user could change`, () => {
    const app = own.filter((name) => name.startsWith('app/'));
    const isExpected =
      /^app\/(dist|node_modules\/postgres)(\/|$)|^app\/(package\.json|node_modules)$/;
    const outside = app.filter((name) => !isExpected.test(name));
    assert.deepEqual(outside, []);
    assert.ok(
      app.includes('app/dist/cli.js') && app.includes('app/node_modules/postgres/package.json'),
    );
    assert.deepEqual(
      app.filter((name) => /^app\/dist\/.*(?<!\.d)\.ts$|\.env|\.git/.test(name)),
      [],
    );
    for (const name of own) {
      const { uid, mode, mtimeMs } = lstatSync(join(container.files, name));
      const isLink = lstatSync(join(container.files, name)).isSymbolicLink();
      assert.deepEqual([name, uid, mtimeMs], [name, 0, 0]);
      assert.ok(isLink || (mode & 0o022) === 0, `${name} is writable`);
    }
    assert.ok(sizeOf(container.files, app) < 2.5 * MIB);
    check(container, own);
  });

  test(`${dockerfile}: it serves as an ordinary user, changes no file, is healthy, and ends on SIGTERM`, async (t) => {
    const given = { ...variables(database.url), SIGNIN_PAGES: 'on', SHARE_PAGES: 'on' };
    const child = builder.start(container, ['node', '/app/dist/cli.js', 'serve'], given);
    t.after(() => {
      const node = findNode(child);
      if (node !== undefined) process.kill(node, 'SIGKILL');
    });
    const ended = endOf(child);
    const lines = createLines((line): Array<Record<string, unknown>> =>
      line.startsWith('{') ? [JSON.parse(line)] : [],
    );
    let errors = '';
    child.stdout?.setEncoding('utf8').on('data', lines.write);
    child.stderr?.setEncoding('utf8').on('data', (text: string) => (errors += text));
    const linesOf = (message: string) => lines.parsed().filter((line) => line.message === message);
    await until(
      () => child.exitCode !== null || linesOf('ready').length === SERVICES.length,
      'the services are ready',
    );
    assert.equal(child.exitCode, null, errors);
    const ports = Object.fromEntries(
      linesOf('listening').map(({ service, port }) => [String(service), String(port)]),
    );
    const at = (service: string, path: string) => `http://127.0.0.1:${ports[service]}${path}`;
    for (const service of SERVICES) {
      for (const path of ['/livez', '/readyz'])
        assert.equal((await ask('GET', at(service, path))).status, 200);
    }
    assert.equal(
      (await ask('GET', at('identity', '/login'))).status,
      200,
      'a page, which is a file',
    );
    const body = { password: 'x' };
    assert.equal(
      (await ask('POST', at('secrets', '/api/store/encrypt'), { bearer: AUTH_TOKEN, body })).status,
      201,
    );

    const node = findNode(child);
    assert.ok(node);
    const status = readFileSync(`/proc/${node}/status`, 'utf8');
    assert.match(status, /^Uid:\t1000\t1000\t1000\t1000$/m);
    assert.match(status, /^CapEff:\t0+$/m);
    const seen = { IDENTITY_PORT: ports.identity ?? '', SECRETS_PORT: '1', PORT: '1' };
    const health = () => builder.run(container, config.Healthcheck.Test.slice(1), seen).code;
    assert.equal(health(), 0);
    process.kill(node, 'SIGTERM');
    assert.equal(await ended, 0, errors);
    assert.notEqual(health(), 0);
    assert.deepEqual(listFiles(container.files), files, 'no file is new');
  });

  test(`${dockerfile}: "gatehouse" is on the PATH`, () => {
    const words = ['gatehouse', 'user', 'list', '--json'];
    const { code, stdout, output } = builder.run(container, words, { DATABASE_URL: database.url });
    assert.equal(code, 0, output);
    assert.match(stdout, /"username":"admin"/);
  });
}
