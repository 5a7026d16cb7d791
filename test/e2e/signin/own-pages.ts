/**
 * The documented configuration that puts share pages and inbox behind the sign-in: what every proxy
 * must pass.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { OPERATOR_TOKEN, putEvent } from '../../support/inbox.ts';
import { checkAppearance, openState, setViewport } from '../browser/accessibility.ts';
import { type HeaderFields, request } from '../nginx/setup.ts';
import { askProxy } from '../nginx/tls.ts';
import {
  cookieOf,
  endSessions,
  INBOX,
  isPaused,
  openAs,
  type OwnPages,
  secretsStored,
  SHARE,
  startOwnPages,
} from './own-pages-setup.ts';
import { EVIL, LOGIN, NAVIGATION, type ProxyName } from './setup.ts';

/** As the browser's own pages send it. */
const OWN_PAGE = ['Sec-Fetch-Site', 'same-origin'] as const;
const AS_ALICE = ['X-Auth-Username', 'alice'] as const;

/** Whether the inbox lists its event. */
const SHOWS_LIST = 'document.getElementById("rows")?.innerText.includes("for alice")';

export async function testOwnPages(proxy: ProxyName): Promise<void> {
  const pages = await startOwnPages(proxy);
  addPersonTests(pages);
  addHeaderTests(pages);
  addForeignPageTest(pages);
  addSenderTests(pages);
  addStreamTest(pages);
  addSizeTest(pages);
  addEndTests(pages);
  addAppearanceTests(pages);
}

function addPersonTests(pages: OwnPages): void {
  const { browser, sql } = pages;

  test('one sign-in opens share page and inbox without a token; a link opens without a sign-in', async () => {
    await openAs(pages, 'alice', `${SHARE}/`);
    await browser.until('document.getElementById("person").innerText === "alice"');
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
    await browser.until(
      '/paused since .* by alice\\./.test(document.getElementById("held").innerText)',
    );
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
    await openAs(pages, 'mallory', `${INBOX}/inbox`);
    await browser.untilVisible('signin');
    for (const path of ['/events', '/events/delivery']) {
      assert.equal(
        await browser.runAsync('return (await fetch(values[0])).status', path),
        401,
        path,
      );
    }
    assert.equal(await browser.isVisible('list'), false);
    await browser.open(`${SHARE}/`);
    await browser.until('document.getElementById("person").innerText === "mallory"');
    // Only the cookie counts for the proxy: an operator's token still reaches the service.
    await browser.open(`${INBOX}/inbox`);
    await browser.fill('token', OPERATOR_TOKEN);
    await browser.click('open');
    await browser.until(SHOWS_LIST);
  });
}

/** Addresses under an open path that a service might read as another one. */
const UNDER_OPEN_PATHS = [
  ['share', '/s/../api/store/options'],
  ['share', '/pages/..%2fapi/store/options'],
  ['share', '/s/%2e%2e/api/store/options'],
  ['inbox', '/webhook/../events/delivery'],
  ['inbox', '/webhook%2f..%2fevents/delivery'],
  ['share', '/s/..;/api/store/options'],
  ['share', '/S/%2e%2e%3b/api/store/options'],
  ['share', '/pages/%00/api/store/options'],
  ['inbox', '/webhook;/../events/delivery'],
  ['inbox', '/webhook%3f/../events/delivery'],
  ['inbox', '/WEBHOOK/../events/delivery'],
] as const;

