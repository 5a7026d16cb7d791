/**
 * The token commands with wrong arguments, secrets or settings: exit code, one line, and no change.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { createToken } from '../../support/tokens.ts';
import { assertRefused, runCommand } from '../../support/commands.ts';
import { createEmptyDatabase } from '../../support/database.ts';
import { buildProgram } from '../../support/process.ts';
import { addToken, openWebhook, SIGNING_SECRETS, WEBHOOK_SECRET } from '../../support/senders.ts';

const program = buildProgram();
const file = await createEmptyDatabase();
const environment = { DATABASE_URL: file.url, WEBHOOK_SECRET };
const UNKNOWN = '00000000-0000-4000-8000-000000000000';

const run = (
  words: readonly string[],
  given: Readonly<Record<string, string>> = environment,
  input = '',
) => runCommand(['token', ...words], given, input);

function fileWith(secret: string | Buffer): string {
  const path = join(program, `${randomUUID()}.txt`);
  writeFileSync(path, secret);
  return path;
}
const good = fileWith(SIGNING_SECRETS.github);

test('without the schema every command says what to do', async () => {
  for (const words of [['create'], ['list'], ['revoke', UNKNOWN]])
    assertRefused(await run(words), 1, /migrate/);
  assert.equal((await runCommand(['migrate', 'webhook'], environment)).code, 0);
});

const state = async () =>
  JSON.stringify(
    await file.sql`select t::text as row from webhook.tokens t union all select s::text
      from webhook.signing_secrets s order by 1`,
  );

const database = openWebhook({ after }, file.url);

const WRONG: ReadonlyArray<readonly [words: readonly string[], said: RegExp]> = [
  [['create', 'word'], /token create: /],
  [['create', '--name'], /token create: Option '--name <value>' argument missing/],
  [['create', '--name', 'a\nb'], /--name takes at most 255 printable characters/],
  [['create', '--name', 'n'.repeat(256)], /--name takes at most 255 printable characters/],
  [['create', '--json'], /token create: Unknown option '--json'/],
  [['create', '--role', 'admin'], /role must be one of sender, operator/],
  [
    ['create', '--source', 'jira'],
    /source must be one of generic, standard, github, gitlab, gitea/,
  ],
  [['create', '--source', 'GitHub', '--signing-secret-file', good], /source must be one of/],
  [['create', '--source', '__proto__'], /source must be one of/],
  [
    ['create', '--role', 'operator', '--source', 'github', '--signing-secret-file', good],
    /an operator has no source/,
  ],
  [
    ['create', '--role', 'operator', '--signing-secret-file', good],
    /source generic is not signed; leave out --signing-secret-file/,
  ],
  [
    ['create', '--signing-secret-file', good],
    /source generic is not signed; leave out --signing-secret-file/,
  ],
  [
    ['create', '--source', 'generic', '--signing-secret-file', good],
    /source generic is not signed/,
  ],
  ...['standard', 'github', 'stripe', 'slack'].map(
    (source) =>
      [
        ['create', '--source', source],
        new RegExp(`source ${source} needs --signing-secret-file`),
      ] as const,
  ),
  [
    ['create', '--source', 'github', '--signing-secret-file', '/there/is/none'],
    /--signing-secret-file cannot be read \(ENOENT\)/,
  ],
  [
    ['create', '--source', 'github', '--signing-secret-file', '/'],
    /--signing-secret-file cannot be read \(EISDIR\)/,
  ],
  [
    ['create', '--source', 'github', '--signing-secret-file', fileWith(Buffer.alloc(32, 0xff))],
    /--signing-secret-file is not UTF-8 text/,
  ],
  [
    ['create', '--source', 'github', '--signing-secret-file', '-'],
    /not a signing secret of github; it is one line of at least 8 characters/,
  ],
  [
    ['create', '--source', 'github', '--signing-secret-file', fileWith('')],
    /not a signing secret of github/,
  ],
  [
    ['create', '--source', 'github', '--signing-secret-file', fileWith('1234567\n')],
    /not a signing secret of github/,
  ],
  [
    ['create', '--source', 'standard', '--signing-secret-file', fileWith('whsec_dG9vIHNob3J0')],
    /not a signing secret of standard/,
  ],
  [['list', 'word'], /token list: /],
  [['rotate'], /token rotate takes ID/],
  [['rotate', 'not-an-id'], /token rotate: ID must be a UUID from gatehouse token list/],
  [
    ['rotate', UNKNOWN, '--overlap', 'tomorrow'],
    /token rotate: --overlap must be a number of seconds, or a time such as 30s, 15m, 12h, 7d or 1w/,
  ],
  [['rotate', UNKNOWN, '--overlap', '-1'], /--overlap/],
  [['rotate', UNKNOWN, '--overlap=-1'], /--overlap must be a number of seconds/],
  [['rotate', UNKNOWN, '--overlap', '1.5h'], /--overlap must be a number of seconds/],
  [['rotate', UNKNOWN, '--overlap', ''], /--overlap must be a number of seconds/],
  [['confirm'], /token confirm takes ID/],
  [['confirm', 'not-an-id'], /token confirm: ID must be a UUID/],
  [['revoke'], /token revoke takes ID/],
  [['revoke', UNKNOWN, UNKNOWN], /token revoke takes ID/],
  [['revoke', 'x'.repeat(43)], /token revoke: ID must be a UUID/],
];

test('an id that is not a UUID is a usage error, even without tokens', async () => {
  for (const command of ['rotate', 'confirm', 'revoke'])
    assertRefused(await run([command, 'not-an-id']), 2, /ID must be a UUID/);
});

test('usage errors exit with 2 and one line, change nothing and do not repeat secrets', async () => {
  await addToken(database, 'generic', null);
  const before = await state();
  for (const [words, said] of WRONG) {
    const finished = await run(words);
    assertRefused(finished, 2, said);
    for (const secret of [SIGNING_SECRETS.github, '1234567', 'dG9v', 'xxxx'])
      assert.ok(!finished.stderr.includes(secret));
  }
  assert.equal(await state(), before);
});

test('an unknown token exits with 1, whatever the command', async () => {
  const before = await state();
  assertRefused(
    await run(['rotate', UNKNOWN]),
    1,
    /^gatehouse: no active token has this id; see: gatehouse token list\n$/,
  );
  assertRefused(
    await run(['rotate', UNKNOWN, '--signing-secret-file', good]),
    1,
    /no active token has this id/,
  );
  assertRefused(await run(['confirm', UNKNOWN]), 1, /no signing secret is pending/);
  assertRefused(await run(['revoke', UNKNOWN]), 1, /no token has this id/);
  assert.equal(await state(), before);
});

test('a signing secret is replaced only for a signed source, and only by one of its form', async () => {
  const generic = await addToken(database, 'generic', null);
  const standard = await addToken(database, 'standard', SIGNING_SECRETS.standard);
  const operator = await createToken(
    database,
    { name: '', role: 'operator', source: 'generic' },
    null,
  );
  const before = await state();
  for (const { id } of [generic, operator])
    assertRefused(
      await run(['rotate', id, '--signing-secret-file', good]),
      2,
      /source generic is not signed/,
    );
  assertRefused(
    await run(['rotate', standard.id, '--signing-secret-file', fileWith('whsec_dG9vIHNob3J0')]),
    2,
    /not a signing secret of standard/,
  );
  assert.equal(await state(), before);
});

test('without WEBHOOK_SECRET signing secrets exit with 78, and tokens work', async () => {
  const given = { DATABASE_URL: file.url };
  const { id } = await addToken(database, 'github', SIGNING_SECRETS.github);
  const before = await state();
  for (const words of [
    ['create', '--source', 'github', '--signing-secret-file', good],
    ['rotate', id, '--signing-secret-file', good],
    ['confirm', id],
  ]) {
    assertRefused(
      await run(words, given),
      78,
      /WEBHOOK_SECRET must be set to the value that the service has/,
    );
  }
  assert.equal(await state(), before);
  for (const words of [
    ['create'],
    ['create', '--source', 'notion'],
    ['list'],
    ['rotate', id],
    ['revoke', id],
  ])
    assert.equal((await run(words, given)).code, 0, words.join(' '));
});

test('without a database every command exits with 78', async () => {
  for (const words of [
    ['create'],
    ['list'],
    ['rotate', UNKNOWN],
    ['confirm', UNKNOWN],
    ['revoke', UNKNOWN],
  ])
    assertRefused(await run(words, { WEBHOOK_SECRET }), 78, /DATABASE_URL/);
});

test('an overlap that is too long is a usage error', async () => {
  const { id } = await addToken(database, 'generic', null);
  const before = await state();
  assertRefused(await run(['rotate', id, '--overlap', '9999999999d']), 2, /--overlap/);
  assert.equal(await state(), before);
});

test('a signing secret of several lines is rejected', async () => {
  const before = await state();
  for (const text of [
    `${SIGNING_SECRETS.github}\n\n`,
    `# from the dashboard\n${SIGNING_SECRETS.github}\n`,
  ]) {
    assertRefused(
      await run(['create', '--source', 'github', '--signing-secret-file', fileWith(text)]),
      2,
      /not a signing secret of github/,
    );
  }
  assert.equal(await state(), before);
});
