/**
 * The network to the database falls silent: in both directions, or only on the way there or back.
 * Or the database moves to another address, and its name with it.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { createDatabase } from '../../support/database.ts';
import { makeDirectory } from '../../support/directories.ts';
import { createRelay } from '../../support/relay.ts';
import { freePort } from '../programs.ts';
import { startLoad } from './load/load.ts';
import { expectFailures, scenario } from './scenario.ts';
import { startServices } from './system.ts';

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

const NAME = 'database.example.org';
const isRoot = process.getuid?.() === 0;

/** A Node for which the name leads where a file says, in a file system of its own. */
function nodeWithNames(file: string) {
  const script = `mount --bind ${file} /etc/hosts && exec "$@"`;
  return ['unshare', '--mount', 'sh', '-c', script, 'sh', process.execPath];
}

async function moveByDns(t: TestContext) {
  const { url: directUrl, sql } = await createDatabase(t);
  const port = await freePort();
  const names = join(makeDirectory(t, 'faults'), 'hosts');
  /** Lets the name lead to an address, and the address to the database. */
  const lead = (address: string) => {
    writeFileSync(names, `${address} ${NAME}\n`);
    const relay = createRelay(Number(new URL(directUrl).port)).listen(port, address);
    t.after(() => relay.close());
    return relay;
  };
  const former = lead('127.0.0.2');
  const url = Object.assign(new URL(directUrl), { hostname: NAME, port }).href;
  const services = await startServices(t, url, () => directUrl, { node: nodeWithNames(names) });
  const load = await startLoad(t, services);
  await load.progress(100);
  former.close();
  lead('127.0.0.3');
  await sql`select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and application_name like 'gatehouse-%'`;
  await services.untilReady();
  await load.progress(100);
  await load.stop();
  t.diagnostic(await load.check());
}

test(
  'a database that moves by DNS is followed by every connection, and nothing is lost',
  { timeout: 280_000, skip: isRoot ? false : 'only root can change where a name leads to' },
  moveByDns,
);
