/**
 * Unknown, removed and foreign variables; those in files; what files and shells leave in a value;
 * weak secrets, and other warnings.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { makeDirectory } from '../support/directories.ts';
import {
  type Given,
  LONG,
  NEEDED,
  problems,
  readGiven as read,
  VARIABLES,
} from '../support/settings.ts';
import { wordsOf } from '../support/words.ts';

const WORKERS = 'WORKERS was removed: run one process per container and add replicas.';
const PAUSES = 'list the pauses between attempts in WEBHOOK_RETRY_SCHEDULE, such as';

test('a removed variable is rejected with what to do instead, also as a file', () => {
  for (const [variable, problem] of [
    ['WORKERS', WORKERS],
    [
      'WEBHOOK_MAX_ATTEMPTS',
      `WEBHOOK_MAX_ATTEMPTS was removed: ${PAUSES} 5s,30s,2m for four attempts.`,
    ],
    ['WEBHOOK_BACKOFF_BASE_MS', `WEBHOOK_BACKOFF_BASE_MS was removed: ${PAUSES} 500ms,1s,2s.`],
  ] as const) {
    const file = `${variable}_FILE`;
    assert.deepEqual(problems({ [variable]: '1' }), [problem]);
    assert.deepEqual(problems({ [file]: '/tmp/one' }), [problem.replace(variable, file)]);
  }
  // Also by a command that does not serve.
  assert.deepEqual(problems({ WORKERS: '2' }, ['webhook'], 'administer'), [WORKERS]);
});

/** What is rejected as a misspelled variable. */
const SIMILAR: Readonly<Record<string, string>> = {
  SHARE_PAGE: 'SHARE_PAGES',
  SHARE_PAGE_FILE: 'SHARE_PAGES',
  DATABSE_URL: 'DATABASE_URL',
  IDENTITY_PROT: 'IDENTITY_PORT',
  SESSION_TLL: 'SESSION_TTL',
  SHUTDOWN_GRACES: 'SHUTDOWN_GRACE',
  // The words of a name in another number, order, abbreviation or case.
  TRUSTED_PROXY: 'TRUSTED_PROXIES',
  TRUSTED_PROXY_FILE: 'TRUSTED_PROXIES',
  PROXIES_TRUSTED: 'TRUSTED_PROXIES',
  PROXY_TRUSTED: 'TRUSTED_PROXIES',
  MAX_BODY_SIZE: 'MAX_BODY_BYTES',
  MAXIMUM_BODY_SIZE: 'MAX_BODY_BYTES',
  WEBHOOK_MAX_BODY_SIZE: 'WEBHOOK_MAX_BODY_BYTES',
  MIN_PASSWORD_LENGTH: 'PASSWORD_MIN_LENGTH',
  SERVER_SECRET_PREV: 'SERVER_SECRET_PREVIOUS',
  AUTH_PREVIOUS_TOKENS: 'AUTH_TOKEN_PREVIOUS',
  FIRST_CREDENTIAL_DIRECTORY: 'FIRST_CREDENTIALS_DIR',
  log_level: 'LOG_LEVEL',
};

test('a misspelled variable is rejected with the one that is meant, and without its value', () => {
  for (const [name, meant] of Object.entries(SIMILAR)) {
    const said = `${name} is not a variable of Gatehouse. Did you mean ${meant}? If not, remove it, or add it to IGNORE_VARIABLES.`;
    assert.deepEqual(problems({ [name]: 'marked' }), [said]);
    assert.deepEqual(problems({ [name]: 'marked', IGNORE_VARIABLES: `OTHER, ${name}` }), []);
  }
  // A byte order mark is shown.
  assert.match(
    problems({ '\ufeffLOG_LEVEL': 'info' }).join(),
    /^\\ufeffLOG_LEVEL is not .* LOG_LEVEL\?/,
  );
});

