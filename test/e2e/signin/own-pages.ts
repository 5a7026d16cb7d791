/**
 * The documented configuration that puts share pages and inbox behind the sign-in: what every proxy
 * must pass.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { launch, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { addOperator, OPERATOR_TOKEN, putEvent } from '../../support/inbox.ts';
import { wordsOf } from '../../support/words.ts';
import { checkPage } from '../browser/accessibility.ts';
import {
  askProxy,
  deployed,
  type HeaderFields,
  NAVIGATION,
  type ProxyName,
} from '../nginx/setup.ts';
import { sessionCookie, startSignin } from './setup.ts';

const SHARE = 'https://share.example.org';
const INBOX = 'https://inbox.example.org';
const FILES = { nginx: 'nginx/pages.conf', caddy: 'caddy/pages.caddyfile' };
/** As the browser's own pages send it. */
const OWN_PAGE = ['Sec-Fetch-Site', 'same-origin'] as const;
const AS_ALICE = ['X-Auth-Username', 'alice'] as const;
const JSON_BODY = ['Content-Type', 'application/json'] as const;
const AS_SENDER = ['Authorization', `Bearer ${WEBHOOK_TOKEN}`] as const;
/** Whether the inbox lists its event. */
const SHOWS_LIST = 'document.getElementById("rows")?.innerText.includes("for alice")';

type OwnPages = Awaited<ReturnType<typeof startOwnPages>>;

/**
 * Share pages and inbox, an event for `alice`, who may use the inbox, and `mallory`, who may not.
 */
async function startOwnPages(proxy: ProxyName) {
  const services = await launch(['secrets', 'webhook'], {
    TRUSTED_PROXIES: '127.0.0.1',
    TRUSTED_USER_HEADER: 'X-Auth-Username',
    SHARE_PAGES: 'on',
    GATEHOUSE_URL: SHARE,
    INBOX_PAGE: 'on',
    INBOX_USERS: 'alice',
    WEBHOOK_COMMAND: '["/bin/true"]',
    WEBHOOK_EVENTS: 'none',
  });
  const { sql } = services;
  await addOperator(sql);
  const event = await putEvent(sql, { event: 'for alice', status: 'dead' });
  const portOf = (url: string) => Number(new URL(url).port);
  const setup = await startSignin(proxy, { RETURN_ORIGINS: `${SHARE},${INBOX}` }, ({ port }) =>
    deployed(FILES[proxy], {
      3000: port,
      8080: portOf(services.secrets),
      8000: portOf(services.webhook),
    }),
  );
  const { browser } = setup;
  for (const username of ['alice', 'mallory']) await setup.addMember({ username });
  /** Opens a page, which leads to the sign-in, and signs in. */
  const openAs = async (username: string, address: string) => {
    await browser.open(address);
    assert.equal(await browser.title(), 'Sign in');
    await setup.enterPassword(username);
    await setup.untilAt(address);
  };
  return {
    proxy,
    setup,
    browser,
    /** Of the database of secrets and webhook. */
    sql,
    event,
    openAs,
    /** The session's cookie, as a client sends it that is no browser. */
    async cookieOf(username: string) {
      await openAs(username, `${SHARE}/`);
      return sessionCookie(browser, SHARE);
    },
    countSecrets: async () => (await sql`select from secrets.secrets`).length,
    /** Ends the sign-in, or lets it go on as after another one. */
    setEnded: (isEnded: boolean) => setup.sql`update identity.sessions set revoked = ${isEnded}`,
    /** Asks one of the two hosts. */
    ask: (
      name: string,
      path: string,
      headers: HeaderFields,
      more: Readonly<{ method?: string; body?: string }> = {},
    ) => askProxy(setup, { host: `${name}.example.org`, path, headers, ...more }),
  };
}

export async function testOwnPages(proxy: ProxyName): Promise<void> {
  const pages = await startOwnPages(proxy);
  addPersonTests(pages);
  addHeaderTests(pages);
  addContentTests(pages);
  addEndTests(pages);
}

function addPersonTests({ browser, sql, openAs }: OwnPages): void {
  test('one sign-in opens share page and inbox without a token; a link opens without a sign-in', async () => {
    await openAs('alice', `${SHARE}/`);
    await browser.untilText('person', /^alice$/);
    assert.equal(await browser.isVisible('token'), false);
    await browser.fill('secret', 'confidential');
    await browser.click('submit');
    await browser.untilVisible('made');
    const link = await browser.value('link');
    assert.ok(link.startsWith(`${SHARE}/s/`));
    const [row] = await sql`select creator from secrets.secrets order by created_at desc limit 1`;
    assert.equal(row?.creator, 'user:alice');
    await browser.open(`${INBOX}/inbox`);
    await browser.until(SHOWS_LIST);
    await browser.click('pause');
    await browser.untilText('held', /paused since .* by alice\./);
    await browser.click('pause');
    await browser.until('document.getElementById("held").hidden');
    await browser.deleteCookies();
    await browser.open(link);
    await browser.untilVisible('submit');
    await browser.click('submit');
    await browser.untilVisible('revealed');
    assert.equal(await browser.value('text'), 'confidential');
  });

  test('a person whom INBOX_USERS does not list makes links and does not get the inbox', async () => {
    await openAs('mallory', `${INBOX}/inbox`);
    await browser.untilVisible('signin');
    const refusal = /^You are signed in as mallory, who may not use the inbox\./;
    await browser.untilText('visitor', refusal);
    assert.equal(await browser.isVisible('list'), false);
    await browser.open(`${SHARE}/`);
    await browser.untilText('person', /^mallory$/);
    // Only the cookie counts for the proxy: an operator's token still reaches the service.
    await browser.open(`${INBOX}/inbox`);
    await browser.fill('token', OPERATOR_TOKEN);
    await browser.click('open');
    await browser.until(SHOWS_LIST);
  });
}

