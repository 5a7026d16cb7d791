/** The page at `/`: who is signed in, and who is told which version runs. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { readVersion } from '../../../../src/platform/runtime/version.ts';
import { startPortal } from '../../../support/portal.ts';

const { sql, add, visit, signIn } = await startPortal({ after });
await add({ username: 'boss', super_admin: true });
await add({ username: 'ada' });
const headers = { accept: 'text/html' };
const open = async (cookie: string) => (await visit('/', { headers, cookie })).text;
const boss = await signIn('boss');
const ada = await signIn('ada');
const VERSION = `Gatehouse ${readVersion()} runs here.`;

test('strangers are led to the sign-in, and are not told which version runs', async () => {
  for (const cookie of ['', ada.domain, `__Host-gatehouse=${'x'.repeat(43)}`]) {
    const text = await open(cookie);
    assert.match(text, /href="\/login">Sign in</);
    assert.doesNotMatch(text, /signed in as|0\.\d\.\d/);
  }
});

test('a user is named, and an administrator is told which version runs', async () => {
  const own = await open(ada.host);
  assert.match(own, /You are signed in as ada\./);
  assert.match(own, /href="\/account">Your account</);
  assert.ok(!own.includes(VERSION));
  assert.ok((await open(boss.host)).includes(`You are signed in as boss. ${VERSION}`));
});

test('after the end of the session the page is that of a stranger', async () => {
  await sql`update identity.sessions set revoked = true`;
  assert.match(await open(boss.host), /href="\/login">Sign in</);
});

test('a program gets the error of an unknown path', async () => {
  assert.equal((await visit('/', { cookie: ada.host })).status, 404);
});
