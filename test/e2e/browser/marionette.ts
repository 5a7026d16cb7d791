/**
 * Firefox without geckodriver, which Debian does not have: each command of WebDriver is one of
 * Marionette, the protocol of Firefox itself.
 */
import { once } from 'node:events';
import { connect } from 'node:net';
import type { Connection, Devices } from './webdriver.ts';

/** The command of Marionette for each method and path of WebDriver, with * for an element. */
const COMMANDS = new Map([
  ['POST /url', 'Navigate'],
  ['GET /url', 'GetCurrentURL'],
  ['POST /refresh', 'Refresh'],
  ['POST /back', 'Back'],
  ['GET /title', 'GetTitle'],
  ['POST /execute/sync', 'ExecuteScript'],
  ['POST /execute/async', 'ExecuteAsyncScript'],
  ['POST /actions', 'PerformActions'],
  ['POST /element', 'FindElement'],
  ['POST /element/*/click', 'ElementClick'],
  ['POST /element/*/clear', 'ElementClear'],
  ['POST /element/*/value', 'ElementSendKeys'],
]);

type Send = (command: string, parameters?: object) => Promise<any>;

/** Opens a session, and calls its commands as chromedriver's are called. */
export async function connectMarionette(port: number) {
  const send = await openSocket(port);
  await send('WebDriver:NewSession', { acceptInsecureCerts: true });
  const call = async (line: string, body: object = {}) => {
    const [, id = ''] = /\/element\/([^/]+)/.exec(line) ?? [];
    const command = COMMANDS.get(line.replace(id, id && '*'));
    if (command === undefined) throw new Error(`Firefox has no command for ${line}`);
    const result = await send(`WebDriver:${command}`, { ...body, ...(id === '' ? {} : { id }) });
    return result && !Array.isArray(result) && 'value' in result ? result.value : result;
  };
  const connection: Connection = {
    post: (path, body = {}) => call(`POST ${path}`, body),
    get: (path) => call(`GET ${path}`),
    remove: (path) => call(`DELETE ${path}`),
  };
  return { connection, devices: devicesOf(send) };
}

/** A message is its length in bytes, a colon, and JSON: `[0, id, command, parameters]`. */
async function openSocket(port: number): Promise<Send> {
  const socket = connect({ host: '127.0.0.1', port });
  const waiting = new Map<number, (reply: readonly [unknown, any]) => void>();
  let received = Buffer.alloc(0);
  socket.on('data', (chunk: Buffer) => {
    received = Buffer.concat([received, chunk]);
    for (;;) {
      const colon = received.indexOf(':');
      const end = colon + 1 + Number(received.toString('latin1', 0, colon));
      if (colon === -1 || received.length < end) return;
      const message = JSON.parse(received.toString('utf8', colon + 1, end));
      received = received.subarray(end);
      // The first message is a greeting.
      if (Array.isArray(message)) waiting.get(message[1])?.([message[2], message[3]]);
    }
  });
  await once(socket, 'connect');
  // It ends with the browser.
  socket.unref();
  socket.on('error', () => {});
  let last = 0;
  return async (command, parameters = {}) => {
    last += 1;
    const id = last;
    const text = JSON.stringify([0, id, command, parameters]);
    socket.write(`${Buffer.byteLength(text)}:${text}`);
    const [error, result] = await new Promise<readonly [any, any]>((resolve) =>
      waiting.set(id, resolve),
    );
    waiting.delete(id);
    if (error) throw new Error(`${command}: ${error.error}: ${error.message}`);
    return result;
  };
}

const LOG = `
  const entries = Services.console.getMessageArray();
  Services.console.reset();
  // What Firefox says of a page that is left while a script of it is loaded or runs.
  const isLeft = /^(Script terminated by timeout|Loading failed for the module)/;
  const ofPages = (one) => one instanceof Ci.nsIScriptError && /^http/.test(one.sourceName) &&
    !isLeft.test(one.errorMessage);
  return entries.filter(ofPages).map(({ category, errorMessage, sourceName }) =>
    ({ source: category, message: sourceName + ' ' + errorMessage }));`;
const HISTORY = `
  const { sessionHistory } = gBrowser.selectedBrowser.browsingContext;
  return Array.from({ length: sessionHistory.count }, (_, at) =>
    sessionHistory.getEntryAtIndex(at).URI.spec);`;
const COOKIES = `
  const { hostname, pathname } = new URL(arguments[0]);
  const isFor = ({ host }) =>
    host === hostname || (host[0] === '.' && ('.' + hostname).endsWith(host));
  return Services.cookies.cookies.filter((one) => isFor(one) && pathname.startsWith(one.path))
    .map(({ name, value }) => ({ name, value }));`;
const VIEWPORT = `
  const { style } = gBrowser.selectedBrowser;
  const [width, height] = arguments;
  style.minWidth = style.maxWidth = width + 'px';
  style.minHeight = style.maxHeight = height + 'px';`;
const COLOR_SCHEME =
  'gBrowser.selectedBrowser.browsingContext.top.prefersColorSchemeOverride = arguments[0]';
const OFFLINE = 'gBrowser.selectedBrowser.browsingContext.top.forceOffline = arguments[0]';
const PREFERENCE = `
  const [name, value] = arguments;
  if (typeof value === 'boolean') Services.prefs.setBoolPref(name, value);
  else Services.prefs.setStringPref(name, value);`;

/** What scripts of Firefox itself do, in its own process. */
function devicesOf(send: Send): Devices {
  const inBrowser = async (script: string, ...args: unknown[]) => {
    await send('Marionette:SetContext', { value: 'chrome' });
    try {
      return (await send('WebDriver:ExecuteScript', { script, args })).value;
    } finally {
      await send('Marionette:SetContext', { value: 'content' });
    }
  };
  /** The page notices a change of its window a little later. */
  const untilPage = (condition: string) =>
    send('WebDriver:ExecuteAsyncScript', {
      script: `
        const done = arguments[0];
        const look = () => (${condition} ? done() : setTimeout(look, 10));
        look();`,
      args: [],
    });
  return {
    async screenshot(selector = 'html') {
      const { value } = await send('WebDriver:FindElement', {
        using: 'css selector',
        value: selector,
      });
      const which = { id: Object.values(value)[0] };
      return Buffer.from((await send('WebDriver:TakeScreenshot', which)).value, 'base64');
    },
    log: () => inBrowser(LOG),
    history: () => inBrowser(HISTORY),
    cookies: (url) => inBrowser(COOKIES, url),
    deleteCookies: () => inBrowser('Services.cookies.removeAll()'),
    setOffline: (offline) => inBrowser(OFFLINE, offline),
    allowScripts: (allowed) => inBrowser(PREFERENCE, 'javascript.enabled', allowed),
    async setViewport(width, height) {
      await inBrowser(VIEWPORT, width, height);
      await untilPage(`innerWidth === ${width} && innerHeight === ${height}`);
    },
    async setColorScheme(scheme) {
      await inBrowser(COLOR_SCHEME, scheme);
      await untilPage(`matchMedia('(prefers-color-scheme: ${scheme})').matches`);
    },
    saveTo: (directory) => inBrowser(PREFERENCE, 'browser.download.dir', directory),
    devtools: (command) => Promise.reject(new Error(`Firefox has no ${command}`)),
    grantPermission: async () => {}, // by a preference
  };
}
