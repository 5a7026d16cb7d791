/** What browsers do to a sign-in behind a real nginx: fragments, the back button, and pictures. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { findProgram } from '../programs.ts';
import { APP, LOGIN, startSignin } from './setup.ts';

const setup = await startSignin('nginx');
const { browser } = setup;
const ADDRESS = `${APP}/dash?x=1#/view/42?y=a%20b`;
const untilAt = (address: string) => browser.until(`location.href === ${JSON.stringify(address)}`);

test('what follows "#" comes back after the sign-in, also after a second factor', async () => {
  const member = await setup.addMember();
  const secret = await setup.addApp(member);
  await browser.deleteCookies();
  await browser.open(ADDRESS);
  await setup.untilTitle('Sign in');
  await setup.enterPassword(member.username);
  await setup.passCode(secret);
  await untilAt(ADDRESS);
});

test('what follows "#" is kept where the browser is signed in already', async () => {
  const { username } = await setup.addMember();
  await browser.deleteCookies();
  await browser.open(`${LOGIN}/login`);
  await setup.enterPassword(username);
  await browser.until('location.pathname === "/account"');
  const query = new URLSearchParams({ return_to: `${APP}/dash?x=1` });
  await browser.open(`${LOGIN}/login?${query}#/view/42?y=a%20b`);
  await untilAt(ADDRESS);
});

test('the button for the last page shows no page of the account after a sign-out', async () => {
  const { username } = await setup.addMember();
  await browser.open(`${LOGIN}/login`);
  await setup.enterPassword(username);
  await browser.until('location.pathname === "/account"');
  await browser.clickOn('form[action="/logout"] button');
  await browser.until('location.pathname === "/login"');
  await browser.back();
  await browser.until('document.querySelector("#password")?.checkVisibility() === true');
  assert.doesNotMatch(await browser.run('return document.body.innerText'), new RegExp(username));
});

test('a reader of QR codes reads the key of the app', async () => {
  const member = await setup.addMember();
  await browser.open(`${LOGIN}/account/factors`);
  await setup.enterPassword(member.username);
  await browser.clickOn('form[action="/account/totp/start"] button');
  await browser.untilVisible('code');
  await browser.run('document.querySelector("svg").id = "picture"');
  const directory = mkdtempSync(join(tmpdir(), 'gatehouse-qr-'));
  try {
    const file = join(directory, 'qr.png');
    writeFileSync(file, await browser.screenshot('picture'));
    const uri = new URL(
      execFileSync(findProgram('zbarimg') ?? 'zbarimg', ['--quiet', '--raw', file], {
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'ignore'],
      }).trim(),
    );
    const shown = await browser.run('return document.querySelector("figcaption code").textContent');
    assert.equal(uri.protocol, 'otpauth:');
    assert.equal(uri.searchParams.get('secret'), shown.replaceAll(' ', ''));
    assert.equal(uri.searchParams.get('issuer'), 'Gatehouse');
  } finally {
    rmSync(directory, { recursive: true });
  }
});
