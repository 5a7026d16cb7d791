/** A client of the W3C WebDriver protocol (Recommendation of 2018), and Chromium's extensions. */
import { pause } from '../../support/until.ts';

/** Keys that have no character of their own (WebDriver 17.4.2). */
export const KEYS = {
  Tab: '\ue004',
  Enter: '\ue007',
  Control: '\ue009',
  Escape: '\ue00c',
  Space: ' ',
} as const;

/** The properties of a virtual authenticator (WebAuthn, 12). */
export type Authenticator = Readonly<Record<string, string | boolean | readonly string[]>>;

/** Commands to one session. */
export interface Connection {
  post(path: string, body?: object): Promise<any>;
  get(path: string): Promise<any>;
  remove(path: string): Promise<any>;
}

/** What WebDriver has no command for, or one that not every browser has. */
export type Devices = ReturnType<typeof devicesOf>;
export type Driver = ReturnType<typeof drive>;

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

async function callDriver(base: string, method: string, path: string, body?: object): Promise<any> {
  const init = { method, ...(body === undefined ? {} : { body: JSON.stringify(body) }) };
  const response = await fetch(base + path, init);
  const { value }: { value: any } = JSON.parse(await response.text());
  if (response.ok) return value;
  throw new Error(`${method} ${path}: ${value.error}: ${value.message}`);
}

/** @param to a session of WebDriver */
export function drive(to: Readonly<{ connection: Connection; devices: Devices }>) {
  const { connection, devices } = to;
  const { post, get, remove } = connection;
  return {
    ...devices,
    ...scriptCommands(connection),
    ...elementCommands(connection),
    open: (address: string) => post('/url', { url: address }),
    reload: () => post('/refresh'),
    back: () => post('/back'),
    address: () => get('/url'),
    /** Without the name of the site. */
    title: async () => String(await get('/title')).replace(/ · [^·]*$/, ''),
    /** @returns its id */
    addAuthenticator: (kind: Authenticator): Promise<string> =>
      post('/webauthn/authenticator', kind),
    removeAuthenticator: (id: string) => remove(`/webauthn/authenticator/${id}`),
  };
}

const runScript = ({ post }: Connection, script: string, values: readonly unknown[] = []) =>
  post('/execute/sync', { script, args: values });

