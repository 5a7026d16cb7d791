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

/** `hasResidentKey`: whether it stores passkeys, and so lists them by itself. */
export interface Authenticator {
  readonly protocol: 'ctap1/u2f' | 'ctap2' | 'ctap2_1';
  readonly transport: 'internal' | 'usb' | 'nfc' | 'ble';
  readonly hasResidentKey: boolean;
  readonly hasUserVerification: boolean;
  readonly isUserVerified: boolean;
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
  /**
   * Presses keys one after the other in the focused element. The keys of a list are held together.
   */
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
  /**
   * A virtual authenticator that answers at once (WebAuthn, 12): by default, a part of the device
   * that stores passkeys.
   * @returns its id
   */
  addAuthenticator(verifiesUser: boolean, more?: Partial<Authenticator>): Promise<string>;
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

/**
 * @param driver URL of chromedriver
 * @param debuggerAddress `host:port` of the browser's debugging port
 */
export async function driveBrowser(driver: string, debuggerAddress: string): Promise<Browser> {
  const capabilities = {
    alwaysMatch: {
      browserName: 'chrome',
      'goog:loggingPrefs': { browser: 'ALL' },
      'goog:chromeOptions': { debuggerAddress },
    },
  };
  const { sessionId } = await callDriver(driver, 'POST', '/session', { capabilities });
  const session = `${driver}/session/${sessionId}`;
  const connection: Connection = {
    post: (path, body = {}) => callDriver(session, 'POST', path, body),
    get: (path) => callDriver(session, 'GET', path),
    remove: (path) => callDriver(session, 'DELETE', path),
  };
  return {
    ...pageCommands(connection),
    ...scriptCommands(connection),
    ...elementCommands(connection),
    ...inputCommands(connection),
    ...deviceCommands(connection),
    ...tabCommands(connection),
  };
}

/** Commands to one session of chromedriver. */
interface Connection {
  post(path: string, body?: unknown): Promise<any>;
  get(path: string): Promise<any>;
  remove(path: string): Promise<any>;
}

async function callDriver(
  base: string,
  method: string,
  path: string,
  body?: unknown,
): Promise<any> {
  const init = { method, ...(body === undefined ? {} : { body: JSON.stringify(body) }) };
  const response = await fetch(base + path, init);
  const { value }: { value: any } = JSON.parse(await response.text());
  if (response.ok) return value;
  throw new Error(`${method} ${path}: ${value.error}: ${value.message}`);
}

const runScript = ({ post }: Connection, script: string, values: readonly unknown[] = []) =>
  post('/execute/sync', { script, args: values });

const runDevtools = ({ post }: Connection, command: string, parameters: unknown) =>
  post('/goog/cdp/execute', { cmd: command, params: parameters });

/** @returns the path of the first element that a selector finds */
async function selectElement({ post }: Connection, value: string): Promise<string> {
  const found = await post('/element', { using: 'css selector', value });
  return `/element/${found[ELEMENT]}`;
}

function pageCommands({ post, get }: Connection) {
  return {
    open: (address: string) => post('/url', { url: address }),
    reload: () => post('/refresh'),
    back: () => post('/back'),
    address: () => get('/url'),
    title: () => get('/title'),
    log: () => post('/se/log', { type: 'browser' }),
  };
}

function scriptCommands(connection: Connection) {
  const until = async (expression: string): Promise<void> => {
    const limit = Date.now() + 10_000;
    while ((await runScript(connection, `return ${expression}`)) !== true) {
      if (Date.now() < limit) continue;
      const shown = await runScript(connection, 'return document.body.innerText');
      assert.fail(`timed out: ${expression}; the page shows: ${shown}`);
    }
  };
  return {
    until,
    untilVisible: (id: string) =>
      until(`document.getElementById('${id}')?.checkVisibility() === true`),
    run: (script: string, ...values: unknown[]) => runScript(connection, script, values),
    runAsync: (script: string, ...values: unknown[]) =>
      connection.post('/execute/async', {
        script: `
        const done = arguments[arguments.length - 1];
        const main = async (...values) => { ${script} };
        main(...arguments).then(done, (error) => done(String(error)));`,
        args: values,
      }),
  };
}

function elementCommands(connection: Connection) {
  const { get } = connection;
  const find = (id: string) => selectElement(connection, `#${id}`);
  const isVisible = 'return document.getElementById(arguments[0])?.checkVisibility() === true';
  return {
    isVisible: (id: string) => runScript(connection, isVisible, [id]),
    text: async (id: string) => get(`${await find(id)}/text`),
    value: async (id: string) => get(`${await find(id)}/property/value`),
    isEnabled: async (id: string) => get(`${await find(id)}/enabled`),
    nameOf: async (id: string) => get(`${await find(id)}/computedlabel`),
    roleOf: async (id: string) => get(`${await find(id)}/computedrole`),
    async screenshot(id?: string): Promise<Buffer> {
      const script = `
        const element = document.getElementById(arguments[0]) ?? document.documentElement;
        const { x, y, width, height } = element.getBoundingClientRect();
        return { x: x + scrollX, y: y + scrollY, width, height, scale: 1 };`;
      const clip = await runScript(connection, script, [id]);
      const parameters = { clip, captureBeyondViewport: true };
      const { data } = await runDevtools(connection, 'Page.captureScreenshot', parameters);
      return Buffer.from(data, 'base64');
    },
  };
}

function inputCommands(connection: Connection) {
  const { post } = connection;
  const find = (id: string) => selectElement(connection, `#${id}`);
  let actionCount = 0;
  return {
    takeActions(): number {
      const taken = actionCount;
      actionCount = 0;
      return taken;
    },
    async click(id: string): Promise<void> {
      actionCount += 1;
      await post(`${await find(id)}/click`);
    },
    async clickOn(selector: string): Promise<void> {
      actionCount += 1;
      await post(`${await selectElement(connection, selector)}/click`);
    },
    async fill(id: string, text: string): Promise<void> {
      actionCount += 1;
      const element = await find(id);
      await post(`${element}/clear`);
      if (text !== '') await post(`${element}/value`, { text });
    },
    async attach(id: string, path: string): Promise<void> {
      actionCount += 1;
      await post(`${await find(id)}/value`, { text: path });
    },
    async press(...keys: ReadonlyArray<string | readonly string[]>): Promise<void> {
      actionCount += 1;
      const actions = keys.flatMap((key) => {
        const held = typeof key === 'string' ? [key] : key;
        const down = held.map((value) => ({ type: 'keyDown', value }));
        return [...down, ...held.map((value) => ({ type: 'keyUp', value })).reverse()];
      });
      await post('/actions', { actions: [{ type: 'key', id: 'keyboard', actions }] });
    },
  };
}

function deviceCommands(connection: Connection) {
  const { post, remove } = connection;
  return {
    devtools: (command: string, parameters: object) => runDevtools(connection, command, parameters),
    addAuthenticator: (verifiesUser: boolean, more: Partial<Authenticator> = {}) =>
      post('/webauthn/authenticator', {
        protocol: 'ctap2',
        transport: 'internal',
        hasResidentKey: true,
        hasUserVerification: verifiesUser,
        isUserVerified: verifiesUser,
        ...more,
      }),
    removeAuthenticator: (id: string) => remove(`/webauthn/authenticator/${id}`),
    deleteCookies: () => runDevtools(connection, 'Network.clearBrowserCookies', {}),
    grantPermission: (name: string) =>
      post('/permissions', { descriptor: { name }, state: 'granted' }),
  };
}

function tabCommands({ post, get, remove }: Connection) {
  return {
    newTab: async () => (await post('/window/new', { type: 'tab' })).handle,
    tabs: () => get('/window/handles'),
    switchTo: (handle: string) => post('/window', { handle }),
    closeTab: () => remove('/window'),
  };
}
