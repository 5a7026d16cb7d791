/** Runs the background jobs of the secrets service at once, like another replica. */
import assert from 'node:assert/strict';
import { readConfig } from './settings.ts';
import { createLog } from '../../src/platform/runtime/log.ts';
import { createMetrics } from '../../src/platform/runtime/metrics.ts';
import { start } from '../../src/secrets/start.ts';
import { variables } from './gatehouse.ts';
import { quiet } from './service-context.ts';
import type { Owner } from './owner.ts';

export function startHousekeeping(
  owner: Owner,
  databaseUrl: string,
  environment: Readonly<Record<string, string>> = {},
) {
  const config = readConfig(['secrets'], 'serve', {
    ...variables(databaseUrl),
    ...environment,
  }).secrets;
  assert.ok(config);
  const lines: string[] = [];
  const metrics = createMetrics();
  const service = start(
    config,
    quiet({
      metrics,
      log: createLog('info', (line) => {
        lines.push(line);
      }),
    }),
  );
  owner.after(async () => (await service).storage.database.close());
  return {
    /** Runs a job until nothing is left to do. */
    async run(name: string) {
      const job = (await service).jobs.find((one) => one.name === name);
      assert.ok(job, `there is no job "${name}"`);
      while (await job.batch());
    },
    /** The log lines of these jobs so far. */
    log: () => lines.map((line): Record<string, unknown> => JSON.parse(line)),
    /** The metrics of these jobs, as Prometheus reads them. */
    metrics: () => metrics.text(),
  };
}
