/** Password hashes, and keys that are derived from a passphrase in the same way. */
import assert from 'node:assert/strict';
import { scryptSync } from 'node:crypto';
import { test } from 'node:test';
import {
  decoyHash,
  hashPassword,
  needsRehash,
  verifyPassword,
} from '../../../src/identity/passwords.ts';
import {
  createKdfParams,
  DEFAULT_COST,
  isAffordable,
  type ScryptCost,
  stretch,
} from '../../../src/platform/crypto/scrypt.ts';
import { LONG_RUN, longestRunNormalized } from '../../support/normalized.ts';
import { wordsOf } from '../../support/words.ts';

/** Next to nothing: most of what is tested here does not depend on the cost. */
const CHEAP: ScryptCost = { logN: 1, r: 1, p: 1 };
/** 16 bytes in the alphabet of PHC strings. */
const SALT = 'c2FsdHNhbHRzYWx0c2FsdA';
const HASH = 'aGFzaGhhc2hoYXNoaGFzaGhhc2hoYXNoaGFzaGhhc2g';
const PARAMS = `$scrypt$ln=1,r=1,p=1$${SALT}`;
const PHRASE = 'correct horse battery staple';

/** scrypt by an independent call, from KDF parameters. */
function independent(password: string, params: string): Buffer {
  const [, , cost = '', salt = ''] = params.split('$');
  const [ln = 0, r = 0, p = 0] = cost.split(',').map((one) => Number(one.split('=')[1]));
  const options = { N: 2 ** ln, r, p, maxmem: 512 * 1024 * 1024 };
  return scryptSync(password, Buffer.from(salt, 'base64'), 32, options);
}

test('a password verifies against its hash, whatever it holds, and no other does', async () => {
  const long = `${PHRASE} `.repeat(4);
  for (const password of ['', ' ', 'pässwörd', '🔑🔑', '$scrypt$ln=4', 'x'.repeat(1_024), long]) {
    const stored = await hashPassword(password, CHEAP);
    assert.equal(await verifyPassword(password, stored), true, password);
    for (const other of [`${password} `, ` ${password}`, `${password}!`, `${password}\0`])
      assert.equal(await verifyPassword(other, stored), false, JSON.stringify(other));
  }
  const stored = await hashPassword(long, CHEAP);
  for (const other of [
    '',
    long.trim(),
    long.toUpperCase(),
    long.slice(0, 72),
    `${long.slice(0, -2)}f `,
  ])
    assert.equal(await verifyPassword(other, stored), false, other);
});

test('a password with U+0000 never verifies: HMAC pads with zeros', async () => {
  for (const [typed, hashed] of [
    ['password\0', 'password'],
    ['\0', ''],
    ['a\0b', 'a\0b'],
    ['a', 'a\0b'],
  ] as const) {
    const stored = await hashPassword(hashed, CHEAP);
    assert.equal(await verifyPassword(typed, stored), false, JSON.stringify([typed, hashed]));
  }
});

test('every byte of the stored hash counts', async () => {
  const stored = await hashPassword('password', CHEAP);
  const hash = stored.split('$').at(-1) ?? '';
  for (let at = 0; at < 32; at += 1) {
    const altered = Buffer.from(hash, 'base64');
    altered.writeUInt8(altered.readUInt8(at) ^ 1, at);
    const other = stored.replace(hash, altered.toString('base64').slice(0, 43));
    assert.equal(await verifyPassword('password', other), false, `byte ${at}`);
  }
});

test('a hash is KDF parameters of the given cost with a salt of its own, and their key', async () => {
  assert.deepEqual(DEFAULT_COST, { logN: 15, r: 8, p: 3 });
  for (const cost of [CHEAP, { logN: 4, r: 16, p: 99 }, { logN: 15, r: 1, p: 1 }, DEFAULT_COST]) {
    const { logN, r, p } = cost;
    const params = createKdfParams(cost);
    assert.equal(params.slice(0, -22), `$scrypt$ln=${logN},r=${r},p=${p}$`);
    assert.match(params.slice(-22), /^[A-Za-z0-9+/]{22}$/);
    assert.ok(isAffordable(cost));
    const key = await stretch(PHRASE, params);
    assert.deepEqual(key, independent(PHRASE, params), params);
    const stored = `${params}$${key.toString('base64').replace('=', '')}`;
    assert.equal(await verifyPassword(PHRASE, stored), true);
    const own = (await hashPassword(PHRASE, cost)).split(/\$(?=[^$]*$)/);
    assert.equal(
      own[1],
      independent(PHRASE, own[0] ?? '')
        .toString('base64')
        .replace('=', ''),
    );
  }
  const salts = Array.from({ length: 1_000 }, () => createKdfParams(CHEAP).split('$')[3]);
  assert.equal(new Set(salts).size, 1_000);
});

test('a passphrase in NFC and in NFD gives the same key, of its NFKC', async () => {
  for (const [one, other] of [
    ['pässwörd', 'pa\u0308sswo\u0308rd'],
    ['ﬁne', 'fine'],
    ['ｆｕｌｌ　ｗｉｄｔｈ', 'full width'],
    ['①②③', '123'],
    ['각', '\u1100\u1161\u11a8'],
  ] as const) {
    assert.deepEqual(await stretch(one, PARAMS), await stretch(other, PARAMS), one);
    assert.deepEqual(await stretch(one, PARAMS), independent(one.normalize('NFKC'), PARAMS));
  }
});

