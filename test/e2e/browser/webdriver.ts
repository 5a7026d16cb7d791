/** A client of the W3C WebDriver protocol (Recommendation of 2018), and Chromium's extensions. */
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
  readonly transport: 'internal' | 'usb' | 'nfc' | 'ble' | 'hybrid';
  readonly hasResidentKey: boolean;
  readonly hasUserVerification: boolean;
  readonly isUserVerified: boolean;
  readonly extensions: readonly string[];
  readonly defaultBackupEligibility: boolean;
  readonly defaultBackupState: boolean;
}

/** A window in CSS pixels, as on a device. */
export interface Viewport {
  readonly width: number;
  readonly height: number;
  readonly deviceScaleFactor: number;
  readonly mobile: boolean;
}

export interface Cookie {
  readonly name: string;
  readonly value: string;
}

/** What WebDriver has no command for, or one that not every browser has. */
export interface Devices {
  /** PNG of an element, or of the whole page, including what is scrolled out of view. */
  screenshot(selector?: string): Promise<Buffer>;
  /** Console entries since the last call. */
  log(): Promise<LogEntry[]>;
  /** The addresses in the history of the tab. */
  history(): Promise<string[]>;
  /** The cookies that are sent to an address, whatever page is open. */
  cookies(url: string): Promise<Cookie[]>;
  deleteCookies(): Promise<void>;
  /** Takes the network away, or gives it back. */
  setOffline(offline: boolean): Promise<void>;
  /** Whether pages run scripts. */
  allowScripts(allowed: boolean): Promise<void>;
  setViewport(viewport: Viewport): Promise<void>;
  /** Without motion, so that no color changes slowly while it is measured. */
  setColorScheme(scheme: 'light' | 'dark'): Promise<void>;
  /** Where files are saved. The browser runs as another user. */
  saveTo(directory: string): Promise<void>;
  grantPermission(name: string): Promise<void>;
  /** A command of the Chrome DevTools Protocol. */
  devtools(command: string, parameters: Record<string, unknown>): Promise<any>;
}

export interface Browser extends Omit<Devices, 'screenshot'> {
  open(address: string): Promise<void>;
  reload(): Promise<void>;
  back(): Promise<void>;
  address(): Promise<string>;
  /** Without the name of the site. */
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
  /** PNG of the element with this id, or of the whole page. */
  screenshot(id?: string): Promise<Buffer>;
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
}

/** The property that identifies an element in WebDriver's JSON. */
const ELEMENT = 'element-6066-11e4-a52e-4f735466cecf';

/**
 * @param driver URL of chromedriver
 * @param debuggerAddress `host:port` of the browser's debugging port
 */
export async function connectChromedriver(driver: string, debuggerAddress: string) {
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
  return { connection, devices: devicesOf(connection) };
}

/** @param to a session of WebDriver */
export function driveBrowser(to: Readonly<{ connection: Connection; devices: Devices }>): Browser {
  const { connection, devices } = to;
  return {
    ...devices,
    screenshot: (id) => devices.screenshot(id && `#${id}`),
    ...pageCommands(connection),
    ...scriptCommands(connection),
    ...elementCommands(connection),
    ...inputCommands(connection),
    ...authenticatorCommands(connection),
    ...tabCommands(connection),
  };
}

/** Commands to one session. */
export interface Connection {
  post(path: string, body?: object): Promise<any>;
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
    title: async () => String(await get('/title')).replace(/ · [^·]*$/, ''),
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

const authenticatorCommands = ({ post, remove }: Connection) => ({
  addAuthenticator: async (verifiesUser: boolean, more: Partial<Authenticator> = {}) => {
    return post('/webauthn/authenticator', {
      protocol: 'ctap2',
      transport: 'internal',
      hasResidentKey: true,
      hasUserVerification: verifiesUser,
      isUserVerified: verifiesUser,
      ...more,
    });
  },
  removeAuthenticator: (id: string) => remove(`/webauthn/authenticator/${id}`),
});

/** By the Chrome DevTools Protocol. */
function devicesOf(connection: Connection): Devices {
  const { post } = connection;
  const run = (cmd: string, params: object = {}) => post('/goog/cdp/execute', { cmd, params });
  return {
    async screenshot(selector) {
      const script = `
        const element = document.querySelector(arguments[0]) ?? document.documentElement;
        const { x, y, width, height } = element.getBoundingClientRect();
        return { x: x + scrollX, y: y + scrollY, width, height, scale: 1 };`;
      const clip = await runScript(connection, script, [selector ?? 'html']);
      const { data } = await run('Page.captureScreenshot', { clip, captureBeyondViewport: true });
      return Buffer.from(data, 'base64');
    },
    log: () => post('/se/log', { type: 'browser' }),
    async history() {
      const { entries } = await run('Page.getNavigationHistory');
      return entries.map(({ url }: Readonly<{ url: string }>) => url);
    },
    cookies: async (url) => (await run('Network.getCookies', { urls: [url] })).cookies,
    deleteCookies: () => run('Network.clearBrowserCookies'),
    async setOffline(offline) {
      const [downloadThroughput, uploadThroughput] = offline ? [0, 0] : [-1, -1];
      await run('Network.enable');
      const conditions = { offline, latency: 0, downloadThroughput, uploadThroughput };
      await run('Network.emulateNetworkConditions', conditions);
    },
    allowScripts: (allowed) => run('Emulation.setScriptExecutionDisabled', { value: !allowed }),
    async setViewport(viewport) {
      // A picture has none, so that the page is as wide in it as it was before.
      await run('Emulation.setScrollbarsHidden', { hidden: true });
      await run('Emulation.setDeviceMetricsOverride', viewport);
    },
    async setColorScheme(value) {
      const features = [
        { name: 'prefers-color-scheme', value },
        { name: 'prefers-reduced-motion', value: 'reduce' },
      ];
      await run('Emulation.setEmulatedMedia', { features });
    },
    saveTo: (downloadPath) =>
      run('Browser.setDownloadBehavior', { behavior: 'allow', downloadPath }),
    grantPermission: (name) => post('/permissions', { descriptor: { name }, state: 'granted' }),
    devtools: run,
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
