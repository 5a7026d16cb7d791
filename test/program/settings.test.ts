/** What the program makes of its environment: one typed object, or every problem at once. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Env } from '../../src/platform/runtime/env.ts';
import { readHashes } from '../../src/platform/process/settings.ts';
import type { ServiceName } from '../../src/serve.ts';
import {
  type Config,
  type Given,
  LONG,
  NEEDED,
  problems,
  readGiven as read,
  SERVICES,
  VARIABLES,
} from '../support/settings.ts';
import { wordsOf } from '../support/words.ts';

// docs/configuration.md has the defaults of the variables: test/repository/documents.test.ts.
test('what has no variable of its own is derived from the defaults', () => {
  const { identity, secrets, webhook, metrics, warnings } = read({});
  assert.deepEqual([metrics, warnings], [null, []]);
  assert.deepEqual(read({ METRICS_PORT: '9100' }).metrics, { host: '127.0.0.1', port: 9100 });
  const admin = { username: 'admin', password: null, email: 'admin@localhost' };
  assert.deepEqual(identity?.admin, admin);
  const cost = { logN: 15, r: 8, p: 3 };
  assert.deepEqual(identity?.passwords, { minLength: 8, words: [], cost });
  assert.deepEqual(secrets?.limits, {
    expires_in: { default: 7 * 86_400, max: 30 * 86_400 },
    max_reads: { default: null, max: 1_000 },
    password: { max_bytes: 64_512 },
  });
  assert.deepEqual([secrets?.sharePages, secrets?.previousSecrets], [false, []]);
  assert.equal(webhook?.appName, 'gatehouse-webhook');
});

test('in a container of less than 256 MiB, one password is hashed at a time', () => {
  const MIB = 2 ** 20;
  // 0, undefined and 2^64 stand for no limit, by version of Node and of cgroups.
  for (const [limit, hashes, given = {}] of [
    [64 * MIB, 1],
    [256 * MIB - 1, 1],
    [256 * MIB, 2],
    [2 ** 64, 2],
    [0, 2],
    [undefined, 2],
    [128 * MIB, 4, { PASSWORD_HASHES: '4' }],
  ] as const)
    assert.equal(readHashes(new Env(given), limit), hashes);
});

type Read = (config: Config) => number | undefined;
const numbers: ReadonlyArray<readonly [name: string, least: number, most: number, read: Read]> = [
  ['PORT', 0, 65_535, ({ webhook }) => webhook?.port],
  ['IDENTITY_PORT', 0, 65_535, ({ identity }) => identity?.port],
  ['METRICS_PORT', 0, 65_535, ({ metrics }) => metrics?.port],
  ['MAX_BODY_BYTES', 1_024, 16_777_216, (config) => config.MAX_BODY_BYTES],
  ['WEBHOOK_MAX_BODY_BYTES', 1_024, 26_214_400, ({ webhook }) => webhook?.maxSignedBytes],
  ['SHUTDOWN_GRACE', 0, 600, (config) => config.SHUTDOWN_GRACE],
  ['PASSWORD_MIN_LENGTH', 8, 29, ({ identity }) => identity?.passwords.minLength],
  ['PASSWORD_HASHES', 1, 64, (config) => config.PASSWORD_HASHES],
  ['DATABASE_LOCK_TIMEOUT', 1, 300, (one) => one.secrets?.database.limits.DATABASE_LOCK_TIMEOUT],
  ['SESSION_TTL', 60, 31_622_400, ({ identity }) => identity?.sessionSeconds],
  ['SESSION_RETENTION', 0, 316_224_000, ({ identity }) => identity?.retentionSeconds],
  ['AUDIT_RETENTION', 86_400, 316_224_000, ({ identity }) => identity?.auditSeconds],
  ['SECRET_TTL', 0, 31_622_400, ({ secrets }) => secrets?.limits.expires_in.default ?? 0],
  ['SECRET_TTL_MAX', 1, 31_622_400, ({ secrets }) => secrets?.limits.expires_in.max],
  ['SECRETS_MAX_BODY_BYTES', 2_048, 2_097_152, ({ secrets }) => secrets?.maxBodyBytes],
  ['SECRET_READS', 0, 1_000, ({ secrets }) => secrets?.limits.max_reads.default ?? 0],
  ['SECRET_READS_MAX', 1, 1_000, ({ secrets }) => secrets?.limits.max_reads.max],
  ['RECEIPT_RETENTION', 0, 316_224_000, ({ secrets }) => secrets?.receiptSeconds],
];
const NO_NUMBERS = ['4 096', ...wordsOf('1.5 1e3 0x400 4,096 +4096 ٤٠٩٦ 99999999999999999999')];

test('a number is whole, and within its limits', () => {
  for (const [name, least, most, value] of numbers) {
    for (const good of [least, most]) assert.equal(value(read({ [name]: String(good) })), good);
    const said = [`${name} must be a whole number from ${least} to ${most}.`];
    for (const bad of [String(least - 1), String(most + 1), ...NO_NUMBERS])
      assert.deepEqual(problems({ [name]: bad }), said, bad);
  }
});

const SCHEDULE = '5s,30s,2m,10m,30m,1h,2h,4h,8h,12h,20h,24h';
type Texts = readonly [
  name: string,
  accepts: string,
  good: readonly string[],
  bad: readonly string[],
];
const texts: readonly Texts[] = [
  [
    'LOG_LEVEL',
    'one of debug, info, warn, error, silent',
    ['debug', 'silent'],
    ['INFO', 'trace', '3'],
  ],
  [
    'SIGNIN_VERIFY_URL',
    'the http or https address of the verify endpoint',
    ['http://identity:3000/api/auth/verify?redirect=401', 'https://[::1]/verify'],
    wordsOf('identity:3000/verify http://host:99999/verify http://u@host/verify http://host'),
  ],
  [
    'PASSWORD_SCRYPT',
    'a cost such as ln=15,r=8,p=3 that needs at most 256 MiB',
    ['ln=15,r=8,p=3', 'ln=4,r=8,p=1'],
    [
      'ln=15, r=8, p=3',
      ...wordsOf('ln=15 ln=30,r=8,p=1 ln=0,r=8,p=1 ln=15,r=0,p=1 ln=15,r=8,p=0 N=32768,r=8,p=3'),
    ],
  ],
  [
    'AUTH_TOKEN',
    'visible ASCII characters without spaces and commas',
    [LONG, 'a/b+c='.repeat(6)],
    ['two words are not a token at all', 'naïve-token-0123456789-0123456789', `${LONG},${LONG}`],
  ],
  [
    'AUTH_TOKEN_PREVIOUS',
    'a comma-separated list, each visible ASCII characters without spaces and commas',
    [`${LONG}, ${LONG},`],
    [`${LONG},two words in one token`],
  ],
  [
    'WEBHOOK_TOKEN',
    'at most 512 characters of A-Z a-z 0-9 . _ ~ -',
    [LONG, 'a'.repeat(512)],
    ['a'.repeat(513), 'a-token-with-a-slash/0123456789', 'a token with a space'],
  ],
  [
    'SERVER_SECRET',
    'a text without commas, and without spaces around it',
    [LONG],
    [`${LONG},${LONG}`, ` ${LONG}`, `${LONG} `],
  ],
  [
    'SESSION_IDLE_TTL',
    '0, or a whole number from 300 to 31622400',
    ['0', '300', '31622400'],
    ['3 00', ...wordsOf('1 299 31622401 -1 -0 00 0.0 +300 3e2 off ٣٠٠')],
  ],
  [
    'WEBHOOK_RETRY_SCHEDULE',
    `none, or up to 99 pauses of at most 7d each, such as ${SCHEDULE}`,
    ['none', SCHEDULE],
    [
      ...['5 s', '5 ms', Array(100).fill('1s').join()],
      ...wordsOf('5 5s, ,5s -5s 1.5h 8d 169h 5S 5s;1m 1w 5sm 5msms None ٥s'),
    ],
  ],
];

for (const [name, accepts, good, bad] of texts) {
  test(`${name} accepts ${accepts}`, () => {
    for (const value of good) assert.deepEqual(problems({ [name]: value }), [], value);
    for (const value of bad)
      assert.deepEqual(problems({ [name]: value }), [`${name} must be ${accepts}.`], value);
  });
}

test('the retry schedule is a list of pauses, about three days together by default', () => {
  const pausesOf = (given: Given) => read(given).webhook?.delivery.pausesMs ?? [];
  const usual = pausesOf({});
  assert.deepEqual(usual, pausesOf({ WEBHOOK_RETRY_SCHEDULE: SCHEDULE }));
  const hours = usual.reduce((sum, pause) => sum + pause, 0) / 3_600_000;
  assert.ok(hours > 70 && hours < 74, String(hours));
  for (const [given, pauses] of [
    ['none', []],
    ['0s,7d, 1h,2m', [0, 604_800_000, 3_600_000, 120_000]],
    ['1ms,20ms,999999ms', [1, 20, 999_999]],
  ] as const)
    assert.deepEqual(pausesOf({ WEBHOOK_RETRY_SCHEDULE: given }), pauses);
});

const ONE = { HOST: '192.0.2.1', PORT: '9' };
const OWN = { PORT: '9', SECRETS_PORT: '10', HOST: '192.0.2.1', SECRETS_HOST: '192.0.2.2' };
const BOTH = ['0.0.0.0:3000', '0.0.0.0:8080'];
const LISTENERS: ReadonlyArray<
  readonly [what: string, services: readonly ServiceName[], given: Given, at: readonly string[]]
> = [
  ['HOST and PORT name webhook', SERVICES, ONE, [...BOTH, '192.0.2.1:9']],
  ['HOST and PORT name identity alone', ['identity'], ONE, ['192.0.2.1:9']],
  ['HOST and PORT name secrets alone', ['secrets'], ONE, ['192.0.2.1:9']],
  ['PORT is of neither of two without webhook', ['identity', 'secrets'], { PORT: '9' }, BOTH],
  ['a service that is named twice runs alone', ['identity', 'identity'], ONE, ['192.0.2.1:9']],
  ['the prefixed name overrides HOST and PORT', ['secrets'], OWN, ['192.0.2.2:10']],
  ['without any, each has a port', SERVICES, {}, [...BOTH, '0.0.0.0:8000']],
];

test('a listener has the variables of its service, and HOST and PORT are of one', () => {
  for (const [what, services, given, expected] of LISTENERS) {
    const { identity, secrets, webhook } = read(given, services);
    const found = [identity, secrets, webhook].flatMap((one) =>
      one ? `${one.host}:${one.port}` : [],
    );
    assert.deepEqual(found, expected, what);
  }
});

test('the database URL of a service overrides DATABASE_URL', () => {
  for (const name of SERVICES) {
    const own = { [`${name.toUpperCase()}_DATABASE_URL`]: 'postgres://u@elsewhere.example/own' };
    const config = read(own);
    for (const one of SERVICES) {
      const expected = one === name ? 'elsewhere.example' : 'localhost';
      assert.equal(config[one]?.database?.hosts[0]?.name, expected);
    }
    assert.deepEqual(problems({ DATABASE_URL: undefined, ...own }, [name]), []);
  }
});

test('a service that does not run needs no settings, and a command only those of the database', () => {
  const unset = { SERVER_SECRET: undefined, AUTH_TOKEN: undefined };
  const plain = { DATABASE_URL: undefined, WEBHOOK_VARIANT: 'plain' };
  assert.deepEqual(problems(unset, ['identity', 'webhook']), []);
  assert.deepEqual(problems(plain, ['webhook']), []);
  const given = { ...unset, METRICS_PORT: '8080' };
  assert.deepEqual(problems(given, SERVICES, 'administer'), []);
  assert.equal(problems({ DATABASE_URL: undefined }, ['identity'], 'administer').length, 1);
  // A token is made in the database also where this environment serves the plain variant.
  const { webhook } = read({ WEBHOOK_VARIANT: 'plain' }, ['webhook'], 'administer');
  assert.equal(webhook?.database?.database, 'gatehouse');
});

const names =
  'must not consist of names of the user or the service; choose several unrelated words';
const header = { TRUSTED_USER_HEADER: 'X-User', TRUSTED_PROXIES: '10.0.0.1' };
const users = (name: string) =>
  [
    [{ [name]: 'a' }, `${name} requires TRUSTED_USER_HEADER or SIGNIN_VERIFY_URL.`],
    [
      { ...header, [name]: 'group:ops' },
      `${name} requires TRUSTED_GROUPS_HEADER or SIGNIN_VERIFY_URL.`,
    ],
    [{ ...header, TRUSTED_GROUPS_HEADER: 'X-Groups', [name]: 'group:ops' }],
    [{ ...header, [name]: 'a,group:Ops' }, /^\w+ must be a comma-separated list/],
  ] as const;
/** Settings, and each problem of them. A password is in none. */
const FOUND: ReadonlyArray<readonly [given: Given, ...Array<string | RegExp>]> = [
  ...users('INBOX_USERS'),
  ...users('SHARE_USERS'),
  [{ SHARE_ANYONE: 'on' }, 'SHARE_ANYONE=on requires SHARE_PAGES=on.'],
  [{ TRUSTED_USER_HEADER: 'X-User' }, /^TRUSTED_USER_HEADER requires TRUSTED_PROXIES/],
  [{ TRUSTED_GROUPS_HEADER: 'X-Groups' }, /^TRUSTED_GROUPS_HEADER requires TRUSTED_USER_HEADER/],
  [{ ...header, TRUSTED_USER_HEADER: 'X User' }, /must be the name of a header\.$/],
  [
    { PGTARGETSESSIONATTRS: 'standby' },
    'PGTARGETSESSIONATTRS must not be set: use target_session_attrs in DATABASE_URL.',
  ],
  [{ ADMIN_PASSWORD: 'seven77' }, 'ADMIN_PASSWORD must have at least 8 characters.'],
  [{ ADMIN_PASSWORD: 'eight888' }],
  [
    { ADMIN_PASSWORD: 'eight888', PASSWORD_MIN_LENGTH: '9' },
    'ADMIN_PASSWORD must have at least 9 characters.',
  ],
  [{ ADMIN_PASSWORD: 'acme rockets 1' }],
  [
    { ADMIN_PASSWORD: 'acme rockets 1', PASSWORD_WORDS: 'rockets, Acme,' },
    `ADMIN_PASSWORD ${names}.`,
  ],
  [
    { ADMIN_USERNAME: 'ro\u2800ot', ADMIN_PASSWORD: 'password1' },
    'ADMIN_USERNAME must not contain invisible characters.',
    'ADMIN_PASSWORD is among the most common passwords; choose another.',
  ],
  [
    { ADMIN_EMAIL: 'nowhere', ADMIN_PASSWORD: 'Nowhere-2024', PASSWORD_MIN_LENGTH: 'x' },
    'PASSWORD_MIN_LENGTH must be a whole number from 8 to 29.',
    'ADMIN_EMAIL must be an e-mail address, such as ada@example.org.',
    `ADMIN_PASSWORD ${names}.`,
  ],
  [
    { DATABASE_URL: 'mysql://localhost/x', SERVER_SECRET: undefined, PORT: 'x', SECRET_TTL: '-1' },
    /^DATABASE_URL must be /,
    /^PORT must be /,
    /^SERVER_SECRET must be set/,
    /^SECRET_TTL must be /,
  ],
  [
    { DATABASE_URL: undefined, IDENTITY_DATABASE_URL: NEEDED.DATABASE_URL },
    /^SECRETS_DATABASE_URL or /,
    /^WEBHOOK_DATABASE_URL or /,
  ],
  [
    { DATABASE_STATEMENT_TIMEOUT: '15' },
    'DATABASE_DEAD_AFTER must be more than DATABASE_STATEMENT_TIMEOUT.',
  ],
  ...['WEBHOOK_SECRET', 'IDENTITY_SECRET'].map((name) => {
    const previous = `${name}_PREVIOUS`;
    return [{ [previous]: LONG }, `${previous} requires ${name}.`] as const;
  }),
  [{ NOTIFY_URL: 'ftp://a.example' }, 'NOTIFY_URL must be an http or https URL.'],
  [{ NOTIFY_COMMAND: 'mail' }, 'NOTIFY_COMMAND must be the absolute path of a program.'],
  [
    { NOTIFY_URL: 'http://a.example', NOTIFY_COMMAND: '/a' },
    'NOTIFY_URL and NOTIFY_COMMAND are set together; set only one of them.',
  ],
  [
    { WEBHOOK_FORWARD_URL: 'http://a.example', WEBHOOK_COMMAND: '["/a"]' },
    'WEBHOOK_FORWARD_URL and WEBHOOK_COMMAND are set together; set only one of them.',
  ],
  [
    { WEBHOOK_HANDLER: '/a', WEBHOOK_VARIANT: 'plain' },
    'WEBHOOK_HANDLER requires WEBHOOK_VARIANT=extended: the plain variant stores no events.',
  ],
  [{ SITE_COLOR: 'red; } body { display: none' }, 'SITE_COLOR must be a color such as #0a7d4b.'],
  [{ SITE_COLOR: '#fff' }, /^SITE_COLOR must be a color/],
  [{ SITE_NAME: 'two\nlines' }, 'SITE_NAME must be one line of at most 300 characters.'],
  [{ SITE_FOOTER: 'x'.repeat(301) }, /^SITE_FOOTER must be one line/],
  [{ SITE_LOGO_FILE: '/missing.png' }, /^SITE_LOGO_FILE must be the path of a picture/],
  // As an embedding program may pass them.
  ...[3_000, 0, false, null, ['a']].map((value) => {
    const kind = value === null ? 'null' : typeof value;
    const given: Given = JSON.parse(JSON.stringify({ IDENTITY_PORT: value }));
    return [given, `IDENTITY_PORT must be given as a string, not as ${kind}.`] as const;
  }),
];

