/** Unknown, removed and foreign variables. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertRefused, runCommand } from '../support/commands.ts';
import { variables } from '../support/gatehouse.ts';
import { type Given, problems, readGiven } from '../support/settings.ts';
import { wordsOf } from '../support/words.ts';

const WORKERS = 'WORKERS was removed: run one process per container and add replicas.';
const PAUSES = 'list the pauses between attempts in WEBHOOK_RETRY_SCHEDULE, such as';

test('a removed variable is rejected with what to do instead, also as a file', async () => {
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
  const given = { ...variables('postgres://user:word@localhost:5432/gatehouse'), WORKERS: '2' };
  const refused = await runCommand(['migrate', 'webhook'], given);
  assertRefused(refused, 78, new RegExp(`^gatehouse: ${WORKERS}\n$`));
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
  assert.deepEqual([...readGiven(given).warnings].sort(), USUAL.map(warningOf).sort());
  assert.deepEqual(readGiven({ ...given, IGNORE_VARIABLES: USUAL.join() }).warnings, []);
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
