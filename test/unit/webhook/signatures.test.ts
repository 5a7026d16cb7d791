/** The senders' published vectors, and everything that is not a valid signature. */
import assert from 'node:assert/strict';
import type { IncomingHttpHeaders } from 'node:http';
import { test } from 'node:test';
import {
  checkSignature,
  keyOf,
  standardKey,
  MAX_AGE_SECONDS,
  secondsOf,
} from '../../../src/webhook/signatures.ts';
import { SOURCES as ROWS } from '../../../src/webhook/sources.ts';
import {
  PUBLIC_KEYS,
  type SignedSource,
  signatureOf,
  SIGNED_SOURCES as SOURCES,
  SIGNING_SECRETS,
  WITHOUT_TIME,
} from '../../support/senders.ts';
import { wordsOf } from '../../support/words.ts';
import { PUBLISHED, STRIPE_V0, STRIPE_V1, type Vector } from './published.ts';

/** Where a sender publishes no vector: signed by the second implementation of the tests. */
function vectorOf(source: SignedSource): Vector {
  const secret = SIGNING_SECRETS[source];
  const body = '{"test": 2432232314}';
  const at = 1_614_265_330;
  const headers = signatureOf(source, secret, body, { at });
  return (
    PUBLISHED[source] ?? { secret, body, headers, at: WITHOUT_TIME.includes(source) ? null : at }
  );
}
const VECTORS = Object.fromEntries(SOURCES.map((source) => [source, vectorOf(source)]));
const vector = (source: SignedSource): Vector => VECTORS[source] ?? assert.fail();

/** With the vector of the source but for what is changed. */
function verdictOf(source: SignedSource, change: Partial<Request> = {}): string {
  const { secret, at: now, ...request } = vector(source);
  const changed: Request = { ...request, secrets: [secret], at: now, ...change };
  const { headers, body, secrets, at } = changed;
  const given = secrets.map((one, index) => ({ id: String(index), secret: one }));
  return checkSignature(ROWS[source], headers, Buffer.from(body), given, at ?? 0).kind;
}
interface Request {
  readonly headers: IncomingHttpHeaders;
  readonly body: string | Buffer;
  readonly secrets: readonly string[];
  readonly at: number | null;
}

/** GitLab signs by Standard Webhooks. */
const isSameScheme = (...sources: readonly SignedSource[]) =>
  sources[0] === sources[1] || sources.every((one) => one === 'gitlab' || one === 'standard');

/** Texts that differ in one bit of a byte. Headers and secrets are Latin-1. */
function flips(text: string): string[] {
  return Array.from(Buffer.from(text, 'latin1'), (byte, at) => {
    const other = Buffer.from(text, 'latin1');
    other.writeUInt8(byte ^ (1 << (at % 8)), at);
    return other.toString('latin1');
  });
}

for (const source of SOURCES) {
  const { secret, body, headers, at } = vector(source);

  test(`${source}: the vector is valid, and not with another body or secret`, () => {
    assert.equal(verdictOf(source), 'valid');
    const bodies = ['', body.slice(1), body.slice(0, -1), `${body} `];
    for (const other of [...flips(body), ...bodies].map((one) => Buffer.from(one, 'latin1')))
      assert.equal(verdictOf(source, { body: other }), 'wrong signature', String(other));
    for (const other of flips(secret))
      assert.equal(verdictOf(source, { secrets: [other] }), 'wrong signature', other);
    const [, nobody] = PUBLIC_KEYS;
    const other = source === 'discord' ? (nobody?.hex ?? '') : `whsec_${'A'.repeat(43)}=`;
    for (const secrets of [
      [other, secret],
      [secret, other],
    ])
      assert.equal(verdictOf(source, { secrets }), 'valid');
    for (const secrets of [[other], []])
      assert.equal(verdictOf(source, { secrets }), 'wrong signature');
  });

  test(`${source}: a header that is changed, missing, repeated or cut short is never valid`, () => {
    for (const [name, value] of Object.entries(headers)) {
      const verdict = (given: string | readonly string[] | undefined) =>
        verdictOf(source, { headers: { ...headers, [name]: given } as IncomingHttpHeaders });
      for (const other of [undefined, '', [value, 'x']])
        assert.equal(verdict(other), 'no signature', `${name}: ${other}`);
      const short = [value.slice(1), value.slice(0, -1), value.slice(0, 3), ' ', `x${value}`];
      for (const other of [...flips(value), ...short, ...wordsOf('= , v1, sha256= t=')])
        assert.notEqual(verdict(other), 'valid', `${name}: ${other}`);
    }
  });

  test(`${source}: its signature is none of another scheme, and the other way round`, () => {
    for (const another of SOURCES.filter((one) => !isSameScheme(source, one))) {
      const theirs = vector(another).headers;
      assert.equal(verdictOf(source, { headers: theirs }), 'no signature', another);
      const request = { headers, body, secrets: [secret], at };
      assert.notEqual(verdictOf(another, request), 'valid', another);
    }
  });

  if (at === null) continue;
  test(`${source}: a signed time is a number, and at most 300 seconds away`, () => {
    assert.equal(MAX_AGE_SECONDS, 300);
    for (const off of [-300, 0, 300])
      assert.equal(verdictOf(source, { at: at + off }), 'valid', String(off));
    for (const off of [-300.001, 300.001, 86_400])
      assert.equal(verdictOf(source, { at: at + off }), 'too old', String(off));
    // A lenient parser would read some of them as the current time or as NaN, which no comparison
    // rejects.
    const words = wordsOf('NaN Infinity 1e10 -1 +1 0x5b 1.5');
    for (const time of [...words, '', ' ', `${at}.0`, `${at} x`, '9'.repeat(15)])
      assert.equal(
        verdictOf(source, { headers: signatureOf(source, secret, body, { at: time }) }),
        'no signature',
        time,
      );
  });
}