test('every problem is reported at once, with its variable and without its value', () => {
  for (const [given, ...expected] of FOUND) {
    const found = problems(given);
    assert.equal(found.length, expected.length, found.join('\n'));
    for (const one of expected) {
      const isFound = (text: string) => (one instanceof RegExp ? one.test(text) : one === text);
      assert.ok(found.some(isFound), `${one} in ${found.join('\n')}`);
    }
  }
  const everywhere = Object.keys(VARIABLES).map((name) => [name, 'marked secret value']);
  const found = problems(Object.fromEntries(everywhere));
  assert.ok(found.length > 10 && !found.join().includes('marked'));
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

test('an invalid variable causes no problem of what depends on it', () => {
  for (const [wrong, following] of FOLLOWING) {
    const named = problems({ ...wrong, ...following }).map((problem) => problem.split(' ')[0]);
    assert.deepEqual(named, Object.keys(wrong));
  }
});

test('an empty variable counts as unset', () => {
  const empty = Object.fromEntries(Object.keys(VARIABLES).map((name) => [name, '']));
  assert.equal(JSON.stringify(read({ ...empty, ...NEEDED })), JSON.stringify(read({})));
  assert.match(problems({ AUTH_TOKEN: '' }).join(), /^AUTH_TOKEN must be set/);
});

test('lists of names and of earlier values are without empty entries', () => {
  const list = 'one-0123456789-0123456789, two-0123456789-0123456789 ,,three,';
  const [one = '', two = ''] = list.match(/[\w-]+/g) ?? [];
  const { secrets, webhook } = read({
    ...header,
    SERVER_SECRET_PREVIOUS: list,
    AUTH_TOKEN_PREVIOUS: `${one}, ${two},`,
    WEBHOOK_SECRET: LONG,
    WEBHOOK_SECRET_PREVIOUS: list,
    INBOX_USERS: 'a, b,',
  });
  assert.deepEqual(secrets?.previousSecrets, [one, two, 'three']);
  assert.deepEqual(secrets.authTokens, [LONG, one, two]);
  assert.deepEqual(webhook?.secrets, [LONG, one, two, 'three']);
  const { names: inboxUsers, source } = webhook.inboxUsers;
  assert.deepEqual([inboxUsers, source?.TRUSTED_USER_HEADER], [['a', 'b'], 'X-User']);
  assert.deepEqual(read(header).webhook?.inboxUsers.names, []);
});

test('programs that the service runs get no variable of Gatehouse, also none of a command', () => {
  const own = ['OPERATOR_TOKEN', 'GATEHOUSE_WEBHOOK_URL', 'GATEHOUSE_URL'];
  const given = Object.fromEntries(own.map((name) => [name, 'https://a.example.org/0123456789']));
  const { webhook } = read({ ...given, HOME: '/' }, ['webhook']);
  assert.deepEqual(webhook?.delivery.environment, { HOME: '/' });
});