function scriptCommands(connection: Connection) {
  /** Waits until an expression is true in the page. */
  const until = async (expression: string): Promise<void> => {
    const script = `
      const isTrue = (${expression}) === true;
      return [isTrue, isTrue ? '' : document.body?.innerText];`;
    const begun = Date.now();
    for (;;) {
      // Firefox answers null while a page is left.
      const [isTrue, shown] = (await runScript(connection, script)) ?? [];
      if (isTrue) return;
      await pause(begun, () => `for ${expression}; the page shows: ${shown}`);
    }
  };
  return {
    until,
    /** Waits until the element with this id exists and is visible. */
    untilVisible: (id: string) =>
      until(`document.getElementById('${id}')?.checkVisibility() === true`),
    /** Waits until the text of an element matches. */
    untilText: (id: string, pattern: RegExp) =>
      until(`${pattern}.test(document.getElementById('${id}')?.innerText ?? '')`),
    /** Runs a function body in the page. The caller knows the type of the result. */
    run: (script: string, ...values: unknown[]) => runScript(connection, script, values),
    /** Runs the body of an async function in the page. */
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
  const { post } = connection;
  /** @returns the path of the first element that a selector finds */
  const select = async (value: string): Promise<string> => {
    const found = await post('/element', { using: 'css selector', value });
    return `/element/${found[ELEMENT]}`;
  };
  const find = (id: string) => select(`#${id}`);
  const clickOn = async (selector: string) => post(`${await select(selector)}/click`);
  /** A part of the element with this id. */
  const read =
    (part: string) =>
    (id: string): Promise<any> =>
      runScript(connection, `return document.getElementById('${id}')?.${part}`);
  return {
    clickOn,
    click: (id: string) => clickOn(`#${id}`),
    isVisible: async (id: string) => (await read('checkVisibility()')(id)) === true,
    isEnabled: async (id: string) => (await read('disabled')(id)) === false,
    /** The rendered text. */
    text: read('innerText'),
    value: read('value'),
    /** Replaces the content of a field by typing. */
    async fill(id: string, text: string): Promise<void> {
      const element = await find(id);
      await post(`${element}/clear`);
      if (text !== '') await post(`${element}/value`, { text });
    },
    /** Chooses a file in a field for files. */
    attach: async (id: string, path: string) => post(`${await find(id)}/value`, { text: path }),
    /** Presses keys in the focused element. The keys of a list are held together. */
    async press(...keys: ReadonlyArray<string | readonly string[]>): Promise<void> {
      const actions = keys.flatMap((key) => {
        const held = typeof key === 'string' ? [key] : key;
        const down = held.map((value) => ({ type: 'keyDown', value }));
        return [...down, ...held.map((value) => ({ type: 'keyUp', value })).reverse()];
      });
      await post('/actions', { actions: [{ type: 'key', id: 'keyboard', actions }] });
    },
  };
}

/** By the Chrome DevTools Protocol. */
function devicesOf(connection: Connection) {
  const { post } = connection;
  const devtools = (cmd: string, params: object = {}): Promise<any> =>
    post('/goog/cdp/execute', { cmd, params });
  return {
    devtools,
    /** PNG of an element, or of the whole page, including what is scrolled out of view. */
    async screenshot(selector = 'html'): Promise<Buffer> {
      const script = `
        const { x, y, width, height } =
          document.querySelector(arguments[0]).getBoundingClientRect();
        return { x: x + scrollX, y: y + scrollY, width, height, scale: 1 };`;
      const clip = await runScript(connection, script, [selector]);
      const options = { clip, captureBeyondViewport: true };
      return Buffer.from((await devtools('Page.captureScreenshot', options)).data, 'base64');
    },
    /** Console entries since the last call. */
    log: (): Promise<Array<Readonly<Record<'source' | 'message', string>>>> =>
      post('/se/log', { type: 'browser' }),
    /** The addresses in the history of the tab. */
    async history(): Promise<string[]> {
      const { entries } = await devtools('Page.getNavigationHistory');
      return entries.map(({ url }: Readonly<{ url: string }>) => url);
    },
    /** The cookies that are sent to an address, whatever page is open. */
    cookies: async (url: string): Promise<Array<Readonly<{ name: string; value: string }>>> =>
      (await devtools('Network.getCookies', { urls: [url] })).cookies,
    deleteCookies: () => devtools('Network.clearBrowserCookies'),
    async setOffline(offline: boolean): Promise<void> {
      const [downloadThroughput, uploadThroughput] = offline ? [0, 0] : [-1, -1];
      await devtools('Network.enable');
      const conditions = { offline, latency: 0, downloadThroughput, uploadThroughput };
      await devtools('Network.emulateNetworkConditions', conditions);
    },
    allowScripts: (allowed: boolean) =>
      devtools('Emulation.setScriptExecutionDisabled', { value: !allowed }),
    /** In CSS pixels, as on a device. */
    async setViewport(width: number, height: number, deviceScaleFactor = 1): Promise<void> {
      // A picture has no scrollbars, so that the page is as wide in it as it was before.
      await devtools('Emulation.setScrollbarsHidden', { hidden: true });
      const mobile = width < 400;
      const metrics = { width, height, deviceScaleFactor, mobile };
      await devtools('Emulation.setDeviceMetricsOverride', metrics);
    },
    /** Without motion, so that no color changes slowly while it is measured. */
    async setColorScheme(value: 'light' | 'dark'): Promise<void> {
      const features = [
        { name: 'prefers-color-scheme', value },
        { name: 'prefers-reduced-motion', value: 'reduce' },
      ];
      await devtools('Emulation.setEmulatedMedia', { features });
    },
    /** Where files are saved. The browser runs as another user. */
    saveTo: (downloadPath: string) =>
      devtools('Browser.setDownloadBehavior', { behavior: 'allow', downloadPath }),
    grantPermission: (name: string) =>
      post('/permissions', { descriptor: { name }, state: 'granted' }),
  };
}
