/** A client of the W3C WebDriver protocol (Recommendation of 2018) with Chromium's extensions. */
import assert from 'node:assert/strict';

/** Keys that have no character of their own (WebDriver 17.4.2). */
export const KEYS = {
  Tab: '\ue004',
  Enter: '\ue007',
  Shift: '\ue008',
  Control: '\ue009',
  Escape: '\ue00c',
  Space: ' ',
  Up: '\ue013',
  Down: '\ue015',
  Backspace: '\ue003',
} as const;

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
  /** Waits until an expression is true in the page. */
  until(expression: string): Promise<void>;
  /** Waits until the element with this id exists and is visible. */
  untilVisible(id: string): Promise<void>;
  isVisible(id: string): Promise<boolean>;
  click(id: string): Promise<void>;
  /** The same, for elements without an id. */
  clickOn(selector: string): Promise<void>;
  /** Replaces the content of a field by typing. */
  fill(id: string, text: string): Promise<void>;
  /** Chooses a file in a field for files. */
  attach(id: string, path: string): Promise<void>;
  /** The rendered text. */
  text(id: string): Promise<string>;
  /** How often a person would have typed, pressed, clicked or chosen a file since the last call. */
  takeActions(): number;
  /** The value of a field. */
  value(id: string): Promise<string>;
  isEnabled(id: string): Promise<boolean>;
  /** The accessible name, which a screen reader announces. */
  nameOf(id: string): Promise<string>;
  /** The accessible role. */
  roleOf(id: string): Promise<string>;
  /** Presses keys one after the other in the focused element. The keys of a list are held together. */
  press(...keys: ReadonlyArray<string | readonly string[]>): Promise<void>;
  /** Runs a function body in the page. The caller knows the type of the result. */
  run(script: string, ...values: unknown[]): Promise<any>;
  /** Runs the body of an async function in the page. */
  runAsync(script: string, ...values: unknown[]): Promise<any>;
  /** PNG of an element, or of the whole page, including what is scrolled out of view. */
  screenshot(id?: string): Promise<Buffer>;
  /** Console entries since the last call. */
  log(): Promise<LogEntry[]>;
  /** A command of the Chrome DevTools Protocol. */
  devtools(command: string, parameters: Record<string, unknown>): Promise<any>;
  grantPermission(name: string): Promise<void>;
  /** A virtual authenticator that stores passkeys and answers at once (WebAuthn, 12). @returns its id */
  addAuthenticator(verifiesUser: boolean): Promise<string>;
  removeAuthenticator(id: string): Promise<void>;
  newTab(): Promise<string>;
  /** @returns handles of all tabs */
  tabs(): Promise<string[]>;
  switchTo(tab: string): Promise<void>;
  closeTab(): Promise<void>;
  deleteCookies(): Promise<void>;
}

/** The property that identifies an element in WebDriver's JSON. */
const ELEMENT = 'element-6066-11e4-a52e-4f735466cecf';