/** Of Express, Django, Flask, Rails, Laravel, PHP, Strapi and others. */
const USUAL = wordsOf(`
  SESSION_SECRET SESSION_TIMEOUT SESSION_DRIVER SESSION_LIFETIME SESSION_DOMAIN SESSION_KEY
  SECRET_KEY SECRET_KEY_BASE SECRET_TOKEN WEBHOOK_URL WEBHOOK_SECRET_KEY WEBHOOK_PATH WEBHOOK_KEY
  PASSWORD_SALT PASSWORD_HASH PASSWORD_RESET_TIMEOUT LOGLEVEL DATABASE_URI DATABASE_SSL APPNAME
  AUDIT_LOG IDENTITY_PROVIDER LINK_URL IDENTITY_OF_OTHERS SECRETS_OF_OTHERS RECEIPT_OF_OTHERS`);
const UNLIKE = wordsOf(`
  DATABASE_HOST DATABASE_NAME DATABASE_USER DB_URL LOG_FILE LOG_DIR ADMIN_USER APP_ENV APP_KEY
  APP_URL HTTP_PORT SITE_URL TRUST_PROXY TRUSTED_HOSTS MAX_UPLOAD_SIZE METRICS_PATH JWT_SECRET
  COOKIE_SECRET COOKIE_NAME AUTH_SECRET AUTH_URL SERVER_NAME SERVER_URL SERVER_PORT SHUTDOWN_TIMEOUT
  REDIS_URL SMTP_HOST CORS_ORIGIN ALLOWED_ORIGINS BASE_URL PGHOST POSTGRES_PASSWORD HOSTNAME
  SESSION_MANAGER HOME HOSTS HOSE PORTS POST`);

test('a variable of another program is at most a warning', () => {
  const warningOf = (name: string) =>
    `${name} is not a variable of Gatehouse and has no effect. If another program needs it, add it to IGNORE_VARIABLES.`;
  const given = Object.fromEntries([...USUAL, ...UNLIKE].map((name) => [name, 'x']));
  assert.deepEqual([...read(given).warnings].sort(), USUAL.map(warningOf).sort());
  assert.deepEqual(read({ ...given, IGNORE_VARIABLES: USUAL.join() }).warnings, []);
});

const LINK = 'tcp://10.0.0.1:3000';
const FOREIGN: ReadonlyArray<readonly [given: Given, problem?: string]> = [
  [{ SHARE_PAGE: '', WORKERS: '' }],
  // The service links of Kubernetes.
  [{ IDENTITY_SERVICE_HOST: '10.0.0.1', IDENTITY_SERVICE_PORT_HTTP: '3000' }],
  [{ IDENTITY_PORT_3000_TCP: LINK, IDENTITY_PORT_3000_TCP_ADDR: '10.0.0.1' }],
  [{ SECRETS_SERVICE_HOST: '10.0.0.2', WEBHOOK_PORT_8000_TCP_PROTO: 'tcp' }],
  ...['IDENTITY_PORT', 'SECRETS_PORT', 'WEBHOOK_PORT', 'METRICS_PORT'].map((name) => {
    const said =
      'must be a port number, not a Kubernetes service link; set enableServiceLinks: false in the pod.';
    return [{ [name]: LINK }, `${name} ${said}`] as const;
  }),
];

test('what Kubernetes sets is ignored, or rejected with advice, and so is an empty variable', () => {
  for (const [given, ...expected] of FOREIGN) assert.deepEqual(problems(given), expected);
});

const place = makeDirectory({ after }, 'config');
function file(content: string | Buffer): string {
  const path = join(place, 'value');
  writeFileSync(path, content);
  return path;
}
const ofFile = (name: string, path: string) =>
  problems({ [name]: undefined, [`${name}_FILE`]: path });

test('NAME_FILE sets every NAME, and both together are rejected', () => {
  for (const name of Object.keys(VARIABLES)) {
    const missing = `${name}_FILE names a file that cannot be read (ENOENT).`;
    assert.ok(ofFile(name, join(place, 'nowhere')).includes(missing), name);
    const both = problems({ [name]: 'anything', [`${name}_FILE`]: file('anything') });
    assert.ok(both.includes(`${name} and ${name}_FILE are both set; remove one of them.`), name);
  }
  // A problem does not hide that of a variable with the same prefix.
  const found = ofFile('SERVER_SECRET_PREVIOUS', join(place, 'nowhere'));
  assert.deepEqual([found.length, problems({ SERVER_SECRET: undefined }).length], [1, 1]);
});

