/**
 * The network to the database falls silent: in both directions, or only on the way there or back.
 */
import { describe } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { expectFailures, scenario } from './scenario.ts';

/** Longer than the 15 s after which a silent connection is given up. */
const SILENT_MS = 17_000;

// At once: they mostly wait.
describe('the network to the database', { concurrency: 3 }, () => {
  for (const what of ['all', 'statements', 'replies'] as const) {
    scenario(`a network that drops ${what === 'all' ? 'everything' : what}`, async (fault) => {
      const { database, load } = fault;
      await expectFailures(fault, async () => {
        database.proxy.stall(what);
        await sleep(SILENT_MS);
        await database.proxy.restore();
      });
      await load.progress(50);
    });
  }
});
