/**
 * The memory limits of docs/containers.md: neither the service nor the health check
 * of the image may be ended by the kernel under the attacks of the memory benchmark, or come near
 * it. ROUNDS repeats them.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { attackContainer, canLimitMemory, CONTAINERS } from '../../../scripts/bench/containers.ts';
import { createEmptyDatabase } from '../../support/database.ts';

/**
 * Below the limit. The kernel itself takes up to 4 MiB of it, for sockets among others, and the
 * attacks of one day do not show the highest peak.
 */
const MARGIN_MIB = 5;
const ROUNDS = Number(process.env.ROUNDS ?? 1);

for (const container of CONTAINERS) {
  const { mebibytes, about } = container;
  test(
    `${mebibytes} MiB with ${about}: the kernel ends neither the service nor its health check`,
    { skip: canLimitMemory() ? false : 'cgroups of version 1 cannot be written here' },
    async (t) => {
      for (let round = 1; round <= ROUNDS; round += 1) {
        const { url } = await createEmptyDatabase(t);
        const survivals = await attackContainer(container, url);
        const peaks = survivals.map(({ peak }) => peak.toFixed(0));
        t.diagnostic(`round ${round}: ${peaks.join(', ')} MiB`);
        for (const { attack, peak, killed, isAlive } of survivals) {
          assert.deepEqual({ killed, isAlive }, { killed: 0, isAlive: true }, attack);
          assert.ok(peak <= mebibytes - MARGIN_MIB, `${attack}: ${peak.toFixed(1)} MiB`);
        }
      }
    },
  );
}
