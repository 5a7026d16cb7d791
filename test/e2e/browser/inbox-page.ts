/** The inbox page in a real browser, and what its tests do with it. */
import { after } from 'node:test';
import { describeTarget } from '../../../src/webhook/target.ts';
import { untilSql } from '../../support/connections.ts';
import { openInbox, OPERATOR_TOKEN } from '../../support/inbox.ts';
import { startBrowser } from './browsers.ts';
import { checkAfterEach } from './setup.ts';
import { KEYS } from './webdriver.ts';

export const BODY = `{\n  "event": "push",\n  "data": { "page_id": "<b>not markup</b> 名前", "it's": "a 'quote' $HOME \`id\` \\\\" },
  "n": 12345678901234567890, "list": [1.50, null]\n}`;
export const ROWS = '[...document.querySelectorAll("#rows tr")]';

const COMMAND = [process.execPath, '-e', 'console.log("taken over")'] as const;
/** As the service names it. */
export const TARGET = describeTarget({ command: COMMAND }).key;

const SETTINGS = {
  INBOX_PAGE: 'on',
  WEBHOOK_COMMAND: JSON.stringify(COMMAND),
  WEBHOOK_EVENTS: 'none',
};

/**
 * New events are not delivered: only a redelivery is. Call at the top level of a test file.
 */
export async function openInboxPage(settings: Readonly<Record<string, string>> = {}) {
  const inbox = await openInbox({ after }, { ...SETTINGS, ...settings });
  const browser = await startBrowser();
  checkAfterEach(browser);
  const url = inbox.url.replace('127.0.0.1', 'localhost');
  const untilRows = (count: number) => browser.until(`${ROWS}.length === ${count}`);
  /** Opens the page with this query, and enters the token. */
  const list = async (search = '', token = OPERATOR_TOKEN) => {
    await browser.load(`${url}/inbox${search}`);
    await browser.fill('token', token);
    await browser.press(KEYS.Enter);
  };
  return {
    ...inbox,
    browser,
    url,
    list,
    untilRows,
    /** The text of each row. */
    listed: (): Promise<string[]> =>
      browser.run(`return ${ROWS}.map((row) => row.innerText.replace(/\\s+/g, ' '))`),
    untilListed: (text: string) =>
      browser.until(`${ROWS}.some((row) => row.innerText.includes(${JSON.stringify(text)}))`),
    /** Opens the list, and waits for its rows. */
    async listRows(search: string, count: number): Promise<void> {
      await list(search);
      await untilRows(count);
      await browser.run('document.getElementById("overview").open = true');
    },
    /** Opens an event, and waits for it. */
    async show(id: string): Promise<void> {
      await list(`?id=${id}`);
      await browser.until('document.querySelectorAll("#facts dd").length > 0');
    },
    /** An event of which every attempt has failed. @returns its id */
    putDead: () =>
      inbox.put({
        event: 'push',
        source: 'github',
        status: 'dead',
        attempts: 3,
        deliveryId: 'msg_dead',
        body: BODY,
        age: 20,
        errors: [500, 502, 504].map((status) => `the target answered ${status}`),
      }),
    untilNoAttempt: () =>
      untilSql(async () => {
        const leased = await inbox.sql`select from webhook.work where lease is not null`;
        return leased.length === 0;
      }, 'no attempt'),
  };
}
