/** No login tells who exists by how long it takes. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hashPassword, verifyPassword } from '../../../src/identity/passwords.ts';
import { KINDS, startRejecting } from '../../support/rejected-logins.ts';
import { PASSWORD } from '../../support/users.ts';

/** Some 20 ms: small beside the real cost, large beside all else that a login does. */
const COST = { logN: 13, r: 8, p: 1 };
const { sql, tryOne } = await startRejecting(COST);
const stored = await hashPassword(PASSWORD, COST);

const ROUNDS = 20;
const WARM_UP = 2;
/** Other programs may use this machine; a leak shows every time. */
const MEASUREMENTS = 4;

async function timed(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

/** The value below which this part of them lies. */
const quantile = (values: readonly number[], part: number) =>
  [...values].sort((a, b) => a - b)[Math.floor(values.length * part)] ?? 0;

/**
 * Whole requests as a client sees them, one after the other, the kinds taking turns from a
 * different first one.
 */
async function measure(): Promise<{ hash: number; times: readonly number[][] }> {
  const times: number[][] = KINDS.map(() => []);
  const hashes: number[] = [];
  for (let round = 0; round < WARM_UP + ROUNDS; round += 1) {
    const hash = await timed(() => verifyPassword(PASSWORD, stored));
    if (round >= WARM_UP) hashes.push(hash);
    for (let turn = 0; turn < KINDS.length; turn += 1) {
      const index = (round + turn) % KINDS.length;
      const [what, names, password] = KINDS[index] ?? ['', [], ''];
      const time = await timed(async () =>
        assert.equal((await tryOne(names, password, round)).status, 401, what),
      );
      if (round >= WARM_UP) times[index]?.push(time);
    }
  }
  return { hash: quantile(hashes, 0.5), times };
}

/**
 * What an attacker could distinguish: kinds that differ by half of a hash, at the median or at the
 * lower quartile.
 */
function faults({ hash, times }: Awaited<ReturnType<typeof measure>>): string[] {
  return [0.25, 0.5].flatMap((part) => {
    const values = times.map((samples) => quantile(samples, part));
    const shown = KINDS.map(([what], index) => `${what} ${values[index]?.toFixed(1)}`).join(', ');
    const spread = Math.max(...values) - Math.min(...values);
    const told = `at ${part}, in ms, where a hash takes ${hash.toFixed(1)}: ${shown}`;
    if (Math.min(...values) < hash / 2) return [`no hash ${told}`];
    return spread < hash / 2 ? [] : [`a spread of ${spread.toFixed(1)} ${told}`];
  });
}

// A work that is left out, such as the hash for an unknown name, makes a difference of a whole
// hash: twice the bound.
test(
  'the times of all of them differ by less than half of a hash',
  { timeout: 140_000 },
  async (t) => {
    let found: string[] = [];
    for (let count = 1; count <= MEASUREMENTS; count += 1) {
      found = faults(await measure());
      if (found.length === 0) return;
      t.diagnostic(found.join('; '));
      await sql`delete from identity.throttles`;
    }
    assert.fail(found.join('; '));
  },
);
