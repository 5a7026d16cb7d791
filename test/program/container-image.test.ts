/**
 * What the container image holds, run as the container runs it: read-only, unprivileged, nothing
 * else in reach.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { SERVICES } from '../support/settings.ts';
import { createEmptyDatabase } from '../support/database.ts';
import { ask, AUTH_TOKEN, logIn, variables, WEBHOOK_TOKEN } from '../support/gatehouse.ts';
import { buildProgram, root, runProgram, startProgram } from '../support/process.ts';

const file = await createEmptyDatabase();
const dockerfile = readFileSync(join(root, 'Dockerfile'), 'utf8');
const finalStage = dockerfile.slice(dockerfile.lastIndexOf('\nFROM '));
const readPackage = (...path: string[]) =>
  JSON.parse(readFileSync(join(root, ...path, 'package.json'), 'utf8'));

test('a production install has one package without dependencies', () => {
  assert.deepEqual(Object.keys(readPackage().dependencies), ['postgres']);
  const {
    dependencies = {},
    peerDependencies = {},
    optionalDependencies = {},
  } = readPackage('node_modules', 'postgres');
  assert.deepEqual({ ...dependencies, ...peerDependencies, ...optionalDependencies }, {});
  const lock: {
    packages: Record<
      string,
      { dev?: boolean; optional?: boolean; devOptional?: boolean; link?: boolean }
    >;
  } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'));
  const installed = Object.entries(lock.packages).filter(
    ([, { dev, optional, devOptional, link }]) => !dev && !optional && !devOptional && !link,
  );
  assert.deepEqual(
    installed.map(([path]) => path),
    ['', 'node_modules/postgres'],
  );
});

const minimal = readFileSync(join(root, 'Dockerfile.minimal'), 'utf8');

test('no package runs code while it is installed', () => {
  const files = [
    'Makefile',
    'Dockerfile',
    'Dockerfile.minimal',
    'scripts/bench/builds.ts',
    'test/e2e/senders/install.ts',
  ];
  const installs = files.flatMap(
    (name) =>
      readFileSync(join(root, name), 'utf8').match(/\bnpm ci\b.*|run\('npm', 'ci'.*/g) ?? [],
  );
  assert.ok(installs.length >= 4);
  for (const line of installs) assert.match(line, /--ignore-scripts/);
});

test('the image holds only the program and its package, and runs unprivileged', () => {
  assert.match(
    finalStage,
    /^ENV NODE_ENV=production MALLOC_\S+ MALLOC_\S+\nCOPY --from=build \/image \/\n/m,
  );
  assert.equal([...finalStage.matchAll(/^(COPY|ADD|RUN)\b/gm)].length, 1);
  assert.match(dockerfile, /npm ci --ignore-scripts --omit=dev --omit=optional\n/);
  assert.match(
    dockerfile,
    /&& cp -R package\.json LICENSE sbom\.cdx\.json node_modules dist \/image\/app /,
    'all that is copied',
  );
  assert.match(finalStage, /^USER [1-9]\d*:[1-9]\d*$/m);
  assert.match(finalStage, /^ENTRYPOINT \["node", "\/app\/dist\/cli\.js"\]\nCMD \["serve"\]$/m);
});

test('both images are built and run alike', () => {
  const instructions = (text: string) => text.replace(/^#.*\n/gm, '');
  const build = (text: string) =>
    /^ARG [\s\S]*?(?=\nRUN mkdir \/minimal|\n\nFROM )/m.exec(
      instructions(text).replace(/\nFROM \$\{NODE\} AS build/, 'FROM build'),
    )?.[0];
  assert.ok(build(dockerfile)?.includes('npm run build'));
  assert.equal(build(minimal), build(dockerfile));
  const run = (text: string) => text.slice(text.lastIndexOf('\nUSER '));
  assert.equal(run(minimal), run(dockerfile));
});

/** The layout of the image's final stage, in a read-only directory. */
function layOut(): string {
  const directory = mkdtempSync(join(tmpdir(), 'gatehouse-image-'));
  after(() => {
    execFileSync('chmod', ['-R', 'u+w', directory]);
    rmSync(directory, { recursive: true, force: true });
  });
  const program = buildProgram();
  cpSync(join(program, 'dist'), join(directory, 'dist'), { recursive: true });
  cpSync(join(program, 'package.json'), join(directory, 'package.json'));
  cpSync(join(root, 'node_modules/postgres'), join(directory, 'node_modules/postgres'), {
    recursive: true,
  });
  execFileSync('chmod', ['-R', 'a+rX,a-w', directory]);
  return directory;
}

const directory = layOut();
/**
 * Root ignores permissions, so the program runs as `nobody` then. Other users are unprivileged
 * already.
 */
const unprivileged = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};
const listing = () =>
  readdirSync(directory, { recursive: true, encoding: 'utf8' })
    .filter((name) => !name.startsWith('node_modules/postgres/'))
    .sort();

