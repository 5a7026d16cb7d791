/** The senders' published vectors, and everything that is not a valid signature. */
import assert from 'node:assert/strict';
import type { IncomingHttpHeaders } from 'node:http';
import { test } from 'node:test';
import {
  checkSignature,
  keyOf,
  standardKey,
  MAX_AGE_SECONDS,
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
import { PUBLISHED, STRIPE_BODY, STRIPE_V0, STRIPE_V1, type Vector } from './published.ts';

/** Where a sender publishes no vector: signed by the second implementation of the tests. */
function vectorOf(source: SignedSource): Vector {
  const published = PUBLISHED[source];
  if (published) return published;
  const secret = SIGNING_SECRETS[source];
  const body = '{"test": 2432232314}';
  const at = 1_614_265_330;
  const headers = signatureOf(source, secret, body, { at });
  return { secret, body, headers, at: WITHOUT_TIME.includes(source) ? null : at };
}
const EMPTY = { secret: '', body: '', headers: {}, at: null };
const VECTORS = new Map(SOURCES.map((source) => [source, vectorOf(source)]));
const vector = (source: SignedSource): Vector => VECTORS.get(source) ?? EMPTY;

const verdictOf = (
  source: SignedSource,
  headers: IncomingHttpHeaders,
  body: string | Buffer,
  secrets: readonly string[],
  now: number | null,
) => {
  const given = secrets.map((secret, index) => ({ id: String(index), secret }));
  return checkSignature(ROWS[source], headers, Buffer.from(body), given, now ?? 0).kind;
};

/** GitLab signs by Standard Webhooks. */
const SAME_SCHEME = { 'gitlab,standard': true, 'standard,gitlab': true };

/** Every text that differs in one bit. Headers and secrets are Latin-1. */
function* flips(text: string): Generator<string> {
  const bytes = Buffer.from(text, 'latin1');
  for (let bit = 0; bit < bytes.length * 8; bit += 1) {
    const other = Buffer.from(bytes);
    other[bit >> 3] = (other[bit >> 3] ?? 0) ^ (1 << (bit & 7));
    yield other.toString('latin1');
  }
}

for (const source of SOURCES) {
  const { secret, body, headers, at } = vector(source);

  test(`${source}: the vector is valid`, () => {
    assert.equal(verdictOf(source, headers, body, [secret], at), 'valid');
  });

  test(`${source}: one flipped bit anywhere in the body is a wrong signature`, () => {
    for (const other of flips(body))
      assert.equal(
        verdictOf(source, headers, Buffer.from(other, 'latin1'), [secret], at),
        'wrong signature',
        other,
      );
    for (const other of ['', body.slice(1), body.slice(0, -1), `${body} `, `${body}\n`])
      assert.equal(verdictOf(source, headers, other, [secret], at), 'wrong signature');
  });

  for (const name of Object.keys(headers)) {
    test(`${source}: one flipped bit anywhere in ${name} is never valid`, () => {
      for (const value of flips(headers[name] ?? ''))
        assert.notEqual(
          verdictOf(source, { ...headers, [name]: value }, body, [secret], at),
          'valid',
          value,
        );
    });

    test(`${source}: ${name} missing, empty, twice in a list, or cut short is never valid`, () => {
      const value = headers[name] ?? '';
      const { [name]: _, ...rest } = headers;
      assert.equal(verdictOf(source, rest, body, [secret], at), 'no signature');
      assert.equal(
        verdictOf(source, { ...headers, [name]: '' }, body, [secret], at),
        'no signature',
      );
      const short = [value.slice(1), value.slice(0, -1), value.slice(0, 3), ' '];
      for (const other of [...short, ...wordsOf('= , v1, sha256= t='), `x${value}`]) {
        assert.notEqual(
          verdictOf(source, { ...headers, [name]: other }, body, [secret], at),
          'valid',
          other,
        );
      }
    });
  }

  test(`${source}: one flipped bit anywhere in the secret is a wrong signature`, () => {
    for (const other of flips(secret))
      assert.equal(verdictOf(source, headers, body, [other], at), 'wrong signature', other);
  });

  test(`${source}: either of two secrets is accepted, and no secret accepts nothing`, () => {
    const isPublic = source === 'discord';
    const other = isPublic
      ? (PUBLIC_KEYS[1]?.hex ?? '')
      : 'whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=';
    assert.equal(verdictOf(source, headers, body, [other, secret], at), 'valid');
    assert.equal(verdictOf(source, headers, body, [secret, other], at), 'valid');
    assert.equal(verdictOf(source, headers, body, [other], at), 'wrong signature');
    assert.equal(verdictOf(source, headers, body, [], at), 'wrong signature');
  });

  test(`${source}: a signature of another scheme is not a signature`, () => {
    for (const another of SOURCES) {
      const isSame = another === source || [source, another].join() in SAME_SCHEME;
      if (!isSame)
        assert.equal(
          verdictOf(source, vector(another).headers, body, [secret], at),
          'no signature',
          another,
        );
    }
  });

  test(`${source}: a request that it signed is not valid for another source with the same secret`, () => {
    for (const another of SOURCES) {
      const isSame = another === source || [source, another].join() in SAME_SCHEME;
      if (!isSame)
        assert.notEqual(verdictOf(another, headers, body, [secret], at), 'valid', another);
    }
  });

  if (at !== null) {
    test(`${source}: a signed time may differ by ${MAX_AGE_SECONDS} seconds, and not by one more`, () => {
      assert.equal(MAX_AGE_SECONDS, 300);
      for (const off of [-300, -299.5, 0, 299.5, 300])
        assert.equal(verdictOf(source, headers, body, [secret], at + off), 'valid', String(off));
      for (const off of [-301, -300.001, 300.001, 301, 86_400, -86_400])
        assert.equal(verdictOf(source, headers, body, [secret], at + off), 'too old', String(off));
    });

    test(`${source}: a time that is not a plain number is not a signature, even if signed`, () => {
      // A lenient parser would read some of them as the current time or as NaN, which no comparison
      // rejects.
      const words = wordsOf('NaN Infinity 1e10 -1 +1 0x5b 1.5');
      for (const time of [...words, '', ' ', `${at}.0`, `${at} x`, '9'.repeat(15)]) {
        assert.equal(
          verdictOf(source, signatureOf(source, secret, body, { at: time }), body, [secret], at),
          'no signature',
          time,
        );
      }
      assert.equal(
        verdictOf(source, signatureOf(source, secret, body, { at }), body, [secret], at),
        'valid',
      );
    });
  }
}

const { secret: KEY, body: BODY, headers: HEADERS, at: AT } = vector('standard');
const WRONG = `v1,${'A'.repeat(43)}=`;
const RIGHT = HEADERS['webhook-signature'] ?? '';

test('standard: one valid signature of several is enough, and other kinds are ignored', () => {
  const signed = (list: string) =>
    verdictOf('standard', { ...HEADERS, 'webhook-signature': list }, BODY, [KEY], AT);
  for (const list of [
    `${WRONG} ${RIGHT}`,
    `${RIGHT} ${WRONG}`,
    `v1a,${'A'.repeat(86)}== ${RIGHT}`,
    `v2,x ${RIGHT} rubbish`,
    ` ${RIGHT}  `,
  ])
    assert.equal(signed(list), 'valid', list);
  assert.equal(signed(`${WRONG} ${WRONG}`), 'wrong signature');
  for (const list of [
    RIGHT.replace('v1,', 'v1a,'),
    RIGHT.replace('v1,', 'v2,'),
    RIGHT.slice(3),
    RIGHT.slice(0, -1),
    `${RIGHT}=`,
    `${RIGHT},${RIGHT}`,
  ])
    assert.equal(signed(list), 'no signature', list);
});

const SVIX = Object.fromEntries(
  Object.entries(HEADERS).map(([name, value]) => [name.replace('webhook', 'svix'), value]),
);

test('standard: the names of Svix are accepted, but not mixed with those of the scheme', () => {
  const verdict = (headers: Readonly<Record<string, string>>) =>
    verdictOf('standard', headers, BODY, [KEY], AT);
  assert.equal(verdict(SVIX), 'valid');
  assert.equal(verdict({ ...SVIX, ...HEADERS }), 'valid');
  for (const [name, value] of Object.entries(HEADERS)) {
    for (const other of [value, 'msg_another'])
      assert.equal(verdict({ ...SVIX, [name]: other }), 'no signature', `${name}: ${other}`);
    const { [name]: _, ...others } = HEADERS;
    const renamed = { ...others, [name.replace('webhook', 'svix')]: value };
    assert.notEqual(verdict(renamed), 'valid', `${name} by its other name`);
  }
});

test('the names of Svix are read for the source standard alone', () => {
  assert.equal(verdictOf('gitlab', HEADERS, BODY, [KEY], AT), 'valid');
  assert.equal(verdictOf('gitlab', SVIX, BODY, [KEY], AT), 'no signature');
});

test('stripe: one valid v1 of several is enough, and v0 is never accepted', () => {
  const signed = (value: string) =>
    verdictOf(
      'stripe',
      { 'stripe-signature': value },
      STRIPE_BODY,
      ['webhook_secret'],
      1_533_204_620,
    );
  const wrong = `v1=${'0'.repeat(64)}`;
  for (const value of [
    `t=1533204620,v1=${STRIPE_V1},v0=${STRIPE_V0}`,
    `t=1533204620,${wrong},v1=${STRIPE_V1}`,
    `t=1533204620,v1=${STRIPE_V1},${wrong}`,
    `t=1533204620, v1=${STRIPE_V1}`,
  ])
    assert.equal(signed(value), 'valid', value);
  assert.equal(signed(`t=1533204620,${wrong},${wrong}`), 'wrong signature');
  assert.equal(
    signed(`t=1533204621,t=1533204620,v1=${STRIPE_V1}`),
    'wrong signature',
    'the first time counts',
  );
  for (const value of [
    `t=1533204620,v0=${STRIPE_V1}`,
    `t=1533204620,v1=${STRIPE_V1.slice(2)}`,
    `t=1533204620,v1=${STRIPE_V1}00`,
    `v1=${STRIPE_V1}`,
    't=1533204620',
    `t=1533204620 v1=${STRIPE_V1}`,
  ])
    assert.equal(signed(value), 'no signature', value);
});

test('a repeated header, which is an array, is not a signature', () => {
  for (const source of SOURCES) {
    const { secret, body, headers, at } = vector(source);
    for (const name of Object.keys(headers))
      assert.equal(
        verdictOf(source, { ...headers, [name]: [headers[name] ?? '', 'x'] }, body, [secret], at),
        'no signature',
        name,
      );
  }
});

test('standard: a secret is Base64 of 24 to 64 bytes, with or without whsec_', () => {
  const of = (bytes: number) => Buffer.alloc(bytes, 7).toString('base64');
  for (const bytes of [24, 32, 64]) {
    assert.equal(standardKey(`whsec_${of(bytes)}`)?.length, bytes);
    assert.equal(standardKey(of(bytes))?.length, bytes);
  }
  for (const none of ['', 'whsec_', `whsec_${of(23)}`, `whsec_${of(65)}`])
    assert.equal(standardKey(none), null, none);
  // An invalid key accepts nothing, not even a signature with an empty key.
  const unkeyed = signatureOf('standard', 'whsec_', BODY, { id: 'msg_1', at: 1 });
  assert.equal(verdictOf('standard', unkeyed, BODY, ['', 'whsec_'], 1), 'wrong signature');
});

test('standard: a text that is not Base64 is not a secret', () => {
  for (const none of [
    'correct horse battery staple, correct horse',
    `whsec_${'!'.repeat(8)}${'A'.repeat(32)}`,
    'whpk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqrTw',
  ])
    assert.equal(standardKey(none), null, none);
});

const [own, another] = PUBLIC_KEYS;
const signedBy = (secret: string) => signatureOf('standard', secret, BODY, { at: 1 });

test('standard: with a public key, a v1a signature of its private key is valid, and no other', () => {
  assert.ok(own && another);
  const headers = signedBy(own.standard);
  const verdict = (given: IncomingHttpHeaders, body = BODY, secret = own.standard, at = 1) =>
    verdictOf('standard', given, body, [secret], at);
  assert.equal(verdict(headers), 'valid');
  assert.equal(verdict(headers, `${BODY} `), 'wrong signature');
  assert.equal(verdict(headers, BODY, another.standard), 'wrong signature');
  assert.equal(verdict(headers, BODY, KEY), 'wrong signature');
  assert.equal(verdict(headers, BODY, own.standard, 302), 'too old');
  assert.equal(verdict({ ...headers, 'webhook-id': 'msg_2' }), 'wrong signature');
  assert.equal(verdict(HEADERS, BODY, own.standard, AT ?? 0), 'wrong signature');
});

test('a public key is never the key of an HMAC, which anyone could compute', () => {
  assert.ok(own);
  const asSecret = own.standard.replace('whpk_', 'whsec_');
  const forged = signatureOf('standard', asSecret, BODY, { at: 1 });
  assert.equal(verdictOf('standard', forged, BODY, [own.standard], 1), 'wrong signature');
  const relabeled = (forged['webhook-signature'] ?? '').replace('v1,', 'v1a,');
  assert.equal(
    verdictOf('standard', { ...forged, 'webhook-signature': relabeled }, BODY, [own.standard], 1),
    'no signature',
  );
});

test('a key of Ed25519 has 32 bytes in hex or Base64', () => {
  assert.ok(own);
  const { scheme } = ROWS.discord;
  for (const key of [own.hex, own.standard, own.standard.slice('whpk_'.length)])
    assert.equal(keyOf(scheme, key)?.algorithm, 'ed25519');
  for (const none of ['', own.hex.slice(2), `${own.hex}00`, 'x'.repeat(64), SIGNING_SECRETS.slack])
    assert.equal(keyOf(scheme, none), null, none);
});

test('of more signatures than a sender needs to rotate its secret, the rest is ignored', () => {
  assert.ok(own && another);
  for (const [secret, other, most] of [
    [KEY, SIGNING_SECRETS.gitlab, 8],
    [own.standard, another.standard, 2],
  ] as const) {
    const right = signedBy(secret);
    const wrong = signedBy(other)['webhook-signature'];
    const after = (count: number) => {
      const list = [...Array.from({ length: count }, () => wrong), right['webhook-signature']];
      const headers = { ...right, 'webhook-signature': list.join(' ') };
      return verdictOf('standard', headers, BODY, [secret], 1);
    };
    assert.equal(after(most - 1), 'valid');
    assert.equal(after(most), 'wrong signature');
  }
});
