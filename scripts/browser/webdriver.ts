/** A browser by the WebDriver protocol (W3C Recommendation of 2018, and Chromium's own additions): plain HTTP and JSON. */
import assert from 'node:assert/strict';

/** Keys without a character, as actions spell them (WebDriver 17.4.2). */
export const KEYS = { Tab: '\ue004', Enter: '\ue007', Shift: '\ue008', Control: '\ue009', Escape: '\ue00c', Space: ' ', Up: '\ue013', Down: '\ue015', Backspace: '\ue003' } as const;

export interface LogEntry {
  readonly level: string;
  readonly source: string;
  readonly message: string;
}

export interface Browser {
  open(address: string): Promise<void>;
  reload(): Promise<void>;
  back(): Promise<void>;
  address(): Promise<string>;
  title(): Promise<string>;
  /** Waits until an expression holds in the page. */
  until(expression: string): Promise<void>;
  /** Waits until there is such an element and it is displayed. @param id of the element */
  seen(id: string): Promise<void>;
  isShown(id: string): Promise<boolean>;
  click(id: string): Promise<void>;
  /** Empties a field and types into it. */
  fill(id: string, text: string): Promise<void>;
  /** The text as it is rendered. */
  text(id: string): Promise<string>;
  /** The value of a field. */
  value(id: string): Promise<string>;
  isEnabled(id: string): Promise<boolean>;
  /** What a screen reader says. */
  nameOf(id: string): Promise<string>;
  roleOf(id: string): Promise<string>;
  /** One key after the other, to whatever has the focus; those in a list are held together. */
  press(...keys: ReadonlyArray<string | readonly string[]>): Promise<void>;
  /** Runs in the page: the body of a function. Tests know what comes back. */
  run(script: string, ...given: unknown[]): Promise<any>;
  /** The same, for a promise. */
  runAsync(script: string, ...given: unknown[]): Promise<any>;
  /** PNG, also of what one would have to scroll to. @param id of an element, or none for the whole page */
  picture(id?: string): Promise<Buffer>;
  /** What the browser has complained of since the last time. */
  log(): Promise<LogEntry[]>;
  /** A command of Chromium's own protocol. */
  chromium(command: string, parameters: Record<string, unknown>): Promise<any>;
  permit(name: string): Promise<void>;
}

/** The name that marks an element in WebDriver's JSON. */
const ELEMENT = 'element-6066-11e4-a52e-4f735466cecf';

/** @param driver where chromedriver listens @param debugged where the browser does */
export async function driveBrowser(driver: string, debugged: string): Promise<Browser> {
  const ask = async (method: string, path: string, body?: unknown): Promise<any> => {
    const response = await fetch(driver + path, { method, ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
    const { value }: { value: any } = JSON.parse(await response.text());
    if (!response.ok) throw new Error(`${method} ${path.replace(/\/session\/[^/]+/, '')}: ${value.error}: ${value.message}`);
    return value;
  };
  const made = await ask('POST', '/session', {
    capabilities: {
      alwaysMatch: { browserName: 'chrome', 'goog:loggingPrefs': { browser: 'ALL' }, 'goog:chromeOptions': { debuggerAddress: debugged } },
    },
  });
  const session = `/session/${made.sessionId}`;
  const post = (path: string, body: unknown = {}) => ask('POST', session + path, body);
  const get = (path: string) => ask('GET', session + path);
  const find = async (id: string) => `/element/${(await post('/element', { using: 'css selector', value: `#${id}` }))[ELEMENT]}`;
  const run = (script: string, ...given: unknown[]) => post('/execute/sync', { script, args: given });
  const browser: Browser = {
    open: (address) => post('/url', { url: address }),
    reload: () => post('/refresh'),
    back: () => post('/back'),
    address: () => get('/url'),
    title: () => get('/title'),
    async until(expression) {
      const limit = Date.now() + 10_000;
      while ((await run(`return ${expression}`)) !== true) assert.ok(Date.now() < limit, `waited in vain for ${expression}; the page says: ${await run('return document.body.innerText')}`);
    },
    seen: (id) => browser.until(`document.getElementById('${id}')?.checkVisibility() === true`),
    isShown: (id) => run('return document.getElementById(arguments[0])?.checkVisibility() === true', id),
    async click(id) {
      await post(`${await find(id)}/click`);
    },
    async fill(id, text) {
      const element = await find(id);
      await post(`${element}/clear`);
      if (text !== '') await post(`${element}/value`, { text });
    },
    text: async (id) => get(`${await find(id)}/text`),
    value: async (id) => get(`${await find(id)}/property/value`),
    isEnabled: async (id) => get(`${await find(id)}/enabled`),
    nameOf: async (id) => get(`${await find(id)}/computedlabel`),
    roleOf: async (id) => get(`${await find(id)}/computedrole`),
    async press(...keys) {
      const strokes = keys.flatMap((key) => {
        const held = typeof key === 'string' ? [key] : key;
        return [...held.map((value) => ({ type: 'keyDown', value })), ...held.map((value) => ({ type: 'keyUp', value })).reverse()];
      });
      await post('/actions', { actions: [{ type: 'key', id: 'keyboard', actions: strokes }] });
    },
    run,
    runAsync: (script, ...given) => post('/execute/async', { script: `const done = arguments[arguments.length - 1]; (async (...given) => { ${script} })(...arguments).then(done, (error) => done(String(error)))`, args: given }),
    async picture(id) {
      const clip = await run('const { x, y, width, height } = (document.getElementById(arguments[0]) ?? document.documentElement).getBoundingClientRect(); return { x: x + scrollX, y: y + scrollY, width, height, scale: 1 }', id);
      const { data } = await browser.chromium('Page.captureScreenshot', { clip, captureBeyondViewport: true });
      return Buffer.from(data, 'base64');
    },
    log: () => post('/se/log', { type: 'browser' }),
    chromium: (command, parameters) => post('/goog/cdp/execute', { cmd: command, params: parameters }),
    permit: (name) => post('/permissions', { descriptor: { name }, state: 'granted' }),
  };
  return browser;
}
