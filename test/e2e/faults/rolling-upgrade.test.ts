/**
 * Under load, two processes of a newer program start and migrate at once, and replace the present
 * ones. The present program is then rolled back to on the newer schema, and replaced again. The
 * newer program is a copy of this one with one more step in each schema: a new column, table and
 * index, as CONTRIBUTING.md requires of migrations.
 */
import assert from 'node:assert/strict';
import { appendFileSync, cpSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { makeDirectory } from '../../support/directories.ts';
import { buildProgram, startProgram } from '../../support/process.ts';
import { withConnection } from '../../../scripts/postgres.ts';
import { scenario, stopInOrder } from './scenario.ts';
import { SERVICES } from './system.ts';

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
    writeFileSync(
      join(directory, `dist/${service}/migrations/newer.sql`),
      `alter table ${table} add column newer text;
      create table ${service}.newer (id uuid primary key);
      create index newer_column on ${table} (newer) where newer is not null;`,
    );
    const step = "\nSCHEMA.steps.push('newer');\n";
    appendFileSync(join(directory, `dist/${service}/migrations.js`), step);
  }
  return directory;
}

scenario(
  'a rolling upgrade, a rollback and the upgrade again',
  async ({ t, system, database, load }) => {
    const older = buildProgram();
    const newer = buildNewer(makeDirectory(t, 'faults'));
    const environment = { ...system.environment, LOG_LEVEL: 'info' };
    let current = SERVICES.map((service) => system.running(service));
    const replaceBy = async (...programs: readonly string[]) => {
      const next = programs.map((program) => startProgram(t, program, ['serve'], environment));
      await Promise.all(next.map((one) => one.ready(...SERVICES)));
      // Both programs at once, on the newer schema.
      await system.untilReady();
      await load.progress(50);
      for (const [index, service] of SERVICES.entries()) {
        await system.useProcess(service, next[index % next.length] ?? assert.fail());
      }
      await load.progress(50);
      await stopInOrder(current);
      current = next;
      await load.progress(50);
    };

    await replaceBy(newer, newer);
    const steps = await withConnection(
      database.url(),
      (sql) => sql<Array<{ name: string }>>`
    select name from identity.migrations where name = 'newer' union all
    select name from secrets.migrations where name = 'newer' union all
    select name from webhook.migrations where name = 'newer'`,
    );
    assert.equal(steps.length, SERVICES.length, 'each step was applied once');
    await replaceBy(older);
    await replaceBy(newer, newer);
    assert.equal(load.failed(), 0, 'requests failed');
  },
);
