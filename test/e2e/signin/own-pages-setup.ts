/** Share pages and inbox behind the sign-in, as the documented configuration puts them there. */
import assert from 'node:assert/strict';
import { after } from 'node:test';
import type { Sql } from 'postgres';
import { createDatabase } from '../../support/database.ts';
import { startGatehouse } from '../../support/gatehouse.ts';
import { addOperator, putEvent } from '../../support/inbox.ts';
import { setViewport } from '../browser/accessibility.ts';
import type { Browser } from '../browser/webdriver.ts';
import { type ProxyName, type SigninSetup, startSignin, sessionCookie } from './setup.ts';

export const SHARE = 'https://share.example.org';
export const INBOX = 'https://inbox.example.org';
export interface OwnPages {
  readonly proxy: ProxyName;
  readonly setup: SigninSetup;
  readonly browser: Browser;
  /** Of the database of secrets and webhook. */
  readonly sql: Sql;
  /** Of the services themselves, without the proxy. */
  readonly ports: { readonly secrets: number; readonly webhook: number };
  /** The id of the event in the inbox. */
  readonly event: string;
}

export async function startOwnPages(proxy: ProxyName): Promise<OwnPages> {
  const { url: databaseUrl, sql } = await createDatabase();
  const services = await startGatehouse({ after }, ['secrets', 'webhook'], databaseUrl, {
    TRUSTED_PROXIES: '127.0.0.1',
    TRUSTED_USER_HEADER: 'X-Auth-Username',
    SHARE_PAGES: 'on',
    GATEHOUSE_URL: SHARE,
    INBOX_PAGE: 'on',
    INBOX_USERS: 'alice',
    WEBHOOK_COMMAND: '["/bin/true"]',
    WEBHOOK_EVENTS: 'none',
  });
  await addOperator(sql);
  const event = await putEvent(sql, { event: 'for alice', status: 'dead' });
  const portOf = (url: string) => Number(new URL(url).port);
  const ports = { secrets: portOf(services.url.secrets), webhook: portOf(services.url.webhook) };
  const setup = await startSignin(
    proxy,
    { RETURN_ORIGINS: `${SHARE},${INBOX}` },
    {
      part: 'Share pages and inbox behind the sign-in',
      hosts: ['share', 'inbox', 'login'],
      addresses: {
        '127.0.0.1:8080': `127.0.0.1:${ports.secrets}`,
        '127.0.0.1:8000': `127.0.0.1:${ports.webhook}`,
      },
    },
  );
  const { browser } = setup;
  await setup.addMember({ username: 'alice' });
  await setup.addMember({ username: 'mallory' });
  await setViewport(browser, 'desktop');
  return { proxy, setup, browser, sql, ports, event };
}

export const secretsStored = async ({ sql }: OwnPages) =>
  (await sql`select from secrets.secrets`).length;
export const isPaused = async ({ sql }: OwnPages) =>
  (await sql`select from webhook.pause`).length === 1;

/** Opens a page, which leads to the sign-in, and signs in. */
export async function openAs(
  { browser, setup }: OwnPages,
  username: string,
  address: string,
): Promise<void> {
  await browser.open(address);
  assert.equal(await browser.title(), 'Sign in');
  await setup.enterPassword(username);
  await browser.until(`location.href === ${JSON.stringify(address)}`);
}

/** The session's cookie, as a client sends it that is no browser. */
export async function cookieOf(
  pages: OwnPages,
  username: string,
): Promise<readonly [string, string]> {
  const { browser } = pages;
  await browser.deleteCookies();
  await openAs(pages, username, `${SHARE}/`);
  return sessionCookie(browser, SHARE);
}

export async function endSessions({ setup }: OwnPages): Promise<void> {
  await setup.sql`update identity.sessions set revoked = true`;
}
