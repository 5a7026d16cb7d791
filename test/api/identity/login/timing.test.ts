/** No login tells who exists: neither by what is answered nor by how long it takes. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { hashPassword, verifyPassword } from '../../../../src/identity/passwords.ts';
import { type ScryptCost } from '../../../../src/platform/crypto/scrypt.ts';
import { createDatabase } from '../../../support/database.ts';
import { type Answer, startGatehouse } from '../../../support/gatehouse.ts';
import { BEHIND_PROXY, loginFrom, newAddress } from '../../../support/logins.ts';
import { addUser, assertError, openIdentity, PASSWORD } from '../../../support/users.ts';

/** Some 20 ms: small beside the real cost, large beside all else that a login does. */
const COST: ScryptCost = { logN: 13, r: 8, p: 1 };
const { url: databaseUrl, sql } = await createDatabase();
const identity = (
  await startGatehouse({ after }, ['identity'], databaseUrl, {
    ...BEHIND_PROXY,
    PASSWORD_SCRYPT: 'ln=13,r=8,p=1',
  })
).url.identity;
const database = openIdentity({ after }, databaseUrl);
const stored = await hashPassword(PASSWORD, COST);

/**
 * Names take turns, and each attempt comes from a network of its own, so that nothing is throttled.
 */
const NAMES = 4;
const namesOf = (kind: string) =>
  Array.from({ length: NAMES }, (_, index) => `${kind}-user-${index}`);
for (const kind of ['present', 'guarded', 'disabled', 'deleted', 'passwordless']) {
  for (const name of namesOf(kind)) await addUser(database, name);
}
await sql`update identity.users set password_hash = ${stored} where username like '%-user-%'`;
await sql`update identity.users set second_factor = true where username like 'guarded-%'`;
await sql`update identity.users set enabled = false where username like 'disabled-%'`;
await sql`update identity.users set deleted_at = now() where username like 'deleted-%'`;
await sql`update identity.users set password_hash = null where username like 'passwordless-%'`;

const KINDS: ReadonlyArray<readonly [what: string, names: readonly string[], password: string]> = [
  ['an unknown name', namesOf('unknown'), PASSWORD],
  ['a wrong password', namesOf('present'), 'not the password'],
  ['a wrong password of a user with a second factor', namesOf('guarded'), 'not the password'],
  ['a disabled user with the right password', namesOf('disabled'), PASSWORD],
  ['a disabled user with a wrong password', namesOf('disabled'), 'not the password'],
  ['a deleted user with the right password', namesOf('deleted'), PASSWORD],
  ['a user without a password', namesOf('passwordless'), PASSWORD],
];

const tryOne = (names: readonly string[], password: string, round: number): Promise<Answer> =>
  loginFrom(identity, newAddress(), names[round % NAMES] ?? '', password);

test('body and headers are the same for all but the request id and the date', async () => {
  const seen = new Set<string>();
  for (const [what, names, password] of KINDS) {
    const answer = await tryOne(names, password, 0);
    assertError(answer, 401, 'invalid_credentials');
    const { request_id: requestId } = answer.json._meta;
    const headers = [...answer.headers].filter(([name]) => name !== 'date');
    const told = JSON.stringify([answer.status, headers, answer.text]).replaceAll(
      requestId,
      'REQUEST',
    );
    seen.add(told);
    assert.equal(seen.size, 1, `${what}: ${told}`);
  }
});

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
