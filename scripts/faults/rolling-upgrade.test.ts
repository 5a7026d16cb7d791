/**
 * A newer program beside an older one: two of its processes start and migrate at once, an old process starts after that,
 * and then the old ones are stopped. First with the steps that the schemas of secrets and webhook have had so far, and
 * the program before them; and back. Then with a step in each schema that does not exist yet: a new column, table and
 * index, as CONTRIBUTING.md requires of migrations.
 */
import assert from 'node:assert/strict';
import { appendFileSync, cpSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { buildProgram, type Running, startProgram } from '../../test/support/process.ts';
import { withConnection } from '../postgres.ts';
import { buildEarlier, earlierCommit } from './earlier.ts';
import { scenario } from './scenario.ts';
import { SERVICES, temporary } from './system.ts';

/** The table of each schema that grows a column. */
const TABLES = { identity: 'users', secrets: 'secrets', webhook: 'events' } as const;

/** @returns a directory with a newer program */
function buildNewer(directory: string): string {
  const program = buildProgram();
  cpSync(join(program, 'dist'), join(directory, 'dist'), { recursive: true });
  for (const name of ['node_modules', 'package.json']) symlinkSync(join(program, name), join(directory, name));
  for (const service of SERVICES) {
    const table = `${service}.${TABLES[service]}`;
    const statements = [
      `alter table ${table} add column newer text`,
      `create table ${service}.newer (id uuid primary key)`,
      `create index newer_column on ${table} (newer) where newer is not null`,
    ];
    const step = `\nMIGRATIONS.push({ name: 'newer', statements: ${JSON.stringify(statements)} });\n`;
    appendFileSync(join(directory, `dist/${service}/migrations.js`), step);
  }
  return directory;
}

scenario('a rolling upgrade', async ({ t, system, database, load }) => {
  const newer = buildNewer(temporary(t));
  const environment = { ...system.environment, LOG_LEVEL: 'info' };
  const old = SERVICES.map((service) => system.running(service));
  const start = (program: string) => startProgram(t, program, ['serve'], environment);

  const pair = [start(newer), start(newer)];
  await Promise.all(pair.map((one) => one.ready(...SERVICES)));
  const steps = await withConnection(database.server().url, (sql) => sql<Array<{ name: string }>>`
    select name from identity.migrations where name = 'newer' union all
    select name from secrets.migrations where name = 'newer' union all
    select name from webhook.migrations where name = 'newer'`);
  assert.equal(steps.length, SERVICES.length, 'each step was applied once');
  // The old processes.
  await system.untilReady();
  await load.progress(50);

  // After a rollback, an old process starts on the newer schema.
  const rolledBack = start(buildProgram());
  await rolledBack.ready(...SERVICES);
  for (const service of SERVICES) await system.useProcess(service, rolledBack);
  await load.progress(50);

  for (const [index, service] of SERVICES.entries()) {
    await system.useProcess(service, pair[index % 2] ?? rolledBack);
  }
  await stop([...old, rolledBack]);
  await load.progress(50);
  assert.equal(load.failed(), 0, 'requests failed during the upgrade');
});

const stop = async (processes: readonly Running[]) => {
  // As a load balancer does: requests under way end, then the processes do.
  await sleep(1_000);
  for (const process of processes) process.signal('SIGTERM');
  const ends = await Promise.all(processes.map(({ ended }) => ended));
  assert.deepEqual(ends.map(({ code }) => code), processes.map(() => 0), 'the processes end in order');
};

const commit = earlierCommit();
const earlier = {
  program: (t: TestContext) => buildEarlier(commit ?? '', temporary(t)),
  skip: commit === null && 'the history of this repository has the program before the second steps',
};
scenario('from the first step of each schema to the present one, back, and again', async ({ t, system, database, load }) => {
  const environment = { ...system.environment, LOG_LEVEL: 'info' };
  const versions = () => withConnection(database.server().url, async (sql) => {
    const [row] = await sql`select (select count(*)::int4 from secrets.migrations) as secrets,
      (select count(*)::int4 from webhook.migrations) as webhook`;
    return { ...row };
  });
  assert.deepEqual(await versions(), { secrets: 1, webhook: 1 }, 'the earlier program has one step in each');
  let current = SERVICES.map((service) => system.running(service));
  const replaceBy = async (program: string) => {
    const next = startProgram(t, program, ['serve'], environment);
    await next.ready(...SERVICES);
    // Both at once, on the schema of the newer one.
    await load.progress(50);
    for (const service of SERVICES) await system.useProcess(service, next);
    await load.progress(50);
    await stop(current);
    current = [next];
    await load.progress(50);
  };
  await replaceBy(buildProgram());
  assert.deepEqual(await versions(), { secrets: 2, webhook: 2 });
  await replaceBy(system.program);
  await replaceBy(buildProgram());
  assert.equal(load.failed(), 0, 'requests failed');
}, earlier);
