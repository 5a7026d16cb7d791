/** The library: services in the process of another program. */
import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { test, type TestContext } from 'node:test';
import {
  ConfigurationError,
  type Gatehouse,
  start,
  type StartOptions,
  StartupError,
} from '../../src/index.ts';
import { createEmptyDatabase } from '../support/database.ts';
import { ask, AUTH_TOKEN, logIn, variables } from '../support/gatehouse.ts';

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

const SIGNALS = [
  'SIGINT',
  'SIGTERM',
  'SIGHUP',
  'SIGUSR1',
  'SIGUSR2',
  'uncaughtException',
  'unhandledRejection',
];
const listeners = (...names: readonly string[]) => names.map((name) => process.listenerCount(name));

test('two instances in one process are independent', async (t) => {
  const signals = listeners(...SIGNALS);
  const exits = process.listenerCount('exit');
  const one = await createEmptyDatabase(t);
  const other = await createEmptyDatabase(t);
  const settings = {
    ...variables(one.url),
    METRICS_PORT: '0',
    ADMIN_PASSWORD: 'that-of-the-first-instance',
  };
  const first = await embed(t, ['identity', 'secrets', 'webhook'], settings);
  const second = await embed(t, ['identity'], {
    ...variables(other.url),
    ADMIN_PASSWORD: 'that-of-the-second-one',
  });
  assert.deepEqual(Object.keys(first.ports).sort(), ['identity', 'metrics', 'secrets', 'webhook']);
  assert.deepEqual(Object.keys(second.ports), ['identity']);
  await Promise.all([first.ready, second.ready]);
  assert.deepEqual(listeners(...SIGNALS), signals, 'no signal is handled');
  const session = await logIn(first.url('identity'), 'admin', 'that-of-the-first-instance');
  await logIn(second.url('identity'), 'admin', 'that-of-the-second-one');
  assert.equal(
    (await ask('GET', `${second.url('identity')}/api/test/`, { bearer: session })).status,
    401,
  );
  const kept = await ask('POST', `${first.url('secrets')}/api/store/encrypt`, {
    bearer: AUTH_TOKEN,
    body: { password: 'x' },
  });
  assert.equal(kept.status, 201);
  assert.match(
    (await ask('GET', `${first.url('metrics')}/metrics`)).text,
    /^gatehouse_requests_total\{service="secrets"/m,
  );
  assert.match(first.text(), /"service":"secrets","message":"ready"/);
  assert.doesNotMatch(second.text(), /"service":"secrets"/);

  await first.stop();
  await assert.rejects(fetch(`${first.url('secrets')}/livez`));
  await logIn(second.url('identity'), 'admin', 'that-of-the-second-one');
  await Promise.all([second.stop(), second.stop()]);
  await assert.rejects(fetch(`${second.url('identity')}/livez`));
  // The test runner may remove one of its own.
  assert.ok(process.listenerCount('exit') <= exits);
});

test('twelve instances in one process cause no warning of Node', async (t) => {
  const warnings: string[] = [];
  const onWarning = ({ message }: Error) => warnings.push(message);
  process.on('warning', onWarning);
  t.after(() => process.off('warning', onWarning));
  const settings = { ...variables('postgres://nobody@localhost/none'), WEBHOOK_VARIANT: 'plain' };
  const instances = await Promise.all(
    Array.from({ length: 12 }, () => embed(t, ['webhook'], settings)),
  );
  await Promise.all(instances.map(({ ready }) => ready));
  await Promise.all(instances.map(({ stop }) => stop()));
  // Node emits its warnings in the next turn of the event loop.
  await new Promise(setImmediate);
  assert.deepEqual(warnings, []);
});

test('an instance can be stopped before it is ready, and one after the other can use a port', async (t) => {
  const { url } = await createEmptyDatabase(t);
  const away = Object.assign(new URL(url), { port: '1' }).href;
  const waiting = await embed(t, ['secrets'], variables(away));
  await waiting.stop();
  await assert.rejects(waiting.ready, /stopped before it was ready/);
  const next = await embed(t, ['secrets'], {
    ...variables(url),
    SECRETS_PORT: String(waiting.ports.secrets),
  });
  await next.ready;
  assert.deepEqual(next.ports, waiting.ports);
});

test('all wrong settings are reported together, and the environment is not read', async (t) => {
  process.env.AUTH_TOKEN = AUTH_TOKEN;
  t.after(() => delete process.env.AUTH_TOKEN);
  const problems = async (services: unknown, settings?: StartOptions['settings']) => {
    // As a program without types may call it.
    const called: Promise<Gatehouse> = Reflect.apply(start, undefined, [{ services, settings }]);
    const error = await called.then(
      () => assert.fail('it started'),
      (reason: unknown) => reason,
    );
    assert.ok(error instanceof ConfigurationError);
    return error.problems;
  };
  const {
    DATABASE_URL,
    AUTH_TOKEN: _,
    ...others
  } = variables('postgres://gatehouse@127.0.0.1:1/x');
  assert.equal((await problems(['secrets'])).length, 3, 'without any setting');
  const found = await problems(['secrets'], { ...others, SECRET_TTL: 'x' });
  assert.equal(found.length, 3);
  for (const name of ['DATABASE_URL', 'AUTH_TOKEN', 'SECRET_TTL'])
    assert.ok(
      found.some((problem) => problem.includes(name)),
      name,
    );
  for (const services of [[], ['letterbox'], ['identity', 'letterbox'], 'identity', undefined]) {
    assert.deepEqual(await problems(services, others), [
      'services must be a list of identity, secrets, webhook.',
    ]);
  }
  assert.ok(DATABASE_URL);
});

test('a port in use rejects the start, a rejecting database rejects ready; nothing stays open', async (t) => {
  const { url } = await createEmptyDatabase(t);
  const first = await embed(t, ['secrets'], variables(url));
  const taken = {
    ...variables(url),
    IDENTITY_PORT: '0',
    SECRETS_PORT: String(first.ports.secrets),
  };
  await assert.rejects(embed(t, ['identity', 'secrets'], taken), (error) => {
    assert.ok(error instanceof StartupError);
    assert.match(error.message, /^secrets cannot listen on 127\.0\.0\.1:\d+ \(EADDRINUSE\)/);
    return true;
  });
  const nowhere = Object.assign(new URL(url), { pathname: '/nowhere' }).href;
  const refused = await embed(t, ['secrets'], variables(nowhere));
  await assert.rejects(refused.ready, /SQLSTATE 3D000/);
  await assert.rejects(fetch(`${refused.url('secrets')}/livez`));
  await refused.stop();
});
