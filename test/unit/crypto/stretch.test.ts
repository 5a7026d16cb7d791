import assert from 'node:assert/strict';
import { scryptSync } from 'node:crypto';
import { test } from 'node:test';
import { hashPassword, verifyPassword } from '../../../src/identity/passwords.ts';
import {
  createKdfParams,
  DEFAULT_COST,
  isAffordable,
  type ScryptCost,
  stretch,
} from '../../../src/platform/crypto/scrypt.ts';
import { HOSTILE, SALT } from './hostile-costs.ts';
import { LONG_RUN, longestRunNormalized } from '../../support/normalized.ts';

/** Next to nothing: what is tested here does not depend on the cost. */
const CHEAP: ScryptCost = { logN: 1, r: 1, p: 1 };
const cheap = `$scrypt$ln=1,r=1,p=1$${SALT}`;

/** scrypt by an independent call, from the text of a stretching. */
function independent(password: string, stretching: string): Buffer {
  const [, , cost = '', salt = ''] = stretching.split('$');
  const [ln = 0, r = 0, p = 0] = cost.split(',').map((one) => Number(one.split('=')[1]));
  return scryptSync(password, Buffer.from(salt, 'base64'), 32, {
    N: 2 ** ln,
    r,
    p,
    maxmem: 512 * 1024 * 1024,
  });
}

test('KDF parameters are a PHC string without a hash, with the given cost and a new salt', () => {
  assert.match(createKdfParams(DEFAULT_COST), /^\$scrypt\$ln=15,r=8,p=3\$[A-Za-z0-9+/]{22}$/);
  assert.match(
    createKdfParams({ logN: 4, r: 16, p: 99 }),
    /^\$scrypt\$ln=4,r=16,p=99\$[A-Za-z0-9+/]{22}$/,
  );
  const salts = Array.from({ length: 1_000 }, () => createKdfParams(CHEAP).split('$')[3]);
  assert.equal(new Set(salts).size, 1_000);
  assert.ok(salts.every((salt) => Buffer.from(salt ?? '', 'base64').length === 16));
});

test('stretch returns 32 bytes of scrypt, the same every time', async () => {
  for (const cost of [CHEAP, { logN: 4, r: 8, p: 2 }, { logN: 10, r: 2, p: 16 }, DEFAULT_COST]) {
    const stretching = createKdfParams(cost);
    const key = await stretch('correct horse battery staple', stretching);
    assert.equal(key.length, 32);
    assert.deepEqual(key, independent('correct horse battery staple', stretching), stretching);
    assert.deepEqual(await stretch('correct horse battery staple', stretching), key);
  }
});

test('another passphrase, salt or cost gives another key', async () => {
  const ways: ReadonlyArray<readonly [passphrase: string, stretching: string]> = [
    ['passphrase', cheap],
    ['passphrase ', cheap],
    ['Passphrase', cheap],
    ['', cheap],
    ['passphrase', cheap.replace('c2F', 'd2F')],
    ['passphrase', cheap.replace('ln=1', 'ln=2')],
    ['passphrase', cheap.replace('r=1', 'r=2')],
    ['passphrase', cheap.replace('p=1', 'p=2')],
  ];
  const keys = await Promise.all(ways.map(async (way) => (await stretch(...way)).toString('hex')));
  assert.equal(new Set(keys).size, ways.length);
});

test('a password hash is KDF parameters and the key they derive', async () => {
  for (const password of ['correct horse battery staple', ' ', 'pässwörd', '🔑🔑']) {
    const stretching = createKdfParams(CHEAP);
    const hash = (await stretch(password, stretching)).toString('base64').replace('=', '');
    assert.equal(
      await verifyPassword(password, `${stretching}$${hash}`),
      true,
      JSON.stringify(password),
    );
    assert.equal(await verifyPassword(`${password}!`, `${stretching}$${hash}`), false);

    const stored = await hashPassword(password, CHEAP);
    const cut = stored.lastIndexOf('$');
    assert.equal(
      (await stretch(password, stored.slice(0, cut))).toString('base64').replace('=', ''),
      stored.slice(cut + 1),
    );
  }
});

test('a passphrase in NFC and in NFD gives the same key', async () => {
  const pairs = [
    ['pässwörd', 'pa\u0308sswo\u0308rd'],
    ['ﬁne', 'fine'],
    ['ｆｕｌｌ　ｗｉｄｔｈ', 'full width'],
    ['①②③', '123'],
    ['Å', '\u212b'],
    ['각', '\u1100\u1161\u11a8'],
  ];
  for (const [one = '', other = ''] of pairs) {
    assert.notEqual(one, other);
    assert.deepEqual(await stretch(one, cheap), await stretch(other, cheap), `${one} and ${other}`);
    assert.deepEqual(await stretch(one, cheap), independent(one.normalize('NFKC'), cheap));
  }
});

const RIGHT = `$scrypt$ln=4,r=8,p=1$${SALT}`;
const HOSTILE_PARAMETERS: Readonly<Record<string, string>> = {
  ...HOSTILE,
  'a newline at the end': `${RIGHT}\n`,
  'something before it': ` ${RIGHT}`,
  'an empty hash behind it': `${RIGHT}$`,
  'a hash behind it': `${RIGHT}$aGFzaGhhc2hoYXNoaGFzaGhhc2hoYXNoaGFzaGhhc2g`,
  nothing: '',
};

for (const [name, stretching] of Object.entries(HOSTILE_PARAMETERS)) {
  test(`KDF parameters with ${name} are rejected before any work`, async () => {
    // In whichever way: a caller that awaits sees both alike.
    await assert.rejects(
      async () => stretch('passphrase', stretching),
      /malformed or costs too much/,
    );
  });
}

test('the table tests what it names: its salt alone is valid', async () => {
  assert.equal((await stretch('passphrase', RIGHT)).length, 32);
});

test('stored hashes and KDF parameters are not interchangeable', async () => {
  const stretching = createKdfParams(CHEAP);
  const stored = await hashPassword('passphrase', CHEAP);
  await assert.rejects(async () => stretch('passphrase', stored));
  await assert.rejects(async () => verifyPassword('passphrase', stretching));
});

test('every valid cost round-trips through KDF parameters', async () => {
  for (const cost of [
    CHEAP,
    { logN: 4, r: 8, p: 1 },
    { logN: 15, r: 1, p: 1 },
    { logN: 7, r: 16, p: 99 },
  ]) {
    assert.ok(isAffordable(cost));
    assert.equal(
      (await stretch('passphrase', createKdfParams(cost))).length,
      32,
      JSON.stringify(cost),
    );
  }
});

test('a password with a long run of combining marks verifies as given, and is not normalized', async () => {
  const longest = await longestRunNormalized(async () => {
    const stored = await hashPassword(LONG_RUN, CHEAP);
    assert.equal(await verifyPassword(LONG_RUN, stored), true);
    assert.equal(await verifyPassword(`${LONG_RUN}x`, stored), false);
  });
  assert.equal(longest, 0);
  assert.deepEqual(await stretch(LONG_RUN, cheap), independent(LONG_RUN, cheap));
});

test('a password with 30 combining marks in a row verifies in each of its spellings', async () => {
  const password = `passage e${'\u0301\u0323'.repeat(15)}`;
  const stored = await hashPassword(password, CHEAP);
  for (const form of ['NFC', 'NFD', 'NFKC', 'NFKD'])
    assert.equal(await verifyPassword(password.normalize(form), stored), true, form);
});