/** What editors, shells and files of variables leave at the ends of a value. */
const ENDS = ['', '\n', '\r\n', '\r'];

test('a byte order mark and one line end are no part of a value, nor of a file', () => {
  for (const content of ENDS.flatMap((end) => [LONG + end, `\ufeff${LONG}${end}`])) {
    const path = file(content);
    for (const given of [
      { SERVER_SECRET: content, ADMIN_PASSWORD: content },
      { SERVER_SECRET: undefined, SERVER_SECRET_FILE: path, ADMIN_PASSWORD_FILE: path },
      { SERVER_SECRET: undefined, SERVER_SECRET_FILE: ` ${path}\r\n`, ADMIN_PASSWORD_FILE: path },
    ]) {
      const { identity, secrets } = read(given);
      const values = [secrets?.serverSecret, identity?.admin.password];
      assert.deepEqual(values, [LONG, LONG], JSON.stringify(content));
    }
  }
});

test('spaces around a value are not meant; around a secret or a password they are refused', () => {
  for (const [before, after] of [
    [' ', ''],
    ['\t', '\n\n'],
    ['\u00a0', '\u3000'],
    ['', ' \r\n'],
  ] as const) {
    const wrap = (text: string) => before + text + after;
    const { LOG_LEVEL, SITE_NAME, webhook, identity } = read({
      LOG_LEVEL: wrap('warn'),
      PORT: wrap('4096'),
      TRUSTED_PROXIES: wrap('10.0.0.1'),
      SIGNIN_PAGES: wrap('on'),
      SIGNIN_ORIGIN: wrap('https://login.example.org'),
      SITE_NAME: wrap('Our site'),
      DATABASE_URL: wrap(NEEDED.DATABASE_URL),
    });
    assert.deepEqual(
      [LOG_LEVEL, SITE_NAME, webhook?.port, identity?.portal?.origin, identity?.database.database],
      ['warn', 'Our site', 4096, 'https://login.example.org', 'gatehouse'],
    );
    assert.deepEqual(problems({ SERVER_SECRET: wrap(LONG), ADMIN_PASSWORD: wrap(LONG) }), [
      'ADMIN_PASSWORD must be a text without spaces around it.',
      'SERVER_SECRET must be a text without commas, and without spaces around it.',
    ]);
  }
});

test('a value in quotation marks is refused with the reason, whatever the variable', () => {
  const quoted = (name: string) =>
    `${name} is in quotation marks. Remove them: "docker --env-file", for example, makes them a part of the value.`;
  for (const name of wordsOf(
    'DATABASE_URL SERVER_SECRET SITE_NAME ADMIN_PASSWORD PORT LOG_LEVEL',
  )) {
    for (const text of ['"a value"', "'a value'", ' "a value"\r\n', '""', '"a", "b"']) {
      assert.deepEqual(problems({ [name]: text }), [quoted(name)], text);
      assert.deepEqual(ofFile(name, file(text)), [quoted(name)], text);
    }
    assert.ok(ofFile(name, '"/run/x"').includes(quoted(`${name}_FILE`)));
  }
  const { SITE_NAME } = read({ SITE_NAME: 'The "Gate\'s" house"' });
  assert.equal(SITE_NAME, 'The "Gate\'s" house"');
});

const NOT_UTF8 = /^SERVER_SECRET_FILE names a file that is not UTF-8\.$/;
const CONTENTS: ReadonlyArray<readonly [content: string | Buffer, said: RegExp]> = [
  ...['', '\n', '\r\n'].map((content) => [content, /^SERVER_SECRET must be set/] as const),
  [Buffer.from('fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0', 'hex'), NOT_UTF8],
  // As "echo … > file" writes it in Windows PowerShell.
  [Buffer.from(`\ufeff${LONG}\r\n`, 'utf16le'), NOT_UTF8],
];

test('an empty file counts as unset, and a directory or bytes that are no text are rejected', () => {
  for (const [content, said] of CONTENTS)
    assert.match(ofFile('SERVER_SECRET', file(content)).join(), said);
  const directory = 'AUTH_TOKEN_FILE names a file that cannot be read (EISDIR).';
  assert.ok(ofFile('AUTH_TOKEN', place).includes(directory));
});