test('up to 30 combining marks in a row are normalized, and a longer run is not', async () => {
  const password = `passage e${'\u0301\u0323'.repeat(15)}`;
  const stored = await hashPassword(password, CHEAP);
  for (const form of ['NFC', 'NFD', 'NFKC', 'NFKD'])
    assert.equal(await verifyPassword(password.normalize(form), stored), true, form);
  const longest = await longestRunNormalized(async () => {
    const long = await hashPassword(LONG_RUN, CHEAP);
    assert.equal(await verifyPassword(LONG_RUN, long), true);
    assert.equal(await verifyPassword(`${LONG_RUN}x`, long), false);
  });
  assert.equal(longest, 0);
  assert.deepEqual(await stretch(LONG_RUN, PARAMS), independent(LONG_RUN, PARAMS));
});

test('a hash of another cost needs to be replaced, one of the same cost does not', async () => {
  const cost = { logN: 4, r: 8, p: 2 };
  const stored = await hashPassword('password', cost);
  assert.equal(needsRehash(stored, cost), false);
  for (const change of [{ logN: 3 }, { logN: 5 }, { r: 7 }, { r: 9 }, { p: 1 }, { p: 3 }])
    assert.equal(needsRehash(stored, { ...cost, ...change }), true, JSON.stringify(change));
});

const RIGHT = `$scrypt$ln=4,r=8,p=1$${SALT}`;
/** To compute these would take gigabytes or minutes, or they are not our spelling. */
const HOSTILE_PARAMS = [
  ...[
    // Memory, work, and what scrypt does not have.
    ...['ln=19,r=8,p=1', 'ln=99,r=1,p=1', 'ln=15,r=99,p=1', 'ln=15,r=8,p=99', 'ln=100,r=8,p=1'],
    ...['ln=4,r=8,p=1073741823', 'ln=0,r=8,p=1', 'ln=4,r=0,p=1', 'ln=4,r=8,p=0', 'ln=16,r=1,p=1'],
    // Numbers that are written in another way.
    ...['ln=-4,r=8,p=1', 'ln=04,r=8,p=1', 'ln=0x4,r=8,p=1', 'ln=4e0,r=8,p=1', 'ln=４,r=8,p=1'],
    // Other parameters.
    ...['r=8,ln=4,p=1', 'ln=4,r=8', 'ln=4,r=8,p=1,v=1', 'ln=4,r=8,p=1,p=1', 'ln=4, r=8,p=1'],
  ].map((cost) => `$scrypt$${cost}$${SALT}`),
  // Another function, and other salts.
  ...[`\n${RIGHT}`, ` ${RIGHT}`, `$argon2id$v=19$m=65536,t=3,p=4$${SALT}`, RIGHT.toUpperCase()],
  ...[RIGHT.replace('scrypt', 'bcrypt'), RIGHT.slice(0, -22), RIGHT.slice(0, -1), `${RIGHT}A`],
  ...[`${RIGHT}==`, `${RIGHT.slice(0, -1)}B`],
];
const HOSTILE_HASHES = [
  ...HOSTILE_PARAMS.map((params) => `${params}$${HASH}`),
  ...['', RIGHT, `${RIGHT}$`, `${RIGHT}$${HASH}\n`, `${RIGHT}$${HASH}A`, `${RIGHT}$${HASH}=`],
  ...[`${RIGHT}$${HASH.slice(1)}`, `${RIGHT}$${HASH.replace('a', '-')}`, `${RIGHT}$${HASH}$`],
  ...[`${RIGHT}$${HASH.replace('a', '!')}`, `${RIGHT}$${HASH.slice(0, -1)}h`, PHRASE],
];

test('stored hashes and KDF parameters that are malformed or cost too much are rejected', async () => {
  const error = { message: 'a stored password hash is malformed or costs too much' };
  for (const stored of HOSTILE_HASHES)
    await assert.rejects(async () => verifyPassword('password', stored), error, stored);
  for (const params of [...HOSTILE_PARAMS, '', `${RIGHT}\n`, `${RIGHT}$`, `${RIGHT}$${HASH}`])
    await assert.rejects(async () => stretch('passphrase', params), error, params);
  // What is wrong is what the tables name.
  assert.equal(await verifyPassword('password', `${RIGHT}$${HASH}`), false);
  assert.equal((await stretch('passphrase', RIGHT)).length, 32);
});

test('memory is bounded at 256 MiB, work at 2^23 blocks, and N at 2^(128 r / 8)', () => {
  /** @param cost log N, r and p */
  const isAllowed = (cost: string) => {
    const [logN = 0, r = 0, p = 0] = cost.split(',').map(Number);
    return isAffordable({ logN, r, p });
  };
  for (const cost of wordsOf('1,1,1 15,8,3 18,8,1 18,8,4 19,4,1 15,1,1'))
    assert.ok(isAllowed(cost), cost);
  for (const cost of wordsOf(
    '18,8,5 18,9,1 19,8,1 16,1,1 0,8,1 4,0,1 4,8,0 -1,8,1 NaN,8,1 4,8,Infinity',
  ))
    assert.ok(!isAllowed(cost), cost);
});

test('the decoy hash costs what a real hash costs, and no password matches it', async () => {
  for (const cost of [CHEAP, { logN: 4, r: 16, p: 99 }]) {
    const decoy = decoyHash(cost);
    assert.equal(needsRehash(decoy, cost), false);
    assert.equal(decoy.length, (await hashPassword('password', cost)).length);
    for (const password of ['', 'password', 'A'.repeat(43), '\0'])
      assert.equal(await verifyPassword(password, decoy), false);
  }
});
