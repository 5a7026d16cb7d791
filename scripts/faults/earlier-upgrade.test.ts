/**
 * Under load, this program replaces an earlier one that had one step in the schemas of secrets and webhook. The earlier
 * program then runs on the newer schema, and is replaced again.
 */
import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { MIGRATIONS as SECRETS } from '../../src/secrets/migrations.ts';
import { MIGRATIONS as WEBHOOK } from '../../src/webhook/migrations.ts';
import { buildProgram, startProgram } from '../../test/support/process.ts';
import { withConnection } from '../postgres.ts';
import { buildEarlier, earlierCommit } from './earlier.ts';
import { scenario, stopInOrder } from './scenario.ts';
import { SERVICES, temporary } from './system.ts';

const commit = earlierCommit();
const earlier = {
  program: (t: TestContext) => buildEarlier(commit ?? '', temporary(t)),
  skip: commit === null && 'the history of this repository has the program before the second steps',
};
scenario(
  'from the first step of each schema to the present one, back, and again',
  async ({ t, system, database, load }) => {
    const environment = { ...system.environment, LOG_LEVEL: 'info' };
    const versions = () =>
      withConnection(database.server().url, async (sql) => {
        const [row] = await sql`select (select count(*)::int4 from secrets.migrations) as secrets,
      (select count(*)::int4 from webhook.migrations) as webhook`;
        return { ...row };
      });
    assert.deepEqual(
      await versions(),
      { secrets: 1, webhook: 1 },
      'the earlier program has one step in each',
    );
    let current = SERVICES.map((service) => system.running(service));
    const replaceBy = async (program: string) => {
      const next = startProgram(t, program, ['serve'], environment);
      await next.ready(...SERVICES);
      // Both at once, on the schema of the newer one.
      await load.progress(50);
      for (const service of SERVICES) await system.useProcess(service, next);
      await load.progress(50);
      await stopInOrder(current);
      current = [next];
      await load.progress(50);
    };
    await replaceBy(buildProgram());
    assert.deepEqual(await versions(), { secrets: SECRETS.length, webhook: WEBHOOK.length });
    await replaceBy(system.program);
    await replaceBy(buildProgram());
    assert.equal(load.failed(), 0, 'requests failed');
  },
  earlier,
);
