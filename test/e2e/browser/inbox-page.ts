/** What the tests of the inbox page do with it. */
import { after } from 'node:test';
import { type Inbox, openInbox, OPERATOR_TOKEN } from '../../support/inbox.ts';
import { openPage } from './setup.ts';
import { type Browser, KEYS } from './webdriver.ts';

/** New events are not delivered: only a redelivery is. */
export const openHeldInbox = (): Promise<Inbox> =>
  openInbox(
    { after },
    {
      INBOX_PAGE: 'on',
      WEBHOOK_COMMAND: JSON.stringify([process.execPath, '-e', 'console.log("taken over")']),
      WEBHOOK_EVENTS: 'none',
    },
  );

export const BODY = `{\n  "event": "push",\n  "data": { "page_id": "<b>not markup</b> 名前", "it's": "a 'quote' $HOME \`id\` \\\\" },
  "n": 12345678901234567890, "list": [1.50, null]\n}`;

/** An event of which every attempt has failed. @returns its id */
export const putDead = ({ put }: Pick<Inbox, 'put'>): Promise<string> =>
  put({
    event: 'push',
    source: 'github',
    status: 'dead',
    attempts: 3,
    deliveryId: 'msg_dead',
    body: BODY,
    age: 20,
    errors: [
      'the target answered 500',
      'the target answered 502',
      `the target answered ${'x'.repeat(200)}`,
    ],
  });

export const ROWS = '[...document.querySelectorAll("#rows tr")]';

export interface InboxPage {
  readonly url: string;
  /** The text of each row. */
  listed(): Promise<string[]>;
  untilRows(count: number): Promise<void>;
  untilListed(text: string): Promise<void>;
  untilText(id: string, pattern: RegExp): Promise<void>;
  /** Opens the page with this query, and enters the token. */
  list(search?: string, token?: string): Promise<void>;
  /** Opens the list, and waits for its rows. */
  listRows(search?: string): Promise<void>;
  /** Opens an event, and waits for it. */
  show(id: string): Promise<void>;
}

export function drivePage(inbox: Pick<Inbox, 'url'>, browser: Browser): InboxPage {
  const url = inbox.url.replace('127.0.0.1', 'localhost');
  const page: InboxPage = {
    url,
    listed: () => browser.run(`return ${ROWS}.map((row) => row.innerText.replace(/\\s+/g, ' '))`),
    untilRows: (count) => browser.until(`${ROWS}.length === ${count}`),
    untilListed: (text) =>
      browser.until(`${ROWS}.some((row) => row.innerText.includes(${JSON.stringify(text)}))`),
    untilText: (id, pattern) =>
      browser.until(`${pattern}.test(document.getElementById('${id}').innerText)`),
    async list(search = '', token = OPERATOR_TOKEN) {
      await openPage(browser, `${url}/inbox${search}`);
      await browser.fill('token', token);
      await browser.press(KEYS.Enter);
    },
    async listRows(search = '') {
      await page.list(search);
      await page.untilText('status', /listed/);
      await browser.run('document.getElementById("overview").open = true');
    },
    async show(id) {
      await page.list(`?id=${id}`);
      await browser.until('document.querySelectorAll("#facts dd").length > 0');
    },
  };
  return page;
}