test('a signed time is in seconds, a smaller unit, or an ISO time with its offset', () => {
  for (const [text, seconds] of [
    ['1700000000', 1_700_000_000],
    ['1700000000250', 1_700_000_000.25],
    ['1700000000250000', 1_700_000_000.25],
    ['1700000000250000000', 1_700_000_000.25],
    ['17000000002500', 17_000_000_002.5],
    ['2023-11-14T22:13:20.25Z', 1_700_000_000.25],
    ['2023-11-14T22:13:20.250456789Z', 1_700_000_000.25],
    ['2023-11-14T23:13:20+01:00', 1_700_000_000],
    ['2023-11-14T22:13:20.250+0000', 1_700_000_000.25],
    ['2023-11-14T22:13:20', null],
    ['2023-11-14', null],
    ['170000000025000', null],
    ['17000000002500000', null],
    ['170000000025000000000', null],
  ] as const) {
    const found = secondsOf(text);
    // Nanoseconds have more digits than a number.
    assert.equal(found && Math.round(found * 1_000), seconds && seconds * 1_000, text);
  }
});

const { secret: KEY, body: BODY, headers: HEADERS } = vector('standard');
const WRONG = `v1,${'A'.repeat(43)}=`;
const RIGHT = HEADERS['webhook-signature'] ?? '';
const WRONG_V1 = `v1=${'0'.repeat(64)}`;

/** Several signatures in one header: one that is valid is enough, and other kinds are ignored. */
const LISTS = [
  {
    source: 'standard',
    header: 'webhook-signature',
    valid: [
      ...[`${WRONG} ${RIGHT}`, `${RIGHT} ${WRONG}`, ` ${RIGHT}  `, `v2,x ${RIGHT} rubbish`],
      `v1a,${'A'.repeat(86)}== ${RIGHT}`,
    ],
    wrong: [`${WRONG} ${WRONG}`],
    none: [
      ...[RIGHT.replace('v1,', 'v1a,'), RIGHT.replace('v1,', 'v2,'), RIGHT.slice(3)],
      ...[RIGHT.slice(0, -1), `${RIGHT}=`, `${RIGHT},${RIGHT}`],
    ],
  },
  {
    source: 'stripe',
    header: 'stripe-signature',
    valid: [
      ...[`t=1533204620,v1=${STRIPE_V1},v0=${STRIPE_V0}`, `t=1533204620, v1=${STRIPE_V1}`],
      ...[`t=1533204620,${WRONG_V1},v1=${STRIPE_V1}`, `t=1533204620,v1=${STRIPE_V1},${WRONG_V1}`],
    ],
    // The first time counts.
    wrong: [`t=1533204620,${WRONG_V1},${WRONG_V1}`, `t=1533204621,t=1533204620,v1=${STRIPE_V1}`],
    none: [
      ...[`t=1533204620,v0=${STRIPE_V1}`, `t=1533204620,v1=${STRIPE_V1.slice(2)}`, 't=1533204620'],
      ...[`t=1533204620,v1=${STRIPE_V1}00`, `v1=${STRIPE_V1}`, `t=1533204620 v1=${STRIPE_V1}`],
    ],
  },
] as const;

test('one valid signature of several is enough, and one of another kind is never accepted', () => {
  for (const { source, header, valid, wrong, none } of LISTS) {
    const verdict = (list: string) =>
      verdictOf(source, { headers: { ...vector(source).headers, [header]: list } });
    for (const list of valid) assert.equal(verdict(list), 'valid', list);
    for (const list of wrong) assert.equal(verdict(list), 'wrong signature', list);
    for (const list of none) assert.equal(verdict(list), 'no signature', list);
  }
});

