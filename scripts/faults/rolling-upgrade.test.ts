/**
 * A newer program beside this one: two of its processes start and migrate at once, an old process starts after that, and
 * then the old ones are stopped. The newer one is a copy of this program with one more step in each schema: a new column,
 * table and index, as CONTRIBUTING.md requires of migrations.
 */
import assert from 'node:assert/strict';
import { appendFileSync, cpSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { buildProgram, startProgram } from '../../test/support/process.ts';
import { withConnection } from '../postgres.ts';
import { scenario, stopInOrder } from './scenario.ts';
import { SERVICES, temporary } from './system.ts';

/** The table of each schema that grows a column. */
const TABLES = { identity: 'users', secrets: 'secrets', webhook: 'events' } as const;

/** @returns a directory with a newer program */
function buildNewer(directory: string): string {
  const program = buildProgram();
  cpSync(join(program, 'dist'), join(directory, 'dist'), { recursive: true });
  for (const name of ['node_modules', 'package.json'])
    symlinkSync(join(program, name), join(directory, name));
  for (const service of SERVICES) {
    const table = `${service}.${TABLES[service]}`;
    const statements = [
      `alter table ${table} add column newer text`,
      `create table ${service}.newer (id uuid primary key)`,
      `create index newer_column on ${table} (newer) where newer is not null`,
    ];
    const step = `\nMIGRATIONS.push({ name: 'newer', statements: ${JSON.stringify(statements)} });\n`;
    appendFileSync(join(directory, `dist/${service}/migrations.js`), step);
    appendFileSync(join(directory, `dist/${service}/schema.js`), '\nSCHEMA.version += 1;\n');
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
  const steps = await withConnection(
    database.server().url,
    (sql) => sql<Array<{ name: string }>>`
    select name from identity.migrations where name = 'newer' union all
    select name from secrets.migrations where name = 'newer' union all
    select name from webhook.migrations where name = 'newer'`,
  );
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
  await stopInOrder([...old, rolledBack]);
  await load.progress(50);
  assert.equal(load.failed(), 0, 'requests failed during the upgrade');
});
