/** Unknown, removed and foreign variables. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertRefused, runCommand } from '../support/commands.ts';
import { variables } from '../support/gatehouse.ts';
import { buildProgram, runProgram } from '../support/process.ts';
import { problems, readGiven, SERVICES } from '../support/settings.ts';
import { wordsOf } from '../support/words.ts';

const program = buildProgram();
const VALID = variables('postgres://user:word@localhost:5432/gatehouse');
const warnings = (given: Readonly<Record<string, string>>) => [...readGiven(given).warnings];

const SHARE_PAGE =
  'SHARE_PAGE is not a variable of Gatehouse. Did you mean SHARE_PAGES? If not, remove it, or add it to IGNORE_VARIABLES.';
const WORKERS = 'WORKERS was removed: run one process per container and add replicas.';
const LIST_PAUSES = 'list the pauses between attempts in WEBHOOK_RETRY_SCHEDULE, such as';
const MAX_ATTEMPTS = `WEBHOOK_MAX_ATTEMPTS was removed: ${LIST_PAUSES} 5s,30s,2m for four attempts.`;
const BACKOFF = `WEBHOOK_BACKOFF_BASE_MS was removed: ${LIST_PAUSES} 500ms,1s,2s.`;

test('serve and commands exit with 78 and the remedy', async (t) => {
  for (const [variable, problem] of [
    ['SHARE_PAGE', SHARE_PAGE],
    ['WORKERS', WORKERS],
  ] as const) {
    const given = { ...VALID, [variable]: '2' };
    const served = await runProgram(t, program, ['serve', 'identity'], given);
    for (const finished of [served, await runCommand(['migrate', 'webhook'], given)])
      assertRefused(finished, 78, new RegExp(`^gatehouse: ${problem.replaceAll('?', '\\?')}\n$`));
  }
});

test('a removed variable is rejected with what to do instead, also as a file', () => {
  for (const [variable, problem] of [
    ['WORKERS', WORKERS],
    ['WEBHOOK_MAX_ATTEMPTS', MAX_ATTEMPTS],
    ['WEBHOOK_BACKOFF_BASE_MS', BACKOFF],
  ] as const) {
    const file = `${variable}_FILE`;
    assert.deepEqual(problems({ [variable]: '1' }), [problem]);
    assert.deepEqual(problems({ [file]: '/tmp/one' }), [problem.replace(variable, file)]);
  }
});

const similar: ReadonlyArray<readonly [name: string, meant: string]> = [
  ['SHARE_PAGE', 'SHARE_PAGES'],
  ['SHARE_PAGE_FILE', 'SHARE_PAGES'],
  ['DATABSE_URL', 'DATABASE_URL'],
  ['TRUSTED_PROXYS', 'TRUSTED_PROXIES'],
  ['IDENTITY_PROT', 'IDENTITY_PORT'],
  ['SESSION_TLL', 'SESSION_TTL'],
  ['SHUTDOWN_GRACES', 'SHUTDOWN_GRACE'],
  // The words of a name in another number, order, abbreviation or case.
  ['TRUSTED_PROXY', 'TRUSTED_PROXIES'],
  ['TRUSTED_PROXY_FILE', 'TRUSTED_PROXIES'],
  ['PROXIES_TRUSTED', 'TRUSTED_PROXIES'],
  ['PROXY_TRUSTED', 'TRUSTED_PROXIES'],
  ['MAX_BODY_SIZE', 'MAX_BODY_BYTES'],
  ['MAXIMUM_BODY_SIZE', 'MAX_BODY_BYTES'],
  ['WEBHOOK_MAX_BODY_SIZE', 'WEBHOOK_MAX_BODY_BYTES'],
  ['MIN_PASSWORD_LENGTH', 'PASSWORD_MIN_LENGTH'],
  ['SERVER_SECRET_PREV', 'SERVER_SECRET_PREVIOUS'],
  ['AUTH_PREVIOUS_TOKENS', 'AUTH_TOKEN_PREVIOUS'],
  ['FIRST_CREDENTIAL_DIRECTORY', 'FIRST_CREDENTIALS_DIR'],
  ['log_level', 'LOG_LEVEL'],
];

for (const [name, meant] of similar) {
  test(`${name} is rejected as a misspelled ${meant}`, () => {
    const [problem, ...others] = problems({ [name]: 'on' });
    assert.ok(
      problem?.startsWith(`${name} is not a variable of Gatehouse. Did you mean ${meant}?`),
      problem,
    );
    assert.deepEqual(others, []);
  });
}

const warningOf = (name: string) =>
  `${name} is not a variable of Gatehouse and has no effect. If another program needs it, add it to IGNORE_VARIABLES.`;

test('an unknown variable with one of the prefixes causes a warning', () => {
  const prefixes = wordsOf('IDENTITY SECRETS SECRET WEBHOOK SESSION PASSWORD RECEIPT AUDIT');
  for (const name of prefixes.map((prefix) => `${prefix}_OF_SOMEBODY_ELSE`))
    assert.deepEqual(warnings({ [name]: 'x' }), [warningOf(name)]);
});

/** Of Express, Django, Flask, Rails, Laravel, PHP, Strapi and others. */
const USUAL =
  `SESSION_SECRET SESSION_TIMEOUT SESSION_DRIVER SESSION_LIFETIME SESSION_DOMAIN SESSION_KEY
  SECRET_KEY SECRET_KEY_BASE SECRET_TOKEN WEBHOOK_URL WEBHOOK_SECRET_KEY WEBHOOK_PATH WEBHOOK_KEY
  PASSWORD_SALT PASSWORD_HASH PASSWORD_RESET_TIMEOUT LOGLEVEL DATABASE_URI DATABASE_SSL APPNAME
  AUDIT_LOG IDENTITY_PROVIDER LINK_URL`.split(/\s+/);
