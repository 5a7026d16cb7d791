import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { FirstValue } from '../../../scripts/first-values.ts';
import { origin, pagesOf, readAddresses, summary } from '../../../scripts/summary.ts';

const CLI = 'node dist/cli.js';
const awkward = `o'neil "x" $HOME \`id\` \\`;

/** The arguments that a shell would give to curl, command by command. */
function paste(text: string, env: Record<string, string> = {}): string[][] {
  const lines = text.split('\n').filter((line) => line.startsWith('  curl '));
  return lines.map((line) => {
    const shell = spawnSync('sh', ['-c', `curl() { printf '%s\\n' "$@"; }\n${line}`], {
      env: { PATH: process.env.PATH, ...env },
      encoding: 'utf8',
    });
    assert.equal(shell.stderr, '');
    return shell.stdout.trimEnd().split('\n');
  });
}

function values(make: (variable: string) => FirstValue): Parameters<typeof summary>[2] {
  return {
    serverSecret: make('SERVER_SECRET'),
    identitySecret: make('IDENTITY_SECRET'),
    token: make('AUTH_TOKEN'),
    password: make('ADMIN_PASSWORD'),
    webhookToken: make('WEBHOOK_TOKEN'),
    webhookSecret: make('WEBHOOK_SECRET'),
  };
}

const made = values((variable) => ({
  variable,
  given: 'nowhere',
  file: 'unused',
  value: `the ${variable}`,
}));

const json = ['-H', 'Content-Type: application/json'];
const expected = [
  [
    '-s',
    'http://127.0.0.1:3000/api/auth/login',
    ...json,
    '-d',
    JSON.stringify({ username: awkward, password: 'the ADMIN_PASSWORD' }),
  ],
  [
    '-s',
    'http://127.0.0.1:8080/api/store/encrypt',
    '-H',
    'Authorization: Bearer the AUTH_TOKEN',
    ...json,
    '-d',
    '{"password":"hunter2 is not enough"}',
  ],
  [
    '-s',
    'http://127.0.0.1:8000/webhook',
    '-H',
    'Authorization: Bearer the WEBHOOK_TOKEN',
    ...json,
    '-d',
    '{"event":"page.updated","data":{"page_id":"42"}}',
  ],
];

test('the printed commands work with any value', () => {
  assert.deepEqual(paste(summary(readAddresses({}), awkward, made, CLI, true)), expected);
});

test('an invalid port counts as unset, so that no address is made of it', () => {
  for (const port of ['abc', '70000', '-1', ' 80']) {
    const invalid = { IDENTITY_PORT: port, SECRETS_PORT: port, WEBHOOK_PORT: port, PORT: port };
    assert.deepEqual(readAddresses(invalid), readAddresses({}));
  }
  assert.equal(readAddresses({ PORT: '90', WEBHOOK_PORT: 'abc' }).webhook.port, 90);
  assert.equal(readAddresses({ IDENTITY_PORT: '90' }).identity.port, 90);
});

test('a given value is not printed but referenced', (t) => {
  const variables = ['ADMIN_PASSWORD', 'AUTH_TOKEN', 'WEBHOOK_TOKEN'];
  const given = summary(
    readAddresses({}),
    awkward,
    values((variable) => ({ variable, given: 'value' })),
    CLI,
    false,
  );
  assert.deepEqual(
    paste(given, Object.fromEntries(variables.map((name) => [name, `the ${name}`]))),
    expected,
  );

  const directory = mkdtempSync(join(tmpdir(), 'gatehouse-summary-'));
  t.after(() => rmSync(directory, { recursive: true }));
  for (const name of variables) writeFileSync(join(directory, name), `the ${name}\n`);
  const inFiles = summary(
    readAddresses({}),
    awkward,
    values((variable) => ({ variable, given: 'file' })),
    CLI,
    false,
  );
  assert.match(inFiles, /bearer token from AUTH_TOKEN_FILE\n/);
  assert.deepEqual(
    paste(
      inFiles,
      Object.fromEntries(variables.map((name) => [`${name}_FILE`, join(directory, name)])),
    ),
    expected,
  );
});

test('without a generated or given first password, the summary says how to set one', () => {
  const text = summary(readAddresses({}), 'admin', { ...made, password: null }, CLI, false);
  assert.match(
    text,
    /administrator admin, with the password that was chosen; to set another: node dist\/cli\.js user password admin\n/,
  );
  assert.deepEqual(
    paste(text, { ADMIN_PASSWORD: 'mine' })[0]?.at(-1),
    '{"username":"admin","password":"mine"}',
  );
});

test('the summary names the pages that are on, and no other', () => {
  const text = (env: Record<string, string>) =>
    summary(readAddresses(env), 'admin', made, CLI, true, pagesOf(env, readAddresses(env), CLI));
  assert.doesNotMatch(text({ SHARE_PAGES: 'off' }), /pages|inbox|Open/);
  const all = text({ SIGNIN_PAGES: 'on', SHARE_PAGES: 'on', INBOX_PAGE: 'on', SECRETS_PORT: '81' });
  assert.match(
    all,
    /^ {2}Open http:\/\/localhost:3000\/login and sign in as admin with the first password the ADMIN_PASSWORD\.$/m,
  );
  assert.match(all, /^ {12}sign-in pages at http:\/\/localhost:3000\/login$/m);
  assert.match(all, /^ {12}share pages at http:\/\/localhost:81\/$/m);
  assert.match(
    all,
    /^ {12}inbox at http:\/\/localhost:8000\/inbox; for its token: node dist\/cli\.js token create --role operator --name me$/m,
  );
});

test('the printed addresses are those of the services', () => {
  const origins = (env: Record<string, string>) => Object.values(readAddresses(env)).map(origin);
  assert.deepEqual(origins({}), [
    'http://127.0.0.1:3000',
    'http://127.0.0.1:8080',
    'http://127.0.0.1:8000',
  ]);
  assert.deepEqual(
    origins({
      IDENTITY_PORT: '1',
      SECRETS_HOST: '::1',
      SECRETS_PORT: '2',
      HOST: '0.0.0.0',
      PORT: '3',
      WEBHOOK_HOST: '10.0.0.1',
    }),
    ['http://127.0.0.1:1', 'http://[::1]:2', 'http://10.0.0.1:3'],
  );
  assert.deepEqual(origins({ PORT: '3', WEBHOOK_PORT: '4' })[2], 'http://127.0.0.1:4');
});
