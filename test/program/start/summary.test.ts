/** What `make start` prints: commands that work as they are, and no secret that was given. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { FirstValue } from '../../../scripts/first-values.ts';
import { origin, pagesOf, readAddresses, summary } from '../../../scripts/summary.ts';
import { makeDirectory } from '../../support/directories.ts';

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

const values = (make: (variable: string) => FirstValue): Parameters<typeof summary>[2] => ({
  serverSecret: make('SERVER_SECRET'),
  identitySecret: make('IDENTITY_SECRET'),
  token: make('AUTH_TOKEN'),
  password: make('ADMIN_PASSWORD'),
  webhookToken: make('WEBHOOK_TOKEN'),
  webhookSecret: make('WEBHOOK_SECRET'),
});
const made = values((variable) => ({
  variable,
  given: 'nowhere',
  file: 'unused',
  value: `the ${variable}`,
}));
const summaryOf = (given: typeof made, isNew = false) =>
  summary(readAddresses({}), awkward, given, CLI, isNew);

const json = ['-H', 'Content-Type: application/json', '-d'];
const bearer = (token: string) => ['-H', `Authorization: Bearer the ${token}`];
const login = JSON.stringify({ username: awkward, password: 'the ADMIN_PASSWORD' });
const COMMANDS = [
  ['-s', 'http://127.0.0.1:3000/api/auth/login', ...json, login],
  [
    '-s',
    'http://127.0.0.1:8080/api/store/encrypt',
    ...bearer('AUTH_TOKEN'),
    ...json,
    '{"password":"hunter2 is not enough"}',
  ],
  [
    '-s',
    'http://127.0.0.1:8000/webhook',
    ...bearer('WEBHOOK_TOKEN'),
    ...json,
    '{"event":"page.updated","data":{"page_id":"42"}}',
  ],
];

test('the printed commands work with any value, and refer to one that was given', (t) => {
  assert.deepEqual(paste(summaryOf(made, true)), COMMANDS);
  const directory = makeDirectory(t, 'summary');
  const env: Record<string, string> = {};
  for (const name of ['ADMIN_PASSWORD', 'AUTH_TOKEN', 'WEBHOOK_TOKEN']) {
    env[name] = `the ${name}`;
    env[`${name}_FILE`] = join(directory, name);
    writeFileSync(join(directory, name), `the ${name}\n`);
  }
  const given = (place: 'value' | 'file') =>
    summaryOf(values((variable) => ({ variable, given: place })));
  for (const place of ['value', 'file'] as const)
    assert.deepEqual(paste(given(place), env), COMMANDS);
  assert.match(given('file'), /bearer token from AUTH_TOKEN_FILE\n/);
});

test('without a generated or given first password, the summary says how to set one', () => {
  const text = summaryOf({ ...made, password: null });
  const said = 'with the password that was chosen; to set another: node dist/cli.js user password';
  assert.ok(text.includes(said), text);
  const command = paste(text, { ADMIN_PASSWORD: 'mine' })[0]?.at(-1) ?? '';
  assert.deepEqual(JSON.parse(command), { username: awkward, password: 'mine' });
});

test('the summary names the pages that are on, and no other', () => {
  const text = (env: Record<string, string>) => {
    const at = readAddresses(env);
    return summary(at, 'admin', made, CLI, true, pagesOf(env, at, CLI));
  };
  assert.doesNotMatch(text({ SHARE_PAGES: 'off' }), /pages|inbox|Open/);
  const all = text({ SIGNIN_PAGES: 'on', SHARE_PAGES: 'on', INBOX_PAGE: 'on', SECRETS_PORT: '81' });
  assert.match(all, /^ +sign-in pages at http:\/\/localhost:3000\/login$/m);
  assert.match(all, /^ +share pages at http:\/\/localhost:81\/$/m);
  assert.match(all, /^ +inbox at http:\/\/localhost:8000\/inbox; for its token: .* token create /m);
});

test('the printed addresses are those of the services, and an invalid port counts as unset', () => {
  for (const [env, ...expected] of [
    [{}, '127.0.0.1:3000', '127.0.0.1:8080', '127.0.0.1:8000'],
    [{ PORT: '3', WEBHOOK_PORT: '4' }, '127.0.0.1:3000', '127.0.0.1:8080', '127.0.0.1:4'],
    [{ PORT: '90', WEBHOOK_PORT: 'abc' }, '127.0.0.1:3000', '127.0.0.1:8080', '127.0.0.1:90'],
    [
      { SECRETS_HOST: '::1', WEBHOOK_HOST: '10.0.0.1', HOST: '::', PORT: '70000' },
      '127.0.0.1:3000',
      '[::1]:8080',
      '10.0.0.1:8000',
    ],
  ] as const)
    assert.deepEqual(
      Object.values(readAddresses(env)).map(origin),
      expected.map((host) => `http://${host}`),
    );
});
