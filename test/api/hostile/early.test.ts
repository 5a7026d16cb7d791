/**
 * A listener whose service is still being loaded answers /livez, and lets all other requests wait.
 */
import assert from 'node:assert/strict';
import { BlockList } from 'node:net';
import { after, test } from 'node:test';
import { livez } from '../../../src/http/built-in-routes.ts';
import { bindRoutes, type RouteMatcher } from '../../../src/http/route.ts';
import { createBodyReader } from '../../../src/http/body-reader.ts';
import { close, createListener, listen } from '../../../src/http/server.ts';
import { createLog } from '../../../src/runtime/log.ts';
import { createMetrics } from '../../../src/runtime/prometheus.ts';
import { get } from '../../support/listener.ts';
import { connectTo, headOf, type RawClient } from '../../support/socket.ts';
import { until } from '../../support/until.ts';

/** The test decides when the routes are loaded, or fail to load. */
async function startLoading() {
  const asked: Array<{ readonly come: () => void; readonly fail: () => void }> = [];
  const lines: Array<Record<string, unknown>> = [];
  const all = bindRoutes([livez, get('/thing', async () => ({ data: 'a thing' }))], null);
  let kept: RouteMatcher | undefined;
  const metrics = createMetrics();
  const listener = createListener({
    name: 'test',
    host: '127.0.0.1',
    port: 0,
    routes: async () => {
      kept ??= await new Promise<RouteMatcher>((resolve, reject) => {
        asked.push({
          come: () => resolve(all),
          fail: () => reject(new TypeError('marked')),
        });
      });
      return kept;
    },
    style: { wrapping: 'bare', unavailable: 'unavailable' },
    maxBodyBytes: 1_024,
    readBody: createBodyReader(),
    trustedProxies: new BlockList(),
    logProbes: true,
    log: createLog('info', (line) => lines.push(JSON.parse(line))),
    metrics,
  });
  const url = `http://127.0.0.1:${await listen(listener)}`;
  after(() => close(listener, 0));
  const open = async (line: string): Promise<RawClient> => {
    const client = await connectTo(url);
    after(() => client.leave());
    client.send(headOf([`${line} HTTP/1.1`, 'Host: x']));
    return client;
  };
  const askFor = async (line: string) =>
    (await open(line)).answer(line.startsWith('HEAD') ? 'HEAD' : 'GET');
  return { asked, lines, open, askFor, metrics };
}

test('/livez is answered while the service is being loaded', async () => {
  const { asked, askFor } = await startLoading();
  for (const line of ['GET /livez', 'GET /livez?probe=1', 'HEAD /livez'])
    assert.equal((await askFor(line)).status, 200, line);
  assert.deepEqual((await askFor('GET /livez')).json, { status: 'alive' });
  assert.equal((await askFor('GET no-path')).status, 400, 'nor to refuse what no row could answer');
  assert.equal(asked.length, 0);
});

test('other requests wait until the service is loaded', async () => {
  const { asked, open, askFor, lines } = await startLoading();
  const expected: ReadonlyArray<readonly [line: string, status: number, allow?: string]> = [
    ['GET /thing', 200],
    ['GET /nothing', 404],
    ['DELETE /thing', 405, 'GET, HEAD, OPTIONS'],
    ['POST /livez', 405, 'GET, HEAD, OPTIONS'],
    ['OPTIONS /livez', 204, 'GET, HEAD, OPTIONS'],
    ['OPTIONS /thing', 204, 'GET, HEAD, OPTIONS'],
  ];
  const waiting = [];
  for (const [line] of expected) waiting.push(await open(line));
  await until(() => asked.length === expected.length, 'all of them wait');
  assert.equal((await askFor('GET /livez')).status, 200);
  assert.deepEqual(
    waiting.map((client) => client.pending()),
    expected.map(() => ''),
    'nobody was answered too early',
  );
  asked.forEach(({ come }) => come());
  for (const [index, [line, status, allow]] of expected.entries()) {
    const answer = await (waiting[index] ?? assert.fail()).answer();
    assert.deepEqual([answer.status, answer.headers.get('allow')], [status, allow], line);
  }
  for (const [line, status] of expected) assert.equal((await askFor(line)).status, status, line);
  assert.equal((await askFor('GET /livez')).status, 200);
  const routes = lines.filter(({ message }) => message === 'request').map(({ route }) => route);
  assert.deepEqual(new Set(routes), new Set(['GET /livez', 'GET /thing', '(none)']));
});

test('a service that cannot be loaded: 500, and /livez is still answered', async () => {
  const { asked, open, askFor, lines } = await startLoading();
  for (let time = 1; time <= 2; time += 1) {
    const client = await open('GET /thing');
    await until(() => asked.length === time, 'it is tried again');
    asked[time - 1]?.fail();
    const answer = await client.answer();
    assert.deepEqual([answer.status, answer.json.error.code], [500, 'internal']);
    assert.equal(answer.json._meta.request_id, answer.headers.get('x-request-id'));
    assert.ok(!answer.body.includes('marked'));
  }
  assert.equal((await askFor('GET /livez')).status, 200);
  assert.deepEqual(
    lines.filter(({ level }) => level === 'error').map(({ message, error }) => [message, error]),
    [
      ['internal error', 'TypeError'],
      ['internal error', 'TypeError'],
    ],
  );
  assert.ok(!JSON.stringify(lines).includes('marked'));
  const client = await open('GET /thing');
  await until(() => asked.length === 3);
  asked[2]?.come();
  assert.equal((await client.answer()).status, 200, 'once it can be, all is well');
});
