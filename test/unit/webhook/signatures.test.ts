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

/** `at` is null if no time is signed. */
interface Vector {
  readonly secret: string;
  readonly body: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly at: number | null;
}

/** From the tests of Stripe's libraries, with its final newline. */
const STRIPE_BODY = `{
  "id": "evt_123",
  "object": "event",
  "account": "acct_123",
  "api_version": "2017-05-25",
  "created": 1533204620,
  "data": {
    "object": {
      "id": "cus_123",
      "object": "customer",
      "created": 123456789,
      "email": "test@stripe.com",
      "livemode": false,
      "metadata": {}
    }
  },
  "livemode": false,
  "pending_webhooks": 1,
  "request": {
    "id": "req_123",
    "idempotency_key": "idempotency-key-123"
  },
  "type": "customer.created"
}
`;
const STRIPE_V1 = '2220f87ef101a04665f11cdf770523143f875572008577fa0f20882ddb9cc3c7';
const STRIPE_V0 = '63f3a72374a733066c4be69ed7f8e5ac85c22c9f0a6a612ab9a025a9e4ee7eef';

const PUBLISHED: Readonly<Record<string, Vector>> = {
  /** The same vector is in each of the specification's reference libraries. */
  standard: {
    secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
    body: '{"test": 2432232314}',
    headers: {
      'webhook-id': 'msg_p5jXN8AQM9LWM0D4loKWxJek',
      'webhook-timestamp': '1614265330',
      'webhook-signature': 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
    },
    at: 1_614_265_330,
  },
  /** docs.github.com, "Validating webhook deliveries". */
  github: {
    secret: "It's a Secret to Everybody",
    body: 'Hello, World!',
    headers: {
      'x-hub-signature-256':
        'sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17',
    },
    at: null,
  },
  /**
   * The tests of stripe/stripe-dotnet and stripe/stripe-python. The manual's example has no secret.
   */
  stripe: {
    secret: 'webhook_secret',
    body: STRIPE_BODY,
    headers: { 'stripe-signature': `t=1533204620,v1=${STRIPE_V1}` },
    at: 1_533_204_620,
  },
  /** docs.slack.dev, "Verifying requests from Slack". */
  slack: {
    secret: '8f742231b10e8888abcd99yyyzzz85a5',
    body:
      'token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channe' +
      'l_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=h' +
      'ttps%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigge' +
      'r_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c',
    headers: {
      'x-slack-request-timestamp': '1531420618',
      'x-slack-signature': 'v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503',
    },
    at: 1_531_420_618,
  },
  /** support.atlassian.com, "Manage webhooks" of Bitbucket Cloud, "Secure webhooks". */
  bitbucket: {
    secret: "It's a Secret to Everybody",
    body: 'Hello World!',
    headers: {
      'x-hub-signature': 'sha256=a4771c39fbe90f317c7824e83ddef3caae9cb3d976c214ace1f2937e133263c9',
    },
    at: null,
  },
  /**
   * developer.zendesk.com, "Verifying": the secret of test requests and the time of the example.
   * The signature is the value of `openssl dgst -sha256 -hmac -binary` in Base64.
   */
  zendesk: {
    secret: 'dGhpc19zZWNyZXRfaXNfZm9yX3Rlc3Rpbmdfb25seQ==',
    body: '{"event":"ticket.updated","id":123}',
    headers: {
      'x-zendesk-webhook-signature-timestamp': '2021-03-25T05:09:27Z',
      'x-zendesk-webhook-signature': 'S/RDdU2ERmj7LHDDoWJ2onPYH+t7/f2+LTM4dL7UiLM=',
    },
    at: Date.UTC(2021, 2, 25, 5, 9, 27) / 1000,
  },
  /**
   * docs.gitea.com, "Webhooks": secret and reference of the example. The signature is the value of
   * its `hash_hmac('sha256', $payload, $secret_key, false)` in PHP 8.2.
   */
  gitea: {
    secret: '3gEsCfjlV2ugRwgpU#w1*WaW*wa4NXgGmpCfkbG3',
    body: '{"ref":"refs/heads/develop"}',
    headers: {
      'x-gitea-signature': '9c2be4f47012ba09d6202c2e943973128f346dd7d33d20adeef6c083d9d69db6',
    },
    at: null,
  },
  /** Sentry publishes no vector: the value of `SentryApp.build_signature` of its server. */
  sentry: {
    secret: 'fixed-client-secret',
    body: '{"action":"created","data":{"issue":{"id":"1"}}}',
    headers: {
      'sentry-hook-signature': '1e0b49ef5b7e0d9b7f82c7371c4dfcc59b567843d0b92d5638420fa2b82393d4',
    },
    at: null,
  },
  /**
   * Notion publishes no vector: token and body of its SDK's test, with the value of `openssl dgst
   * -sha256 -hmac`.
   */
  notion: {
    secret: 'fixed-verification-token',
    body: '{"id":"fixed-evt","type":"page.created"}',
    headers: {
      'x-notion-signature':
        'sha256=e51fc361bd9b019cc34c59929547007291a6dd982179d36bb5d6d9e7e12cbac2',
    },
    at: null,
  },
};
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
      for (const other of [
        value.slice(1),
        value.slice(0, -1),
        value.slice(0, 3),
        '=',
        ',',
        ' ',
        'v1,',
        'sha256=',
        't=',
        `x${value}`,
      ]) {
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
      for (const time of [
        'NaN',
        'Infinity',
        '',
        ' ',
        '1e10',
        '-1',
        '+1',
        '0x5b',
        '1.5',
        `${at}.0`,
        `${at} x`,
        '9'.repeat(15),
      ]) {
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