/** Addresses under an open path that a service might read as another one. */
const UNDER_OPEN_PATHS = wordsOf(`
  share/s/../api/store/options share/pages/..%2fapi/store/options share/s/%2e%2e/api/store/options
  share/s/..;/api/store/options share/S/%2e%2e%3b/api/store/options
  share/pages/%00/api/store/options inbox/webhook/../events/delivery
  inbox/webhook%2f..%2fevents/delivery inbox/webhook;/../events/delivery
  inbox/webhook%3f/../events/delivery inbox/WEBHOOK/../events/delivery
`);

function addHeaderTests({ cookieOf, ask }: OwnPages): void {
  test('a header that the client sends itself names no user, on guarded and on open paths', async () => {
    const cookie = await cookieOf('mallory');
    const forged: HeaderFields = [
      AS_ALICE,
      OWN_PAGE,
      ['X_Auth_Username', 'alice'],
      ['Origin', INBOX],
    ];
    const own = await ask('share', '/api/store/options', [cookie, ...forged]);
    assert.deepEqual([own.status, own.json.caller.user], [200, 'mallory']);
    assert.equal((await ask('share', '/api/store/options', forged)).status, 401);
    for (const more of [
      [],
      [cookie],
      [cookie, ['Connection', 'close, X-Auth-Username'] as const],
      [cookie, ['Connection', 'X-Auth-Username'] as const],
    ])
      assert.equal((await ask('inbox', '/events/delivery', [...forged, ...more])).status, 401);
    for (const address of UNDER_OPEN_PATHS) {
      const { status } = await ask(address.slice(0, 5), address.slice(5), forged);
      assert.ok([400, 401, 404].includes(status), `${address}: ${status}`);
    }
  });
}

function addContentTests({ browser, sql, openAs, cookieOf, ask }: OwnPages): void {
  test('a sender needs no sign-in for its events', async () => {
    const sent = {
      method: 'POST',
      body: JSON.stringify({ event: 'sent', data: { page_id: 'p' } }),
    };
    const send = async (path: string, ...headers: HeaderFields) =>
      (await ask('inbox', path, [...headers, JSON_BODY], sent)).status;
    assert.equal(await send('/webhook', AS_SENDER), 200);
    assert.equal(await send('/webhook/', AS_SENDER), 200);
    assert.equal(await send('/webhook'), 401);
    assert.ok([302, 303].includes((await ask('inbox', '/inbox', NAVIGATION)).status));
  });

  test('the proxy passes on each event of the stream as it is stored', async () => {
    await openAs('alice', `${INBOX}/inbox`);
    await browser.runAsync(`
      const source = new EventSource('/events/stream');
      window.streamed = '';
      source.addEventListener('received', ({ data }) => { window.streamed += data; });
      await new Promise((resolve) => { source.onopen = resolve; });`);
    await putEvent(sql, { event: 'streamed at once' });
    await browser.until('window.streamed.includes("streamed at once")');
  });

  test('the proxy passes on what the services accept, and they reject what is larger', async () => {
    const headers = [await cookieOf('alice'), OWN_PAGE, JSON_BODY];
    const store = async (size: number) => {
      const body = JSON.stringify({ password: 'x'.repeat(size) });
      const path = '/api/store/encrypt';
      return (await ask('share', path, headers, { method: 'POST', body })).status;
    };
    assert.deepEqual([await store(1_600_000), await store(1_638_400)], [201, 413]);
    const body = JSON.stringify({ event: 'large', data: { page_id: 'x'.repeat(1_060_000) } });
    const event = await ask('inbox', '/webhook', [AS_SENDER, JSON_BODY], { method: 'POST', body });
    assert.deepEqual([event.status, event.json.error.code], [413, 'body_too_large']);
  });
}

function addEndTests({ browser, proxy, sql, event, openAs, ...pages }: OwnPages): void {
  const { setEnded, countSecrets } = pages;

  test('the open page reports that the sign-in has ended, and keeps what was typed', async () => {
    const ended = /Your sign-in has ended\. Sign in again in another tab/;
    await openAs('alice', `${SHARE}/`);
    await browser.untilText('person', /^alice$/);
    await browser.fill('secret', 'typed before');
    const before = await countSecrets();
    await setEnded(true);
    await browser.click('submit');
    await browser.untilText('problem', ended);
    assert.equal(await browser.value('secret'), 'typed before');
    assert.deepEqual([await browser.isVisible('token'), await countSecrets()], [false, before]);
    await checkPage(browser, `${proxy}-share-ended`);
    await setEnded(false);
    await browser.click('submit');
    await browser.untilVisible('made');

    await browser.open(`${INBOX}/inbox?event=for*`);
    await browser.until(SHOWS_LIST);
    await setEnded(true);
    await browser.untilText('list-problem', ended);
    assert.equal(await browser.value('by-event'), 'for*');
    await checkPage(browser, `${proxy}-inbox-ended`);
    await setEnded(false);
    await browser.until('document.getElementById("list-problem").hidden');
    await browser.open(`${INBOX}/inbox?id=${event}`);
    await browser.untilVisible('again');
    await setEnded(true);
    await browser.click('again');
    await browser.untilText('action-problem', ended);
    const [row] = await sql`select status from webhook.outcomes where event_id = ${event}`;
    assert.equal(row?.status, 'dead');
  });
}