test('a secret of fewer than 16 characters is an error unless ALLOW_WEAK_SECRETS is on', () => {
  const weak = {
    SERVER_SECRET: 'b',
    AUTH_TOKEN: 'a',
    AUTH_TOKEN_PREVIOUS: `${LONG},${'a'.repeat(15)}`,
    WEBHOOK_SECRET: 'c'.repeat(15),
    WEBHOOK_TOKEN: 'd',
  };
  const command = 'openssl rand -hex 32';
  const advice = `make a long random one with: ${command}. Only for tests, ALLOW_WEAK_SECRETS=on accepts it.`;
  const names = Object.keys(weak);
  const expected = names.map((name) => `${name} has fewer than 16 characters; ${advice}`);
  assert.deepEqual([...problems(weak)].sort(), expected.sort());
  assert.deepEqual(problems({ ...weak, ALLOW_WEAK_SECRETS: 'on' }), []);
  const advised = execFileSync('sh', ['-c', command], { encoding: 'utf8' }).trim();
  for (const name of [...names, 'IDENTITY_SECRET'])
    for (const secret of ['a'.repeat(16), advised])
      assert.deepEqual(problems({ [name]: secret }), [], name);
});

const SEALING = ['SERVER_SECRET', 'WEBHOOK_SECRET', 'IDENTITY_SECRET'];
const remote = 'postgres://u@db.example/d';
const WARNED: ReadonlyArray<readonly [given: Given, ...warnings: RegExp[]]> = [
  ...[...SEALING, 'AUTH_TOKEN', 'WEBHOOK_TOKEN'].flatMap((name) => [
    [{ [name]: 'a'.repeat(31) }, new RegExp(`^${name} has fewer than 32 characters`)] as const,
    [{ [name]: 'a'.repeat(32) }] as const,
  ]),
  ...SEALING.map((name) => {
    const previous = `${name}_PREVIOUS`;
    const said = new RegExp(`^${previous} has fewer than 32 characters`);
    return [{ [name]: LONG, [previous]: `${LONG},b` }, said] as const;
  }),
  [
    { ALLOW_WEAK_SECRETS: 'on', AUTH_TOKEN: 'a' },
    /^ALLOW_WEAK_SECRETS is/,
    /^AUTH_TOKEN has fewer/,
  ],
  // Once for all services.
  [{ DATABASE_URL: remote }, /database at db\.example:5432 may be unencrypted/],
  [{ DATABASE_URL: `${remote}?sslmode=disable` }, /database at db\.example:5432 is not encrypted/],
  [{ DATABASE_URL: 'postgres://u@localhost,db.example/d' }, /database at db\.example:5432 may/],
  [{ DATABASE_URL: `${remote}?sslmode=require` }],
  [{ WEBHOOK_DATABASE_URL: remote }, /may be unencrypted/],
  [{ WEBHOOK_VARIANT: 'plain' }, /accepts events from anyone/],
  [{ WEBHOOK_VARIANT: 'plain', WEBHOOK_TOKEN: LONG }],
  ...wordsOf('ln=4,r=8,p=1 ln=13,r=8,p=9 ln=12,r=8,p=20 ln=15,r=8,p=2').map(
    (cost) =>
      [{ PASSWORD_SCRYPT: cost }, /^PASSWORD_SCRYPT is below the minimum of OWASP/] as const,
  ),
  ...wordsOf('ln=13,r=8,p=10 ln=14,r=8,p=5 ln=15,r=8,p=3 ln=16,r=8,p=2 ln=17,r=8,p=1').map(
    (cost) => [{ PASSWORD_SCRYPT: cost }] as const,
  ),
];

test('an operator is warned of weak secrets and hashes, and of a connection that others can read', () => {
  for (const [given, ...expected] of WARNED) {
    const { warnings } = read(given);
    assert.equal(warnings.length, expected.length, warnings.join('\n'));
    for (const [index, said] of expected.entries()) assert.match(warnings[index] ?? '', said);
  }
});
