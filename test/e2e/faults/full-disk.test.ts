/** The disk of PostgreSQL, with its write-ahead log, is full until an operator makes room. */
import { execFileSync } from 'node:child_process';
import { appendFileSync, mkdtempSync, rmSync, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { withConnection } from '../../../scripts/postgres.ts';
import { errorCode } from '../../../scripts/setup-error.ts';
import { removeTemporary } from '../../../scripts/temporary.ts';
import { expectFailures, scenario } from './scenario.ts';
import { startDatabase } from './system.ts';

/**
 * How long each phase may take: until a table cannot grow, and until the write-ahead log cannot.
 */
const PHASE_MS = 20_000;

const isRoot = process.getuid?.() === 0;

async function startOnSmallDisk(t: TestContext) {
  const directory = mkdtempSync(join(tmpdir(), 'gatehouse-disk-'));
  const options = ['-t', 'tmpfs', '-o', 'size=200m,mode=0755'];
  execFileSync('mount', [...options, 'gatehouse-disk', directory]);
  t.after(() => {
    // Lazily: whatever still uses it keeps it until its end.
    execFileSync('umount', ['-l', directory]);
    removeTemporary(directory);
  });
  return startDatabase(t, directory);
}

scenario(
  'a full disk',
  async (fault) => {
    const { database, load, t } = fault;
    const filler = join(database.directory, 'filler');
    const fill = () => {
      const { bavail, bsize } = statfsSync(database.directory);
      try {
        if (bavail > 0) appendFileSync(filler, Buffer.alloc(bavail * bsize));
      } catch (error) {
        // PostgreSQL has taken some of the room meanwhile.
        if (errorCode(error) !== 'ENOSPC') throw error;
      }
    };
    await expectFailures(fault, async () => {
      let hasEnded = false;
      void database.server().ended.then(() => {
        hasEnded = true;
      });
      const before = load.failed();
      for (
        const end = Date.now() + PHASE_MS;
        Date.now() < end && load.failed() < before + 10;
        await sleep(50)
      )
        fill();
      const failed = load.failed() - before;
      for (const end = Date.now() + PHASE_MS; Date.now() < end && !hasEnded; await sleep(50)) {
        fill();
        // The next segment has no room: PostgreSQL panics, and cannot recover.
        const switched = withConnection(database.url(), (sql) => sql`select pg_switch_wal()`).catch(
          () => {},
        );
        // A server that panics under load may leave the statement without an answer.
        await Promise.race([switched, sleep(2_000)]);
      }
      t.diagnostic(
        `${failed} requests failed because of tables; then PostgreSQL ${hasEnded ? 'ended' : 'did not end'}`,
      );
      await sleep(1_000);
      rmSync(filler);
      if (hasEnded) await database.start();
    });
  },
  { startDatabase: startOnSmallDisk, skip: isRoot ? false : 'only root can mount a small disk' },
);
