/**
 * A sign-in at Apache in Chromium, through the real pages: their Content-Security-Policy, cookies
 * and scripts.
 */
import assert from 'node:assert/strict';
import { after, afterEach, test } from 'node:test';
import { PASSWORD } from '../../support/users.ts';
import { startBrowser } from '../browser/browsers.ts';
import { copyParties, PARTIES, startParty } from './parties.ts';
import { startReplicas } from './provider.ts';

const { mod_auth_openidc: party } = PARTIES;
assert.ok(party);
const provider = await startReplicas();
const { issuer } = provider;
const words = ['--id', 'wiki', '--name', 'The wiki', '--refresh', '--secret-stdin'];
const redirect = ['--redirect', 'http://127.0.0.1/app/redirect'];
const SECRET = 'a-secret-of-the-wiki-for-this-test-only';
const created = await provider.run(['client', 'create', ...words, ...redirect], SECRET);
assert.equal(created.code, 0, created.stderr);
const origin = await startParty({ after }, copyParties({ after }), party, {
  ISSUER: issuer,
  CLIENT_ID: 'wiki',
  CLIENT_SECRET: SECRET,
  SCOPE: 'openid profile email groups offline_access',
});
await provider.run(['client', 'set', 'wiki', '--logout-uri', `${origin}/out`]);
const { username } = await provider.enter({ first_name: 'Ada', groups: ['staff'] });
const browser = await startBrowser();
afterEach(async () => {
  assert.deepEqual(await browser.log(), []);
});

const { untilAt, untilTitle } = browser;
const shown = (): Promise<string> => browser.run('return document.body.innerText');

test('a person signs in, allows the program to know them, and signs out there', async () => {
  await browser.open(`${origin}/app/`);
  await untilTitle('Sign in');
  assert.match(await shown(), /Sign in to continue to The wiki\./);
  await browser.fill('username', username);
  await browser.fill('password', PASSWORD);
  await browser.clickOn('form[action="/login"] button[type=submit]');
  await untilTitle('Sign in to The wiki');
  await browser.clickOn('button[value=allow]');
  await untilAt(`${origin}/app/`);
  assert.match(await shown(), /"name":"Ada"/);

  await browser.open(`${origin}/app/redirect?logout=`);
  await untilAt(`${origin}/out`);
  await browser.open(`${issuer}/account`);
  await untilTitle('Sign in');
});
