import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  decoyHash,
  hashPassword,
  needsRehash,
  verifyPassword,
} from '../../../src/identity/passwords.ts';
import {
  DEFAULT_COST,
  isAffordable,
  type ScryptCost,
} from '../../../src/platform/crypto/scrypt.ts';
import { HOSTILE, SALT } from './hostile-costs.ts';

/** Next to nothing: what is tested here does not depend on the cost. */
const CHEAP: ScryptCost = { logN: 1, r: 1, p: 1 };
const HASH = 'aGFzaGhhc2hoYXNoaGFzaGhhc2hoYXNoaGFzaGhhc2g';

test('a password verifies against its hash, whatever it holds', async () => {
  for (const password of [
    'correct horse battery staple',
    '',
    ' ',
    'pässwörd',
    '🔑🔑',
    'x'.repeat(1_024),
    '$scrypt$ln=4',
  ]) {
    assert.equal(
      await verifyPassword(password, await hashPassword(password, CHEAP)),
      true,
      JSON.stringify(password),
    );
  }
});

test('another password does not, however near it is', async () => {
  const password = 'correct horse battery staple '.repeat(4);
  const stored = await hashPassword(password, CHEAP);
  const others = [
    '',
    ' ',
    `${password} `,
    ` ${password}`,
    password.trim(),
    password.toUpperCase(),
    `${password}\0`,
    password.slice(0, 72),
    `${password.slice(0, -2)}f `,
  ];
  for (const other of others)
    assert.equal(await verifyPassword(other, stored), false, JSON.stringify(other));
});

test('a password with U+0000 never verifies: HMAC pads with zeros', async () => {
  for (const [typed, hashed] of [
    ['password\0', 'password'],
    ['password\0\0', 'password'],
    ['\0', ''],
    ['a\0b', 'a\0b'],
    ['\0a', 'a'],
    ['a', 'a\0b'],
  ] as const) {
    assert.equal(
      await verifyPassword(typed, await hashPassword(hashed, CHEAP)),
      false,
      JSON.stringify([typed, hashed]),
    );
  }
});

test('every byte of the stored hash counts', async () => {
  const stored = await hashPassword('password', CHEAP);
  const [hash = ''] = stored.split('$').slice(-1);
  for (let index = 0; index < 32; index += 1) {
    const altered = Buffer.from(hash, 'base64');
    altered[index] = (altered[index] ?? 0) ^ 1;
    assert.equal(
      await verifyPassword(
        'password',
        stored.replace(hash, altered.toString('base64').slice(0, 43)),
      ),
      false,
      `byte ${index}`,
    );
  }
});

test('the default is 32 MiB and three rounds, and Node computes it', async () => {
  assert.deepEqual(DEFAULT_COST, { logN: 15, r: 8, p: 3 });
  const stored = await hashPassword('password', DEFAULT_COST);
  assert.match(stored, /^\$scrypt\$ln=15,r=8,p=3\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$/);
  assert.equal(await verifyPassword('password', stored), true);
});

test('every hash has a salt of its own', async () => {
  const hashes = await Promise.all(
    Array.from({ length: 100 }, () => hashPassword('password', CHEAP)),
  );
  for (const part of [3, 4])
    assert.equal(new Set(hashes.map((stored) => stored.split('$')[part])).size, 100);
});

test('a hash of another cost needs to be replaced, one of the same cost does not', async () => {
  const cost = { logN: 4, r: 8, p: 2 };
  const stored = await hashPassword('password', cost);
  assert.equal(needsRehash(stored, cost), false);
  const others = [
    { ...cost, logN: 3 },
    { ...cost, logN: 5 },
    { ...cost, r: 7 },
    { ...cost, r: 9 },
    { ...cost, p: 1 },
    { ...cost, p: 3 },
    DEFAULT_COST,
  ];
  for (const other of others) assert.equal(needsRehash(stored, other), true, JSON.stringify(other));
});

