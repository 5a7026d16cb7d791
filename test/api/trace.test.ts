/**
 * `traceparent` (W3C Trace Context) in the log: a valid trace id, and nothing else of the header.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { Failure } from '../../src/platform/http/route/errors.ts';
import { get, post, startListener } from '../support/listener.ts';
import { ask } from '../support/gatehouse.ts';
import { until } from '../support/until.ts';

const listener = await startListener({ after }, [
  get('/fine', async () => ({ data: 'fine' })),
  post('/refused', {
    security: ['token'],
    errors: ['unauthorized'],
    check: async () => new Failure('unauthorized', { credential: 'token' }),
  }),
  get('/broken', async () => Promise.reject(new Error('broken'))),
]);

const ID = '4bf92f3577b34da6a3ce929d0e0e4736';
const PARENT = '00f067aa0ba902b7';
const VALID = `00-${ID}-${PARENT}-01`;

/** @returns the trace ids of all log lines about one request */
async function traced(path: string, traceparent: string) {
  const requestId = `request-${Math.random().toString(36).slice(2)}`;
  await ask(path === '/refused' ? 'POST' : 'GET', `${listener.url}${path}`, {
    headers: { traceparent, 'x-request-id': requestId },
  });
  const lines = () => listener.lines().filter((line) => line.request_id === requestId);
  // It is written after the reply.
  await until(() => lines().some(({ message }) => message === 'request'), 'its line');
  return lines().map(({ trace_id }) => trace_id);
}

test('a valid trace id is in every line of the listener about the request', async () => {
  assert.deepEqual(await traced('/fine', VALID), [ID]);
  assert.deepEqual(await traced('/refused', VALID), [ID, ID]);
  assert.deepEqual(await traced('/broken', VALID), [ID, ID]);
  assert.deepEqual(await traced('/nowhere', VALID), [ID]);
});

test('a later version may have more members', async () => {
  const later = `cc-${ID}-${PARENT}-01-what-the-future-brings`;
  assert.deepEqual(await traced('/fine', later), [ID]);
});

const INVALID = [
  '',
  ID,
  `ff-${ID}-${PARENT}-01`,
  `00-${ID}-${PARENT}-1`,
  `00-${ID}-${PARENT}-0g`,
  `00-${ID}-${PARENT}-01-more`,
  `01-${ID}-${PARENT}-01more`,
  `00-${ID.toUpperCase()}-${PARENT}-01`,
  `00-${'0'.repeat(32)}-${PARENT}-01`,
  `00-${ID}-${'0'.repeat(16)}-01`,
  `00-${ID}0-${PARENT}-01`,
  `${VALID}, ${VALID}`,
  `x${VALID}`,
];
test('any other value is ignored', async () => {
  for (const value of INVALID) assert.deepEqual(await traced('/fine', value), [undefined], value);
});
