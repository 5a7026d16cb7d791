/** The library: services in the process of another program. */
import assert from 'node:assert/strict';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { PassThrough } from 'node:stream';
import { test, type TestContext } from 'node:test';
import {
  ConfigurationError,
  type Gatehouse,
  start,
  type StartOptions,
  StartupError,
} from '../../src/index.ts';
import { bindRoutes } from '../../src/platform/http/route/route.ts';
import { startServices } from '../../src/platform/process/start.ts';
import { configure } from '../../src/serve.ts';
import { stopClock } from '../support/clock.ts';
import { createEmptyDatabase } from '../support/database.ts';
import { readDocument } from '../support/documents.ts';
import { ask, AUTH_TOKEN, logIn, variables } from '../support/gatehouse.ts';
import { listenOn } from '../support/ports.ts';
import { latch } from '../support/until.ts';

/** @returns an instance that stops with the test, and what it wrote */
async function embed(
  t: TestContext,
  services: StartOptions['services'],
  settings: StartOptions['settings'],
) {
  let text = '';
  const stdout = new PassThrough();
  const stderr = new PassThrough();
  for (const stream of [stdout, stderr])
    stream.on('data', (part) => {
      text += String(part);
    });
  const instance: Gatehouse = await start({ services, settings, output: { stdout, stderr } });
  t.after(() => instance.stop());
  const url = (name: keyof Gatehouse['ports']) => `http://127.0.0.1:${instance.ports[name]}`;
  return { ...instance, url, text: () => text };
}

/** Identity with an administrator who is logged in. */
async function embedIdentity(t: TestContext, more: Readonly<Record<string, string>> = {}) {
  const { url: database } = await createEmptyDatabase(t);
  const instance = await embed(t, ['identity'], { ...variables(database), ...more });
  await instance.ready;
  const url = instance.url('identity');
  const session = await logIn(url);
  const makeKey = async (body: object) =>
    (await ask('POST', `${url}/api/key/`, { bearer: session, body })).json.data;
  return { ...instance, at: url, session, makeKey };
}

const PLAIN = { ...variables('postgres://nobody@localhost/none'), WEBHOOK_VARIANT: 'plain' };
const SIGNALS = 'SIGINT SIGTERM SIGHUP SIGUSR1 SIGUSR2 uncaughtException unhandledRejection';
const countListeners = () => SIGNALS.split(' ').map((name) => process.listenerCount(name));