function addHeaderTests(pages: OwnPages): void {
  const { setup, ports } = pages;

  test('a header that the client sends itself names no user, on guarded and on open paths', async () => {
    const cookie = await cookieOf(pages, 'mallory');
    const forged: HeaderFields = [
      AS_ALICE,
      OWN_PAGE,
      ['X_Auth_Username', 'alice'],
      ['Origin', INBOX],
    ];
    const statusAt = async (host: string, path: string, headers: HeaderFields) =>
      (await askProxy(setup, { host: `${host}.example.org`, path, headers })).status;
    assert.equal(await statusAt('inbox', '/events/delivery', forged), 401);
    assert.equal(await statusAt('inbox', '/events/delivery', [cookie, ...forged]), 401);
    assert.equal(await statusAt('share', '/api/store/options', forged), 401);
    for (const connection of ['close, X-Auth-Username', 'X-Auth-Username']) {
      assert.equal(
        await statusAt('inbox', '/events/delivery', [
          cookie,
          ...forged,
          ['Connection', connection],
        ]),
        401,
      );
    }
    const headers = [cookie, ...forged];
    const own = await askProxy(setup, {
      host: 'share.example.org',
      path: '/api/store/options',
      headers,
    });
    assert.deepEqual([own.status, JSON.parse(own.text).caller.user], [200, 'mallory']);
    for (const [host, path] of UNDER_OPEN_PATHS) {
      const status = await statusAt(host, path, forged);
      assert.ok([400, 401, 404].includes(status), `${path}: ${status}`);
    }
  });

  test('a request that bypasses the proxy is rejected, with any headers', async () => {
    for (const [port, path] of [
      [ports.secrets, '/api/store/options'],
      [ports.webhook, '/events/delivery'],
    ] as const) {
      const headers: HeaderFields = [AS_ALICE, OWN_PAGE, ['X-Forwarded-For', '127.0.0.1']];
      assert.equal((await request(port, { path, headers, from: '127.0.0.2' })).status, 401);
    }
  });
}

function addForeignPageTest(pages: OwnPages): void {
  const { browser } = pages;

  test('a POST of a page of another site or of a neighboring host changes nothing', async () => {
    await cookieOf(pages, 'alice');
    const before = await secretsStored(pages);
    const body = JSON.stringify({ password: 'planted' });
    const origins = [
      [`${EVIL}/`, SHARE, INBOX],
      [`${LOGIN}/login`, SHARE, INBOX],
      [`${SHARE}/`, INBOX],
      [`${INBOX}/inbox`, SHARE],
    ];
    for (const [page = '', ...targets] of origins) {
      await browser.open(page);
      for (const target of targets) {
        const address = target + (target === INBOX ? '/events/pause' : '/api/store/encrypt');
        await browser.runAsync(
          `
          const [to, body] = values;
          const init = { method: 'POST', mode: 'no-cors', credentials: 'include', body };
          await fetch(to, init).catch(() => {});`,
          address,
          body,
        );
      }
      await browser.log();
    }
    assert.deepEqual([await isPaused(pages), await secretsStored(pages)], [false, before]);
  });
}

function addSenderTests({ setup }: OwnPages): void {
  test('a sender needs no sign-in for its events', async () => {
    const token = ['Authorization', `Bearer ${WEBHOOK_TOKEN}`] as const;
    const json = ['Content-Type', 'application/json'] as const;
    const body = JSON.stringify({ event: 'sent', data: { page_id: 'p' } });
    const sent = { method: 'POST', host: 'inbox.example.org', path: '/webhook', body };
    assert.equal((await askProxy(setup, { ...sent, headers: [token, json] })).status, 200);
    assert.equal((await askProxy(setup, { ...sent, headers: [json] })).status, 401);
    const withSlash = { ...sent, path: '/webhook/', headers: [token, json] };
    assert.equal((await askProxy(setup, withSlash)).status, 200);
    const page = await askProxy(setup, {
      host: 'inbox.example.org',
      path: '/inbox',
      headers: NAVIGATION,
    });
    assert.ok([302, 303].includes(page.status));
  });
}

function addStreamTest(pages: OwnPages): void {
  const { browser, sql } = pages;

  test('the proxy passes on each event of the stream as it is stored', async () => {
    await browser.deleteCookies();
    await openAs(pages, 'alice', `${INBOX}/inbox`);
    await browser.runAsync(`
      const source = new EventSource('/events/stream');
      window.streamed = '';
      source.addEventListener('received', ({ data }) => { window.streamed += data; });
      await new Promise((resolve) => { source.onopen = resolve; });`);
    await putEvent(sql, { event: 'streamed at once' });
    await browser.until('window.streamed.includes("streamed at once")');
  });
}

