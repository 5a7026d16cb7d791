/** What the tests of the inbox page do with it. */
import { type Inbox, OPERATOR_TOKEN } from '../../support/inbox.ts';
import { openPage } from './setup.ts';
import { type Browser, KEYS } from './webdriver.ts';

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