test('two instances in one process are independent', async (t) => {
  const signals = countListeners();
  const other = 'that-of-the-second-one';
  const { url: database } = await createEmptyDatabase(t);
  const first = await embed(t, ['identity', 'secrets', 'webhook'], {
    ...variables(database),
    METRICS_PORT: '0',
  });
  const { url: otherDatabase } = await createEmptyDatabase(t);
  const second = await embed(t, ['identity'], {
    ...variables(otherDatabase),
    ADMIN_PASSWORD: other,
  });
  assert.deepEqual(Object.keys(first.ports).sort(), ['identity', 'metrics', 'secrets', 'webhook']);
  assert.deepEqual(Object.keys(second.ports), ['identity']);
  await Promise.all([first.ready, second.ready]);
  assert.deepEqual(countListeners(), signals, 'no signal is handled');
  const bearer = await logIn(first.url('identity'));
  await logIn(second.url('identity'), 'admin', other);
  assert.equal((await ask('GET', `${second.url('identity')}/api/test/`, { bearer })).status, 401);
  const body = { password: 'x' };
  await ask('POST', `${first.url('secrets')}/api/store/encrypt`, { bearer: AUTH_TOKEN, body });
  const { text: metrics } = await ask('GET', `${first.url('metrics')}/metrics`);
  assert.match(metrics, /^gatehouse_requests_total\{service="secrets"/m);
  assert.match(first.text(), /"service":"secrets","message":"ready"/);
  assert.doesNotMatch(second.text(), /"service":"secrets"/);

  await first.stop();
  await assert.rejects(fetch(`${first.url('secrets')}/livez`));
  await logIn(second.url('identity'), 'admin', other);
  await Promise.all([second.stop(), second.stop()]);
  await assert.rejects(fetch(`${second.url('identity')}/livez`));
});

test('twelve instances in one process cause no warning of Node', async (t) => {
  const warnings: string[] = [];
  const onWarning = ({ message }: Error) => warnings.push(message);
  process.on('warning', onWarning);
  t.after(() => process.off('warning', onWarning));
  const starts = Array.from({ length: 12 }, () => embed(t, ['webhook'], PLAIN));
  const instances = await Promise.all(starts);
  await Promise.all(instances.map(({ ready }) => ready));
  await Promise.all(instances.map(({ stop }) => stop()));
  // Node emits its warnings in the next turn of the event loop.
  await new Promise(setImmediate);
  assert.deepEqual(warnings, []);
});

test('an instance that is stopped, or cannot be ready, leaves nothing open', async (t) => {
  const { url } = await createEmptyDatabase(t);
  const away = Object.assign(new URL(url), { port: '1' }).href;
  const waiting = await embed(t, ['secrets'], variables(away));
  await waiting.stop();
  await assert.rejects(waiting.ready, /stopped before it was ready/);
  const SECRETS_PORT = String(waiting.ports.secrets);
  const next = await embed(t, ['secrets'], { ...variables(url), SECRETS_PORT });
  await next.ready;
  assert.deepEqual(next.ports, waiting.ports);

  const taken = embed(t, ['identity', 'secrets'], { ...variables(url), SECRETS_PORT });
  await assert.rejects(taken, StartupError);
  const nowhere = Object.assign(new URL(url), { pathname: '/nowhere' }).href;
  const refused = await embed(t, ['secrets'], variables(nowhere));
  await assert.rejects(refused.ready, /SQLSTATE 3D000/);
  await assert.rejects(fetch(`${refused.url('secrets')}/livez`));
});

test('a service that is stopped while it prepares begins no work', async () => {
  const { opened, open } = latch();
  const begun: string[] = [];
  const startWork = () => {
    begun.push('work');
    return { stop: async () => {} };
  };
  const start = async () => ({
    routes: bindRoutes([], null),
    beforeReady: () => opened,
    startWork,
  });
  const given = await configure(['webhook'], 'serve', PLAIN);
  const services = given.services.map((service) => ({ ...service, start }));
  const stdout = new PassThrough();
  const running = await startServices({ ...given, services }, { stdout, stderr: stdout });
  const stopped = running.stop();
  open();
  await stopped;
  await assert.rejects(running.ready, /stopped before it was ready/);
  assert.deepEqual(begun, []);
  assert.doesNotMatch(String(stdout.read()), /"ready"/);
});

test('all wrong settings are reported together, and the environment is not read', async (t) => {
  process.env.AUTH_TOKEN = AUTH_TOKEN;
  t.after(() => delete process.env.AUTH_TOKEN);
  const problems = async (services: unknown, settings?: StartOptions['settings']) => {
    // As a program without types may call it.
    const called: Promise<Gatehouse> = Reflect.apply(start, undefined, [{ services, settings }]);
    const error = await called.catch((reason: unknown) => reason);
    assert.ok(error instanceof ConfigurationError);
    return error.problems;
  };
  const { AUTH_TOKEN: _, ...others } = variables();
  assert.equal((await problems(['secrets'])).length, 3, 'without any setting');
  const found = await problems(['secrets'], { ...others, SECRET_TTL: 'x' });
  const named = ['AUTH_TOKEN', 'SECRETS_DATABASE_URL', 'SECRET_TTL'];
  assert.deepEqual(found.map((problem) => problem.split(' ')[0]).sort(), named);
  for (const services of [[], ['letterbox'], ['identity', 'letterbox'], 'identity', undefined])
    assert.deepEqual(await problems(services, others), [
      'services must be a list of identity, secrets, webhook.',
    ]);
});

test('verify answers in the process as the route does over HTTP', async (t) => {
  stopClock(t);
  const given = { TRUSTED_PROXIES: '127.0.0.1', METRICS_PORT: '0' };
  const { at, session, makeKey, verify, url, text } = await embedIdentity(t, given);
  const { key } = await makeKey({ user_id: null, rights: ['verify'], scopes: ['orders:read'] });
  const cases: ReadonlyArray<readonly [number, Record<string, string>, string?]> = [
    [200, { authorization: `Bearer ${session}` }],
    [200, { cookie: `session=${session}` }],
    [200, { 'x-api-key': key }, 'require=scope:orders:read'],
    [403, { 'x-api-key': key }, 'require=super_admin'],
    [400, { 'x-api-key': key }, 'require=nonsense'],
    [401, {}],
    [401, { authorization: 'Bearer session:nonsense' }],
  ];
  for (const [status, headers, query = ''] of cases) {
    const here = await verify(headers, { query });
    const there = await ask('GET', `${at}/api/auth/verify?${query}`, { headers });
    assert.deepEqual([here.status, there.status], [status, status], here.body);
    for (const [name, value] of Object.entries(here.headers))
      assert.equal(there.headers.get(name), value, name);
    const { data, error } = JSON.parse(here.body);
    assert.deepEqual({ data, error }, { data: there.json.data, error: there.json.error });
  }
  const { text: metrics } = await ask('GET', `${url('metrics')}/metrics`);
  assert.match(
    metrics,
    /_total\{service="identity",route="GET \/api\/auth\/verify",status="200"\} 6$/m,
  );

  // Wrong credentials count for the network of the client, in the process and over HTTP together.
  const guess = { authorization: 'Bearer session:00000000-0000-4000-8000-000000000000' };
  const address = '192.0.2.7';
  const guesses = async () => {
    const all = Array.from({ length: 150 }, () => verify(guess, { address }));
    return (await Promise.all(all)).map(({ status }) => status);
  };
  // Of simultaneous guesses, the first are only counted.
  assert.ok((await guesses()).includes(401));
  assert.ok((await guesses()).includes(429));
  const headers = { ...guess, 'x-forwarded-for': address };
  assert.equal((await ask('GET', `${at}/api/auth/verify`, { headers })).status, 429);
  assert.equal((await verify(guess, { address: '192.0.2.8' })).status, 401);

  // An ended session is refused at the next call.
  await ask('POST', `${at}/api/auth/logout`, { body: { session } });
  assert.equal((await verify({ authorization: `Bearer ${session}` })).status, 401);
  assert.match(text(), /"message":"credential refused"/);
});

test('verify needs identity', async (t) => {
  const instance = await embed(t, ['webhook'], PLAIN);
  await assert.rejects(instance.verify({}), /verify needs the service identity/);
});

type Middleware = (
  request: IncomingMessage & { caller?: object },
  response: ServerResponse,
  next: () => unknown,
) => Promise<unknown>;

test('the middleware of embedding.md admits who may, with the scopes of the key', async (t) => {
  const gatehouse = await embedIdentity(t);
  const [, text = ''] =
    /```js\n(const requires = [^`]*?next\(\);\n\};)\n```/.exec(readDocument('docs/embedding.md')) ??
    [];
  // The text of the document, with the variable that its example has.
  const make = new Function('gatehouse', `${text}; return requires;`);
  const requires: (query: string) => Middleware = make(gatehouse);
  const middleware = requires('require=scope:orders:read');
  const server = createServer((request, response) => {
    void middleware(request, response, () => response.end(JSON.stringify(Object(request).caller)));
  });
  const port = await listenOn(t, server);
  const scopes = ['orders:read', 'orders:write'];
  const { key, user_id: id } = await gatehouse.makeKey({ scopes });
  const asked = (credential?: string) =>
    ask('GET', `http://127.0.0.1:${port}/`, credential === undefined ? {} : { bearer: credential });
  assert.deepEqual((await asked(key)).json, { id, scopes });
  assert.equal((await asked(gatehouse.session)).status, 403);
  const refused = await asked();
  assert.deepEqual([refused.status, refused.headers.get('www-authenticate')], [401, 'Bearer']);
});