const RIGHT = `$scrypt$ln=4,r=8,p=1$${SALT}`;

const HOSTILE_HASHES: Readonly<Record<string, string>> = {
  ...Object.fromEntries(
    Object.entries(HOSTILE).map(([name, parameters]) => [name, `${parameters}$${HASH}`]),
  ),
  'a newline at the end': `${RIGHT}$${HASH}\n`,
  'an empty hash': `${RIGHT}$`,
  'no hash': RIGHT,
  'a short hash': `${RIGHT}$${HASH.slice(1)}`,
  'a long hash': `${RIGHT}$${HASH}A`,
  'a hash with padding': `${RIGHT}$${HASH}=`,
  Base64url: `${RIGHT}$${HASH.replace('a', '-')}`,
  'garbage in Base64': `${RIGHT}$${HASH.replace('a', '!')}`,
  'bits of the hash that no byte uses': `${RIGHT}$${HASH.slice(0, -1)}h`,
  'a part too many': `${RIGHT}$${HASH}$`,
  nothing: '',
  'a password in the clear': 'correct horse battery staple',
};

for (const [name, stored] of Object.entries(HOSTILE_HASHES)) {
  test(`a stored hash with ${name} is rejected before any work`, async () => {
    await assert.rejects(verifyPassword('password', stored), {
      message: 'a stored password hash is malformed or costs too much',
    });
  });
}

test('the table tests what it names: its salt and hash alone are valid', async () => {
  assert.equal(await verifyPassword('password', `${RIGHT}$${HASH}`), false);
});

const COSTS: ReadonlyArray<[cost: ScryptCost, isAffordable: boolean]> = [
  [CHEAP, true],
  [DEFAULT_COST, true],
  [{ logN: 17, r: 8, p: 1 }, true],
  [{ logN: 18, r: 8, p: 1 }, true],
  [{ logN: 18, r: 8, p: 4 }, true],
  [{ logN: 18, r: 8, p: 5 }, false],
  [{ logN: 18, r: 9, p: 1 }, false],
  [{ logN: 19, r: 8, p: 1 }, false],
  [{ logN: 19, r: 4, p: 1 }, true],
  [{ logN: 0, r: 8, p: 1 }, false],
  [{ logN: 4, r: 0, p: 1 }, false],
  [{ logN: 4, r: 8, p: 0 }, false],
  [{ logN: -1, r: 8, p: 1 }, false],
  [{ logN: Number.NaN, r: 8, p: 1 }, false],
  [{ logN: 4, r: 8, p: Number.POSITIVE_INFINITY }, false],
];

test('memory is bounded at 256 MiB and work at 2^23 blocks', () => {
  for (const [cost, expected] of COSTS)
    assert.equal(isAffordable(cost), expected, JSON.stringify(cost));
});

test('N must be less than 2^(128 r / 8) (RFC 7914, section 2)', async () => {
  assert.equal(isAffordable({ logN: 15, r: 1, p: 1 }), true);
  assert.equal(
    await verifyPassword('password', await hashPassword('password', { logN: 15, r: 1, p: 1 })),
    true,
  );
  for (const logN of [16, 17, 20])
    assert.equal(isAffordable({ logN, r: 1, p: 1 }), false, `ln=${logN},r=1`);
});

test('the decoy hash costs what a real hash costs, and no password matches it', async () => {
  for (const cost of [CHEAP, { logN: 4, r: 8, p: 2 }, { logN: 4, r: 16, p: 99 }]) {
    const decoy = decoyHash(cost);
    assert.equal(needsRehash(decoy, cost), false);
    for (const password of ['', 'password', 'A'.repeat(43), '\0'])
      assert.equal(await verifyPassword(password, decoy), false);
    assert.equal(decoy.length, (await hashPassword('password', cost)).length);
  }
  assert.equal(needsRehash(decoyHash(DEFAULT_COST), DEFAULT_COST), false);
});