/** @param driver URL of chromedriver  @param debuggerAddress `host:port` of the browser's debugging port */
export async function driveBrowser(driver: string, debuggerAddress: string): Promise<Browser> {
  const call = async (method: string, path: string, body?: unknown): Promise<any> => {
    const init = { method, ...(body === undefined ? {} : { body: JSON.stringify(body) }) };
    const response = await fetch(driver + path, init);
    const { value }: { value: any } = JSON.parse(await response.text());
    if (response.ok) return value;
    const command = path.replace(/\/session\/[^/]+/, '');
    throw new Error(`${method} ${command}: ${value.error}: ${value.message}`);
  };
  const created = await call('POST', '/session', {
    capabilities: {
      alwaysMatch: {
        browserName: 'chrome',
        'goog:loggingPrefs': { browser: 'ALL' },
        'goog:chromeOptions': { debuggerAddress },
      },
    },
  });
  const session = `/session/${created.sessionId}`;
  let actionCount = 0;
  const post = (path: string, body: unknown = {}) => call('POST', session + path, body);
  const get = (path: string) => call('GET', session + path);
  const select = async (value: string) => {
    const found = await post('/element', { using: 'css selector', value });
    return `/element/${found[ELEMENT]}`;
  };
  const find = (id: string) => select(`#${id}`);
  const run = (script: string, ...values: unknown[]) =>
    post('/execute/sync', { script, args: values });
  const browser: Browser = {
    open: (address) => post('/url', { url: address }),
    reload: () => post('/refresh'),
    back: () => post('/back'),
    address: () => get('/url'),
    title: () => get('/title'),
    async until(expression) {
      const limit = Date.now() + 10_000;
      while ((await run(`return ${expression}`)) !== true) {
        if (Date.now() < limit) continue;
        assert.fail(
          `timed out: ${expression}; the page shows: ${await run('return document.body.innerText')}`,
        );
      }
    },
    untilVisible: (id) =>
      browser.until(`document.getElementById('${id}')?.checkVisibility() === true`),
    isVisible: (id) =>
      run('return document.getElementById(arguments[0])?.checkVisibility() === true', id),
    takeActions() {
      const taken = actionCount;
      actionCount = 0;
      return taken;
    },
    async click(id) {
      actionCount += 1;
      await post(`${await find(id)}/click`);
    },
    async clickOn(selector) {
      actionCount += 1;
      await post(`${await select(selector)}/click`);
    },
    async fill(id, text) {
      actionCount += 1;
      const element = await find(id);
      await post(`${element}/clear`);
      if (text !== '') await post(`${element}/value`, { text });
    },
    async attach(id, path) {
      actionCount += 1;
      await post(`${await find(id)}/value`, { text: path });
    },
    text: async (id) => get(`${await find(id)}/text`),
    value: async (id) => get(`${await find(id)}/property/value`),
    isEnabled: async (id) => get(`${await find(id)}/enabled`),
    nameOf: async (id) => get(`${await find(id)}/computedlabel`),
    roleOf: async (id) => get(`${await find(id)}/computedrole`),
    async press(...keys) {
      actionCount += 1;
      const actions = keys.flatMap((key) => {
        const held = typeof key === 'string' ? [key] : key;
        const down = held.map((value) => ({ type: 'keyDown', value }));
        return [...down, ...held.map((value) => ({ type: 'keyUp', value })).reverse()];
      });
      await post('/actions', { actions: [{ type: 'key', id: 'keyboard', actions }] });
    },
    run,
    runAsync: (script, ...values) =>
      post('/execute/async', {
        script: `
        const done = arguments[arguments.length - 1];
        (async (...values) => { ${script} })(...arguments).then(done, (error) => done(String(error)));`,
        args: values,
      }),
    async screenshot(id) {
      const clip = await run(
        `
        const element = document.getElementById(arguments[0]) ?? document.documentElement;
        const { x, y, width, height } = element.getBoundingClientRect();
        return { x: x + scrollX, y: y + scrollY, width, height, scale: 1 };`,
        id,
      );
      const { data } = await browser.devtools('Page.captureScreenshot', {
        clip,
        captureBeyondViewport: true,
      });
      return Buffer.from(data, 'base64');
    },
    log: () => post('/se/log', { type: 'browser' }),
    devtools: (command, parameters) =>
      post('/goog/cdp/execute', { cmd: command, params: parameters }),
    addAuthenticator: (verifiesUser) =>
      post('/webauthn/authenticator', {
        protocol: 'ctap2',
        transport: 'internal',
        hasResidentKey: true,
        hasUserVerification: verifiesUser,
        isUserVerified: verifiesUser,
      }),
    removeAuthenticator: (id) => call('DELETE', `${session}/webauthn/authenticator/${id}`),
    newTab: async () => (await post('/window/new', { type: 'tab' })).handle,
    tabs: () => get('/window/handles'),
    switchTo: (handle) => post('/window', { handle }),
    closeTab: () => call('DELETE', `${session}/window`),
    deleteCookies: () => browser.devtools('Network.clearBrowserCookies', {}),
    grantPermission: (name) => post('/permissions', { descriptor: { name }, state: 'granted' }),
  };
  return browser;
}