const UNLIKE =
  `DATABASE_HOST DATABASE_NAME DATABASE_USER DB_URL LOG_FILE LOG_DIR ADMIN_USER APP_ENV APP_KEY
  APP_URL HTTP_PORT SITE_URL TRUST_PROXY TRUSTED_HOSTS MAX_UPLOAD_SIZE METRICS_PATH JWT_SECRET
  COOKIE_SECRET COOKIE_NAME AUTH_SECRET AUTH_URL SERVER_NAME SERVER_URL SERVER_PORT SHUTDOWN_TIMEOUT
  REDIS_URL SMTP_HOST CORS_ORIGIN ALLOWED_ORIGINS BASE_URL PGHOST POSTGRES_PASSWORD HOSTNAME`.split(
    /\s+/,
  );

test('a variable of another program is at most a warning', () => {
  const given = Object.fromEntries([...USUAL, ...UNLIKE].map((name) => [name, 'x']));
  assert.deepEqual(warnings(given).sort(), USUAL.map(warningOf).sort());
  const ignored = warnings({ ...given, IGNORE_VARIABLES: USUAL.join() });
  assert.deepEqual(ignored, []);
});

test('a byte order mark before a name is shown', () => {
  const [problem] = problems({ '\ufeffLOG_LEVEL': 'info' });
  assert.match(problem ?? '', /^\\ufeffLOG_LEVEL is not .* Did you mean LOG_LEVEL\?/);
});

test('the value of an unknown variable is not printed', () => {
  assert.ok(
    !problems({ SERVER_SECRETS: 'marked', WEBHOOK_TOKENS: 'marked' }).join('\n').includes('marked'),
  );
});

test('IGNORE_VARIABLES lists variables of other programs', () => {
  const given = { TRUSTED_PROXY: 'red', SHARE_PAGE: 'on' };
  assert.deepEqual(problems({ ...given, IGNORE_VARIABLES: 'SHARE_PAGE, TRUSTED_PROXY' }), []);
  assert.equal(problems({ ...given, IGNORE_VARIABLES: 'TRUSTED_PROXY' }).length, 1);
});

const foreign: ReadonlyArray<readonly [what: string, given: Readonly<Record<string, string>>]> = [
  [
    'SESSION_MANAGER, which desktops set',
    { SESSION_MANAGER: 'local/host:@/tmp/.ICE-unix/1,unix/host:/tmp/.ICE-unix/1' },
  ],
  ['HOME and other short names', { HOME: '/root', HOSTS: 'a', HOSE: 'b', PORTS: '1', POST: '2' }],
  ['an empty unknown variable', { SHARE_PAGE: '', WORKERS: '' }],
  [
    'the service links of Kubernetes',
    {
      IDENTITY_SERVICE_HOST: '10.0.0.1',
      IDENTITY_SERVICE_PORT: '3000',
      IDENTITY_SERVICE_PORT_HTTP: '3000',
      IDENTITY_PORT_3000_TCP: 'tcp://10.0.0.1:3000',
      IDENTITY_PORT_3000_TCP_ADDR: '10.0.0.1',
      SECRETS_SERVICE_HOST: '10.0.0.2',
      WEBHOOK_PORT_8000_TCP_PROTO: 'tcp',
    },
  ],
];

for (const [what, given] of foreign) {
  test(`${what}: ignored`, () => assert.deepEqual(problems(given), []));
}

for (const service of [...SERVICES, 'metrics']) {
  const name = `${service.toUpperCase()}_PORT`;
  test(`${name} is rejected with advice if Kubernetes sets it`, () => {
    assert.deepEqual(problems({ [name]: 'tcp://10.0.0.1:3000' }), [
      `${name} must be a port number, not a Kubernetes service link; set enableServiceLinks: false in the pod.`,
    ]);
  });
}
