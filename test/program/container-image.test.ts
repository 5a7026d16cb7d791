/** What the Dockerfiles put into an image. `make e2e NAME=image` builds and runs both. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { SERVICES } from '../support/settings.ts';
import { createEmptyDatabase } from '../support/database.ts';
import { startGatehouse } from '../support/gatehouse.ts';
import { root } from '../support/process.ts';

const file = await createEmptyDatabase();
const dockerfile = readFileSync(join(root, 'Dockerfile'), 'utf8');
const finalStage = dockerfile.slice(dockerfile.lastIndexOf('\nFROM '));
const minimal = readFileSync(join(root, 'Dockerfile.minimal'), 'utf8');

test('no package runs code while it is installed', () => {
  const files = ['Makefile', 'Dockerfile', 'Dockerfile.minimal', 'scripts/bench/builds.ts'];
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

test('every compiled file has its source map', () => {
  // What browsers run is its own source, copied as it is.
  const all = readdirSync(join(root, 'dist'), { recursive: true, encoding: 'utf8' });
  const names = all.filter((name) => name.endsWith('.js') && !/^[a-z/]+\/pages\//.test(name));
  assert.ok(names.length > 30, 'the rest of the program');
  for (const name of names) assert.ok(all.includes(`${name}.map`), name);
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
  const isHealthy = (environment: Readonly<Record<string, string>>) =>
    new Promise<boolean>((resolve) => {
      execFile(process.execPath, ['-e', script], { env: environment }, (error) =>
        resolve(error === null),
      );
    });
  // Port 1 is reserved: nothing listens there.
  const nowhere = { IDENTITY_PORT: '1', SECRETS_PORT: '1', PORT: '1', WEBHOOK_PORT: '1' };
  const { url, stop } = await startGatehouse(t, SERVICES, file.url);
  const given = SERVICES.map((service) => {
    const { port } = new URL(url[service]);
    return { ...nowhere, [`${service.toUpperCase()}_PORT`]: port };
  });
  for (const one of given) assert.ok(await isHealthy(one));
  const { port } = new URL(url.webhook);
  assert.ok(await isHealthy({ IDENTITY_PORT: '1', SECRETS_PORT: '1', PORT: port }));
  await stop();
  for (const one of given) assert.ok(!(await isHealthy(one)));
});