const SVIX = Object.fromEntries(
  Object.entries(HEADERS).map(([name, value]) => [name.replace('webhook', 'svix'), value]),
);

test('standard: the names of Svix are accepted, but not mixed with those of the scheme', () => {
  const verdict = (headers: Readonly<Record<string, string>>) => verdictOf('standard', { headers });
  assert.equal(verdict(SVIX), 'valid');
  assert.equal(verdict({ ...SVIX, ...HEADERS }), 'valid');
  for (const [name, value] of Object.entries(HEADERS)) {
    for (const other of [value, 'msg_another'])
      assert.equal(verdict({ ...SVIX, [name]: other }), 'no signature', `${name}: ${other}`);
    const { [name]: _, ...others } = HEADERS;
    const renamed = { ...others, [name.replace('webhook', 'svix')]: value };
    assert.notEqual(verdict(renamed), 'valid', `${name} by its other name`);
  }
  // And for this source alone.
  const { body, secret, at } = vector('standard');
  const request = { body, secrets: [secret], at };
  assert.equal(verdictOf('gitlab', { ...request, headers: HEADERS }), 'valid');
  assert.equal(verdictOf('gitlab', { ...request, headers: SVIX }), 'no signature');
});

test('standard: a secret is Base64 of 24 to 64 bytes, with or without whsec_', () => {
  const of = (bytes: number) => Buffer.alloc(bytes, 7).toString('base64');
  for (const bytes of [24, 64]) {
    assert.equal(standardKey(`whsec_${of(bytes)}`)?.length, bytes);
    assert.equal(standardKey(of(bytes))?.length, bytes);
  }
  const texts = [
    `whsec_${'!'.repeat(8)}${'A'.repeat(32)}`,
    'correct horse battery staple, correct',
  ];
  for (const none of [
    '',
    'whsec_',
    `whsec_${of(23)}`,
    `whsec_${of(65)}`,
    `whpk_${of(36)}`,
    ...texts,
  ])
    assert.equal(standardKey(none), null, none);
  // An invalid key accepts nothing, not even a signature with an empty key.
  const headers = signatureOf('standard', 'whsec_', BODY, { id: 'msg_1', at: 1 });
  const unkeyed = { headers, secrets: ['', 'whsec_'], at: 1 };
  assert.equal(verdictOf('standard', unkeyed), 'wrong signature');
});

const [own = assert.fail(), another = assert.fail()] = PUBLIC_KEYS;
const signedBy = (secret: string) => signatureOf('standard', secret, BODY, { at: 1 });

test('standard: with a public key, a v1a signature of its private key is valid, and no other', () => {
  const headers = signedBy(own.standard);
  const verdict = (change: Partial<Request>) =>
    verdictOf('standard', { headers, secrets: [own.standard], at: 1, ...change });
  assert.equal(verdict({}), 'valid');
  assert.equal(verdict({ at: 302 }), 'too old');
  // A public key is never the key of an HMAC, which anyone could compute.
  const forged = signedBy(own.standard.replace('whpk_', 'whsec_'));
  for (const change of [
    ...[{ body: `${BODY} ` }, { secrets: [another.standard] }, { secrets: [KEY] }],
    ...[
      { headers: { ...headers, 'webhook-id': 'msg_2' } },
      { headers: HEADERS },
      { headers: forged },
    ],
  ])
    assert.equal(verdict(change), 'wrong signature', JSON.stringify(change));
  const relabeled = String(forged['webhook-signature']).replace('v1,', 'v1a,');
  const renamed = { ...forged, 'webhook-signature': relabeled };
  assert.equal(verdict({ headers: renamed }), 'no signature');
});

test('a key of Ed25519 has 32 bytes in hex or Base64', () => {
  const { scheme } = ROWS.discord;
  for (const key of [own.hex, own.standard, own.standard.slice('whpk_'.length)])
    assert.equal(keyOf(scheme, key)?.algorithm, 'ed25519');
  for (const none of ['', own.hex.slice(2), `${own.hex}00`, 'x'.repeat(64), SIGNING_SECRETS.slack])
    assert.equal(keyOf(scheme, none), null, none);
});

test('of more signatures than a sender needs to rotate its secret, the rest is ignored', () => {
  for (const [secret, other, most] of [
    [KEY, SIGNING_SECRETS.gitlab, 8],
    [own.standard, another.standard, 2],
  ] as const) {
    const right = signedBy(secret);
    const wrong = `${signedBy(other)['webhook-signature']} `;
    const after = (count: number) => {
      const list = wrong.repeat(count) + right['webhook-signature'];
      const headers = { ...right, 'webhook-signature': list };
      return verdictOf('standard', { headers, secrets: [secret], at: 1 });
    };
    assert.deepEqual([after(most - 1), after(most)], ['valid', 'wrong signature']);
  }
});