function addSizeTest(pages: OwnPages): void {
  const { setup } = pages;

  test('the proxy passes on what the services accept, and they reject what is larger', async () => {
    const cookie = await cookieOf(pages, 'alice');
    const json = ['Content-Type', 'application/json'] as const;
    const store = async (size: number) => {
      const body = JSON.stringify({ password: 'x'.repeat(size) });
      const headers = [cookie, OWN_PAGE, json];
      const sent = { method: 'POST', host: 'share.example.org', path: '/api/store/encrypt', body };
      return askProxy(setup, { ...sent, headers });
    };
    assert.equal((await store(1_600_000)).status, 201);
    assert.equal((await store(1_638_400)).status, 413);
    const token = ['Authorization', `Bearer ${WEBHOOK_TOKEN}`] as const;
    const event = await askProxy(setup, {
      method: 'POST',
      host: 'inbox.example.org',
      path: '/webhook',
      headers: [token, json],
      body: JSON.stringify({ event: 'large', data: { page_id: 'x'.repeat(1_060_000) } }),
    });
    assert.deepEqual([event.status, JSON.parse(event.text).error.code], [413, 'body_too_large']);
  });
}

function addEndTests(pages: OwnPages): void {
  const { browser, sql, event } = pages;

  test('the open page reports that the sign-in has ended, and keeps what was typed', async () => {
    const ended = /Your sign-in has ended\. Sign in again in another tab/;
    const signInElsewhere = async () => {
      const [first = ''] = await browser.tabs();
      const other = await browser.newTab();
      await browser.switchTo(other);
      await openAs(pages, 'alice', `${SHARE}/`);
      await browser.closeTab();
      await browser.switchTo(first);
    };
    await openAs(pages, 'alice', `${SHARE}/`);
    await browser.until('document.getElementById("person").innerText === "alice"');
    await browser.fill('secret', 'typed before');
    const before = await secretsStored(pages);
    await endSessions(pages);
    await browser.click('submit');
    await browser.until(`${ended}.test(document.getElementById('problem').innerText)`);
    assert.deepEqual(
      [await browser.value('secret'), await browser.isVisible('token')],
      ['typed before', false],
    );
    assert.equal(await secretsStored(pages), before);
    await signInElsewhere();
    await browser.click('submit');
    await browser.untilVisible('made');

    await browser.open(`${INBOX}/inbox?event=for*`);
    await browser.until(SHOWS_LIST);
    await endSessions(pages);
    await browser.until(`${ended}.test(document.getElementById('list-problem').innerText)`);
    assert.equal(await browser.value('by-event'), 'for*');
    await signInElsewhere();
    await browser.until('document.getElementById("list-problem").hidden');
    await browser.open(`${INBOX}/inbox?id=${event}`);
    await browser.untilVisible('again');
    await endSessions(pages);
    await browser.click('again');
    await browser.until(`${ended}.test(document.getElementById('action-problem').innerText)`);
    assert.equal(
      (await sql`select from webhook.outcomes where event_id = ${event} and status = 'dead'`)
        .length,
      1,
    );
  });
}

function addAppearanceTests(pages: OwnPages): void {
  const { browser, proxy } = pages;

  test('the states of a signed-in person: axe, contrast, target size and reflow', async () => {
    const states = [
      [
        'share-signed-in',
        () => openAs(pages, 'alice', `${SHARE}/`).then(() => browser.untilVisible('person')),
      ],
      [
        'share-ended',
        async () => {
          await browser.deleteCookies();
          await openAs(pages, 'alice', `${SHARE}/`);
          await browser.untilVisible('person');
          await browser.fill('secret', 'typed before');
          await endSessions(pages);
          await browser.click('submit');
          await browser.untilVisible('problem');
        },
      ],
      [
        'inbox-ended',
        async () => {
          await browser.deleteCookies();
          await openAs(pages, 'alice', `${INBOX}/inbox`);
          await browser.until(SHOWS_LIST);
          await endSessions(pages);
          await browser.untilVisible('list-problem');
        },
      ],
    ] as const;
    for (const [name, open] of states) {
      await openState(browser, [name, open, {}]);
      await checkAppearance(browser, `${proxy}-${name}`);
    }
    await setViewport(browser, 'desktop');
    await browser.setColorScheme('light');
  });
}
