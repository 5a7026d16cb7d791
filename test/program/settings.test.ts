/** What the program makes of its environment: one typed object, or every problem at once. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Env } from '../../src/platform/runtime/env.ts';
import { readHashes } from '../../src/platform/process/settings.ts';
import {
  type Config,
  type Given,
  LONG,
  NEEDED,
  problems,
  readGiven as read,
  VARIABLES,
} from '../support/settings.ts';
import { wordsOf } from '../support/words.ts';

test('every optional variable has its documented default', () => {
  const config = read({});
  const places = [config.identity, config.secrets, config.webhook].map(
    (one) => `${one?.host}:${one?.port}`,
  );
  assert.deepEqual(places, ['0.0.0.0:3000', '0.0.0.0:8080', '0.0.0.0:8000']);
  const { LOG_LEVEL, metrics, MIGRATE, SHUTDOWN_GRACE, MAX_BODY_BYTES } = config;
  assert.deepEqual(
    { LOG_LEVEL, metrics, MIGRATE, SHUTDOWN_GRACE, MAX_BODY_BYTES },
    { LOG_LEVEL: 'info', metrics: null, MIGRATE: true, SHUTDOWN_GRACE: 10, MAX_BODY_BYTES: 65_536 },
  );
  assert.deepEqual(config.identity?.admin, {
    username: 'admin',
    password: null,
    email: 'admin@localhost',
  });
  assert.deepEqual(config.identity?.passwords, {
    minLength: 8,
    words: [],
    cost: { logN: 15, r: 8, p: 3 },
  });
  assert.equal(config.identity?.sessionSeconds, 24 * 3_600);
  assert.equal(config.identity?.idleSeconds, 0);
  assert.equal(config.identity?.retentionSeconds, 30 * 24 * 3_600);
  assert.equal(config.identity?.auditSeconds, 365 * 24 * 3_600);
  assert.deepEqual(config.secrets?.limits, {
    expires_in: { default: 7 * 24 * 3_600, max: 30 * 24 * 3_600 },
    max_reads: { default: null, max: 1_000 },
    password: { max_bytes: 64_512 },
  });
  assert.equal(config.secrets?.receiptSeconds, 30 * 24 * 3_600);
  assert.equal(config.secrets?.sharePages, false);
  assert.deepEqual(config.secrets?.previousSecrets, []);
  assert.equal(config.webhook?.appName, 'gatehouse-webhook');
  assert.deepEqual(config.warnings, []);
});

test('in a container of less than 256 MiB, one password is hashed at a time', () => {
  const MIB = 2 ** 20;
  for (const limit of [64 * MIB, 128 * MIB, 256 * MIB - 1])
    assert.equal(readHashes(new Env({}), limit), 1);
  // 0, undefined and 2^64 stand for no limit, by version of Node and of cgroups.
  for (const limit of [256 * MIB, 2 ** 64, 0, undefined])
    assert.equal(readHashes(new Env({}), limit), 2);
  assert.equal(readHashes(new Env({ PASSWORD_HASHES: '4' }), 128 * MIB), 4, 'what is set counts');
});

const numbers: ReadonlyArray<
  readonly [name: string, least: number, most: number, read: (config: Config) => number | undefined]
> = [
  ['PORT', 0, 65_535, (config) => config.webhook?.port],
  ['IDENTITY_PORT', 0, 65_535, (config) => config.identity?.port],
  ['SECRETS_PORT', 0, 65_535, (config) => config.secrets?.port],
  ['WEBHOOK_PORT', 0, 65_535, (config) => config.webhook?.port],
  ['METRICS_PORT', 0, 65_535, (config) => config.metrics?.port],
  ['MAX_BODY_BYTES', 1_024, 16_777_216, (config) => config.MAX_BODY_BYTES],
  ['WEBHOOK_MAX_BODY_BYTES', 1_024, 26_214_400, (config) => config.webhook?.maxSignedBytes],
  ['SHUTDOWN_GRACE', 0, 600, (config) => config.SHUTDOWN_GRACE],
  ['PASSWORD_MIN_LENGTH', 8, 29, (config) => config.identity?.passwords.minLength],
  ['PASSWORD_HASHES', 1, 64, (config) => config.PASSWORD_HASHES],
  ['SESSION_TTL', 60, 31_622_400, (config) => config.identity?.sessionSeconds],
  ['SESSION_RETENTION', 0, 316_224_000, (config) => config.identity?.retentionSeconds],
  ['AUDIT_RETENTION', 86_400, 316_224_000, (config) => config.identity?.auditSeconds],
  ['SECRET_TTL_MAX', 1, 31_622_400, (config) => config.secrets?.limits.expires_in.max],
  ['SECRETS_MAX_BODY_BYTES', 2_048, 2_097_152, (config) => config.secrets?.maxBodyBytes],
  ['SECRET_READS_MAX', 1, 1_000, (config) => config.secrets?.limits.max_reads.max],
  ['RECEIPT_RETENTION', 0, 316_224_000, (config) => config.secrets?.receiptSeconds],
];

for (const [name, least, most, value] of numbers) {
  test(`${name} is a whole number from ${least} to ${most}`, () => {
    for (const good of [least, most]) assert.equal(value(read({ [name]: String(good) })), good);
    const others = wordsOf('1.5 1e3 0x400 4,096 +4096 ٤٠٩٦ many 99999999999999999999');
    for (const bad of [String(least - 1), String(most + 1), '4 096', ...others]) {
      assert.deepEqual(
        problems({ [name]: bad }),
        [`${name} must be a whole number from ${least} to ${most}.`],
        bad,
      );
    }
  });
}

test('SESSION_IDLE_TTL is 0 or at least 300', () => {
  for (const good of ['0', '300', '31622400'])
    assert.equal(read({ SESSION_IDLE_TTL: good }).identity?.idleSeconds, Number(good));
  for (const bad of ['3 00', ...wordsOf('1 299 31622401 -1 -0 00 0.0 +300 3e2 off ٣٠٠')]) {
    assert.deepEqual(
      problems({ SESSION_IDLE_TTL: bad }),
      ['SESSION_IDLE_TTL must be 0, or a whole number from 300 to 31622400.'],
      bad,
    );
  }
});

const texts: ReadonlyArray<
  readonly [name: string, good: readonly string[], bad: readonly string[], accepts: string]
> = [
  ['MIGRATE', ['on', 'off'], ['ON', 'yes', '0'], 'one of on, off'],
  [
    'LOG_LEVEL',
    ['debug', 'info', 'warn', 'error', 'silent'],
    ['INFO', 'trace', '3'],
    'one of debug, info, warn, error, silent',
  ],
  [
    'SIGNIN_VERIFY_URL',
    ['http://identity:3000/api/auth/verify?redirect=401', 'https://[::1]/verify'],
    ['identity:3000/verify', 'http://host:99999/verify', 'http://u@host/verify', 'http://host'],
    'the http or https address of the verify endpoint',
  ],
  ['WEBHOOK_VARIANT', ['extended', 'plain'], ['Plain', 'none'], 'one of extended, plain'],
  [
    'TRUSTED_PROXIES',
    ['10.0.0.0/8', '::1', '10.0.0.0/8, 192.0.2.7,2001:db8::/32'],
    ['10.0.0.0/33', 'proxy.example', '10.0.0', '::1/129', '10.0.0.0/8/8', '10.0.0.0/'],
    'a comma-separated list of addresses and CIDR ranges, such as 10.0.0.0/8,::1',
  ],
  [
    'PASSWORD_SCRYPT',
    ['ln=15,r=8,p=3', 'ln=4,r=8,p=1'],
    wordsOf('ln=15 ln=30,r=8,p=1 ln=0,r=8,p=1 ln=15,r=0,p=1 ln=15,r=8,p=0 N=32768,r=8,p=3').concat(
      'ln=15, r=8, p=3',
    ),
    'a cost such as ln=15,r=8,p=3 that needs at most 256 MiB',
  ],
  [
    'AUTH_TOKEN',
    [LONG, 'a/b+c='.repeat(6)],
    [
      'two words are not a token at all 123',
      'naïve-token-0123456789-0123456789',
      `${LONG},${LONG}`,
    ],
    'visible ASCII characters without spaces and commas',
  ],
  [
    'WEBHOOK_TOKEN',
    [LONG, 'a'.repeat(512)],
    ['a'.repeat(513), 'a-token-with-a-slash/0123456789', 'a token with a space'],
    'at most 512 characters of A-Z a-z 0-9 . _ ~ -',
  ],
];

for (const [name, good, bad, accepts] of texts) {
  test(`${name} accepts ${accepts}`, () => {
    for (const value of good) assert.deepEqual(problems({ [name]: value }), [], value);
    for (const value of bad)
      assert.deepEqual(problems({ [name]: value }), [`${name} must be ${accepts}.`], value);
  });
}

const SCHEDULE = '5s,30s,2m,10m,30m,1h,2h,4h,8h,12h,20h,24h';
const SECONDS = [5, 30, 120, 600, 1_800, 3_600, 7_200, 14_400, 28_800, 43_200, 72_000, 86_400];
const SCHEDULES: ReadonlyArray<
  readonly [environment: Record<string, string>, pausesMs: readonly number[]]
> = [
  [{}, SECONDS.map((seconds) => seconds * 1_000)],
  [{ WEBHOOK_RETRY_SCHEDULE: 'none' }, []],
  [{ WEBHOOK_RETRY_SCHEDULE: '0s,7d, 1h' }, [0, 604_800_000, 3_600_000]],
  [{ WEBHOOK_RETRY_SCHEDULE: '1ms,20ms,999999ms' }, [1, 20, 999_999]],
];
test('the retry schedule is a list of pauses, about three days together by default', () => {
  for (const [environment, pausesMs] of SCHEDULES) {
    assert.deepEqual(
      read(environment).webhook?.delivery.pausesMs,
      pausesMs,
      JSON.stringify(environment),
    );
  }
  const hours = SECONDS.reduce((sum, seconds) => sum + seconds, 0) / 3_600;
  assert.ok(hours > 70 && hours < 74, String(hours));
  const accepts = `WEBHOOK_RETRY_SCHEDULE must be none, or up to 99 pauses of at most 7d each, such as ${SCHEDULE}.`;
  const words = wordsOf('5 5s, ,5s -5s 1.5h 8d 169h 5S 5s;1m 1w 5sm 5msms None ٥s');
  for (const bad of [...words, '5 s', '5 ms', Array(100).fill('1s').join()]) {
    assert.deepEqual(problems({ WEBHOOK_RETRY_SCHEDULE: bad }), [accepts], bad);
  }
});

test('INBOX_USERS requires a source of users, and TRUSTED_USER_HEADER a proxy', () => {
  const header = { TRUSTED_USER_HEADER: 'X-User', TRUSTED_PROXIES: '10.0.0.1' };
  const { names, source } = read({ ...header, INBOX_USERS: 'a, b,' }).webhook?.inboxUsers ?? {};
  assert.deepEqual([names, source?.TRUSTED_USER_HEADER], [['a', 'b'], 'X-User']);
  assert.deepEqual(read(header).webhook?.inboxUsers.names, []);
  for (const name of ['INBOX_USERS', 'SHARE_USERS']) {
    const group = { ...header, [name]: 'group:ops' };
    const unheard = `${name} requires TRUSTED_GROUPS_HEADER or SIGNIN_VERIFY_URL.`;
    assert.deepEqual(problems({ ...group }), [unheard]);
    assert.deepEqual(problems({ ...group, TRUSTED_GROUPS_HEADER: 'X-Groups' }), []);
    const wrong = problems({ ...header, [name]: 'a,group:Ops' }).join();
    assert.match(wrong, new RegExp(`^${name} must be a comma-separated list`));
  }
  assert.match(
    problems({ TRUSTED_GROUPS_HEADER: 'X-Groups' }, ['webhook']).join(),
    /^TRUSTED_GROUPS_HEADER requires TRUSTED_USER_HEADER/,
  );
  const needed = 'INBOX_USERS requires TRUSTED_USER_HEADER or SIGNIN_VERIFY_URL.';
  assert.deepEqual(problems({ INBOX_USERS: 'a' }), [needed]);
  assert.match(
    problems({ TRUSTED_USER_HEADER: 'X-User' }, ['webhook']).join(),
    /^TRUSTED_USER_HEADER requires TRUSTED_PROXIES/,
  );
  assert.match(
    problems({ ...header, TRUSTED_USER_HEADER: 'X User' }, ['webhook']).join(),
    /must be the name of a header\.$/,
  );
});

test('a server secret has no comma and no surrounding space', () => {
  const accepts = 'SERVER_SECRET must be a text without commas, and without spaces around it.';
  for (const value of [`${LONG},${LONG}`, ` ${LONG}`, `${LONG} `])
    assert.deepEqual(problems({ SERVER_SECRET: value }), [accepts]);
});

test('PGTARGETSESSIONATTRS is rejected', () => {
  assert.deepEqual(problems({ PGTARGETSESSIONATTRS: 'standby' }), [
    'PGTARGETSESSIONATTRS must not be set: use target_session_attrs in DATABASE_URL.',
  ]);
});

test('ADMIN_PASSWORD must have the minimum length', () => {
  assert.deepEqual(problems({ ADMIN_PASSWORD: 'seven77' }), [
    'ADMIN_PASSWORD must have at least 8 characters.',
  ]);
  assert.deepEqual(problems({ ADMIN_PASSWORD: 'eight888', PASSWORD_MIN_LENGTH: '9' }), [
    'ADMIN_PASSWORD must have at least 9 characters.',
  ]);
  assert.equal(read({ ADMIN_PASSWORD: 'eight888' }).identity?.admin.password, 'eight888');
});

test('an invalid first administrator is reported with every problem, and a password never', () => {
  const names =
    'must not consist of names of the user or the service; choose several unrelated words';
  assert.deepEqual(
    problems({
      ADMIN_USERNAME: 'ro\u200bot',
      ADMIN_EMAIL: 'nowhere',
      ADMIN_PASSWORD: 'Nowhere-2024',
      PASSWORD_MIN_LENGTH: 'x',
    }),
    [
      'PASSWORD_MIN_LENGTH must be a whole number from 8 to 29.',
      'ADMIN_USERNAME must not contain invisible characters.',
      'ADMIN_EMAIL must be an e-mail address, such as ada@example.org.',
      `ADMIN_PASSWORD ${names}.`,
    ],
  );
  assert.deepEqual(problems({ ADMIN_USERNAME: 'ro\u2800ot', ADMIN_PASSWORD: 'password1' }), [
    'ADMIN_USERNAME must not contain invisible characters.',
    'ADMIN_PASSWORD is among the most common passwords; choose another.',
  ]);
  assert.deepEqual(problems({ ADMIN_PASSWORD: 'acme rockets 1' }), []);
  assert.deepEqual(
    problems({ ADMIN_PASSWORD: 'acme rockets 1', PASSWORD_WORDS: 'rockets, Acme,' }),
    [`ADMIN_PASSWORD ${names}.`],
  );
});

test('a PASSWORD_SCRYPT below the minimum causes one warning', () => {
  const warnings = (cost: string) => read({ PASSWORD_SCRYPT: cost }).warnings;
  for (const cost of ['ln=4,r=8,p=1', 'ln=13,r=8,p=9', 'ln=12,r=8,p=20', 'ln=15,r=8,p=2']) {
    assert.deepEqual(
      warnings(cost),
      [
        'PASSWORD_SCRYPT is below the minimum of OWASP; set ln=15,r=8,p=3 or at least ln=13,r=8,p=10.',
      ],
      cost,
    );
  }
  for (const cost of wordsOf(
    'ln=13,r=8,p=10 ln=14,r=8,p=5 ln=15,r=8,p=3 ln=16,r=8,p=2 ln=17,r=8,p=1',
  ))
    assert.deepEqual(warnings(cost), [], cost);
});

test('all problems are reported together, each with its variable', () => {
  const found = problems({
    DATABASE_URL: 'mysql://localhost/x',
    SERVER_SECRET: undefined,
    AUTH_TOKEN: undefined,
    LOG_LEVEL: 'loud',
    PORT: 'x',
    SECRET_TTL: '-1',
  });
  const named = found.map((problem) => problem.split(' ')[0]);
  assert.deepEqual(
    new Set(named),
    new Set(['DATABASE_URL', 'SERVER_SECRET', 'AUTH_TOKEN', 'LOG_LEVEL', 'PORT', 'SECRET_TTL']),
  );
  assert.equal(found.length, named.length);
});

const FOLLOWING: ReadonlyArray<readonly [wrong: Given, following: Given]> = [
  [{ SIGNIN_ORIGIN: 'http://host' }, { COOKIE_DOMAIN: 'example.org' }],
  [{ DATABASE_STATEMENT_TIMEOUT: 'x' }, { DATABASE_DEAD_AFTER: '8' }],
  [{ SHARE_PAGES: 'x' }, { SHARE_ANYONE: 'on' }],
  [{ SIGNIN_PAGES: 'x' }, { REQUIRE_SECOND_FACTOR: 'all', IDENTITY_SECRET: LONG }],
  [{ TRUSTED_PROXIES: 'x' }, { TRUSTED_USER_HEADER: 'X-User' }],
  [{ SIGNIN_VERIFY_URL: 'x' }, { INBOX_USERS: 'ada' }],
  [{ WEBHOOK_SECRET: 'a,b' }, { WEBHOOK_SECRET_PREVIOUS: LONG }],
  [{ SERVER_SECRET: 'a,b' }, { SERVER_SECRET_PREVIOUS: LONG }],
];

for (const [wrong, following] of FOLLOWING) {
  const name = Object.keys(wrong).join();
  test(`an invalid ${name} causes no problem of what depends on it`, () => {
    const found = problems({ ...wrong, ...following });
    assert.deepEqual(
      found.map((problem) => problem.split(' ')[0]),
      [name],
      found.join('\n'),
    );
  });
}

test('every service without a database is reported', () => {
  const found = problems({
    DATABASE_URL: undefined,
    IDENTITY_DATABASE_URL: NEEDED.DATABASE_URL,
  }).join('\n');
  assert.match(found, /SECRETS_DATABASE_URL/);
  assert.match(found, /WEBHOOK_DATABASE_URL/);
  assert.doesNotMatch(found, /IDENTITY_DATABASE_URL/);
});

test('a problem never contains the invalid value', () => {
  const secret = 'marked secret value';
  const everywhere = Object.fromEntries(Object.keys(VARIABLES).map((name) => [name, secret]));
  const found = problems(everywhere);
  assert.ok(found.length > 10);
  assert.ok(!found.join('\n').includes('marked'));
});

test('a value that is not a string is a problem, as an embedding program may pass one', () => {
  for (const [value, kind] of [
    [3000, 'number'],
    [0, 'number'],
    [false, 'boolean'],
    [null, 'null'],
    [['a'], 'object'],
  ] as const) {
    const given: Given = JSON.parse(JSON.stringify({ IDENTITY_PORT: value }));
    assert.deepEqual(problems(given), [`IDENTITY_PORT must be given as a string, not as ${kind}.`]);
  }
});

test('an empty variable counts as unset', () => {
  const empty = Object.fromEntries(Object.keys(VARIABLES).map((name) => [name, '']));
  assert.equal(JSON.stringify(read({ ...empty, ...NEEDED })), JSON.stringify(read({})));
  assert.ok(
    problems({ AUTH_TOKEN: '' }).some((problem) => problem.startsWith('AUTH_TOKEN must be set')),
  );
});

test('the earlier values of a secret are a list without empty entries', () => {
  const one = `${LONG}-1`;
  const two = `${LONG}-2`;
  const list = `${one}, ${two} ,,three,`;
  const { secrets, webhook } = read({
    SERVER_SECRET_PREVIOUS: list,
    AUTH_TOKEN_PREVIOUS: `${one}, ${two},`,
    WEBHOOK_SECRET: LONG,
    WEBHOOK_SECRET_PREVIOUS: list,
  });
  assert.deepEqual(secrets?.previousSecrets, [one, two, 'three']);
  assert.deepEqual(secrets?.authTokens, [LONG, one, two]);
  assert.deepEqual(webhook?.secrets, [LONG, one, two, 'three']);
  const form = 'a comma-separated list, each visible ASCII characters without spaces and commas';
  assert.deepEqual(problems({ AUTH_TOKEN_PREVIOUS: `${LONG},two words in one token` }), [
    `AUTH_TOKEN_PREVIOUS must be ${form}.`,
  ]);
});

test('programs that the service runs get no variable of Gatehouse, also none of a command', () => {
  const given = {
    OPERATOR_TOKEN: LONG,
    GATEHOUSE_WEBHOOK_URL: 'https://hooks.example.org',
    GATEHOUSE_URL: 'https://secrets.example.org',
    HOME: '/',
  };
  const { webhook } = read(given, ['webhook']);
  assert.deepEqual(webhook?.delivery.environment, { HOME: '/' });
});