/** Each page and file is that of the sources. */
async function checkSharePages(url: string, id: string): Promise<void> {
  for (const [path, name] of [
    ['/', 'make.html'],
    [`/s/${id}`, 'reveal.html'],
    ['/pages/make.js', 'make.js'],
    ['/pages/style.css', '../../platform/http/site/pages/style.css'],
  ]) {
    const source = readFileSync(join(root, 'src/secrets/pages', name ?? ''), 'utf8').replaceAll(
      '{{site}}',
      'Gatehouse',
    );
    const { text } = await ask('GET', `${url}${path}`);
    // A page is its own part, with the name of the site, within the design that all pages share.
    const [, main = source] = /<main>([\s\S]*)<\/main>/.exec(source) ?? [];
    assert.ok(text.includes(main.replaceAll('{{site}}', 'Gatehouse')), path);
  }
}

test('the program runs read-only, unprivileged and with only its own variables', async (t) => {
  const before = listing();
  assert.ok(
    before.includes('dist/cli.js') && !before.some((name) => name.endsWith('.ts')),
    'plain JavaScript',
  );
  const given = {
    ...variables(file.url),
    ADMIN_PASSWORD: '',
    SHARE_PAGES: 'on',
    SIGNIN_PAGES: 'on',
  };
  const running = startProgram(t, directory, ['serve'], given, unprivileged);
  await running.ready(...SERVICES);
  const url = Object.fromEntries(
    await Promise.all(
      SERVICES.map(async (service) => [service, await running.url(service)] as const),
    ),
  );
  for (const service of SERVICES) {
    for (const path of ['/livez', '/readyz', '/openapi.json'])
      assert.equal((await ask('GET', `${url[service]}${path}`)).status, 200, `${service}${path}`);
  }
  const password =
    /created the first administrator "admin" with password (\S+)\s/.exec(running.stderr())?.[1] ??
    '';
  assert.match(await logIn(url.identity ?? '', 'admin', password), /^session:/);
  const kept = await ask('POST', `${url.secrets}/api/store/encrypt`, {
    bearer: AUTH_TOKEN,
    body: { password: 'a secret' },
  });
  const opened = await ask('POST', `${url.secrets}/api/store/decrypt?id=${kept.json.id}`, {
    bearer: AUTH_TOKEN,
    body: { secret: kept.json.secret },
  });
  assert.equal(opened.json.password, 'a secret');
  for (const path of ['/login', '/pages/passkey.js', '/pages/style.css'])
    assert.equal((await ask('GET', `${url.identity}${path}`)).status, 200, path);
  await checkSharePages(url.secrets ?? '', kept.json.id);
  const event = await ask('POST', `${url.webhook}/webhook?token=${WEBHOOK_TOKEN}`, {
    body: { event: 'tested', data: { page_id: '1' } },
  });
  assert.equal(event.json.status, 'accepted');

  running.signal('SIGTERM');
  assert.deepEqual(await running.ended, { code: 0, signal: null });
  assert.deepEqual(listing(), before, 'nothing was written');
});

test('commands work in the image, too', async (t) => {
  const environment = { DATABASE_URL: file.url };
  assert.equal((await runProgram(t, directory, ['migrate'], environment, unprivileged)).code, 0);
  const users = await runProgram(
    t,
    directory,
    ['user', 'list', '--json'],
    environment,
    unprivileged,
  );
  assert.equal(users.code, 0, users.stderr);
});

test('every compiled file has its source map', () => {
  // What browsers run is its own source, copied as it is.
  const names = listing().filter(
    (name) => /^dist\/.*\.js$/.test(name) && !/^dist\/[a-z/]+\/pages\//.test(name),
  );
  assert.ok(names.length > 30, 'the rest of the program');
  for (const name of names) assert.ok(listing().includes(`${name}.map`), name);
});

/**
 * The words of HEALTHCHECK's CMD, as Docker reads them: a backslash at the end of a line joins it
 * to the next.
 */
function healthCheck(): string[] {
  const [, words = ''] =
    /^HEALTHCHECK .*? CMD (\[.*\])$/m.exec(finalStage.replace(/\\\n/g, '')) ?? [];
  return JSON.parse(words);
}

test('the health check finds each service by its variables', async (t) => {
  const [command, flag, script = ''] = healthCheck();
  assert.deepEqual([command, flag], ['node', '-e']);
  const check = (environment: Readonly<Record<string, string>>) => {
    try {
      execFileSync(process.execPath, ['-e', script], { env: environment, stdio: 'ignore' });
      return 'healthy';
    } catch {
      return 'unhealthy';
    }
  };
  // Port 1 is reserved: nothing listens there.
  const nowhere = { IDENTITY_PORT: '1', SECRETS_PORT: '1', PORT: '1', WEBHOOK_PORT: '1' };
  for (const service of SERVICES) {
    const running = startProgram(
      t,
      directory,
      ['serve', service],
      variables(file.url),
      unprivileged,
    );
    const port = new URL(await running.url(service)).port;
    assert.equal(
      check({ ...nowhere, [`${service.toUpperCase()}_PORT`]: port }),
      'healthy',
      service,
    );
    if (service === 'webhook')
      assert.equal(
        check({ IDENTITY_PORT: '1', SECRETS_PORT: '1', PORT: port }),
        'healthy',
        'by its own name',
      );
    running.signal('SIGTERM');
    await running.ended;
    assert.equal(
      check({ ...nowhere, [`${service.toUpperCase()}_PORT`]: port }),
      'unhealthy',
      service,
    );
  }
});
