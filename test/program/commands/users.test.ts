/** What `transcripts/users.txt` cannot have: commands at once, and bytes that are no text. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertRefused, runCommand } from '../../support/commands.ts';
import { createDatabase } from '../../support/database.ts';

const { url, sql } = await createDatabase();

const create = (email: string, input: Buffer) =>
  runCommand(
    ['user', 'create', '--username', 'race', '--email', email, '--password-stdin'],
    { DATABASE_URL: url, PASSWORD_SCRYPT: 'ln=4,r=8,p=1' },
    input,
  );

test('of users created at once under one name, exactly one is stored', async () => {
  const emails = ['1@example.org', '2@example.org', '3@example.org'];
  const finished = await Promise.all(
    emails.map((email) => create(email, Buffer.from('a passphrase for tests'))),
  );
  assert.deepEqual(finished.map(({ code }) => code).sort(), [0, 1, 1]);
  assert.equal((await sql`select from identity.users`).length, 1);
});

test('a password that is no UTF-8 text is rejected', async () => {
  const input = Buffer.from('fffefdfcfbfaf9f8f7f6f5f4', 'hex');
  assertRefused(await create('4@example.org', input), 2, /UTF-8/);
  assert.equal((await sql`select from identity.users`).length, 1);
});
