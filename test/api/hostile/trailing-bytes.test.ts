/** Bytes behind complete requests: the replies are sent, then the connection closes. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { get, startListener } from '../../support/listener.ts';
import { connectTo, headOf } from '../../support/socket.ts';

const { url } = await startListener({ after }, [
  get('/a', async () => {
    await new Promise(setImmediate);
    return { data: 'a' };
  }),
]);
const REQUEST = headOf(['GET /a HTTP/1.1', 'Host: a']);
const LAST = headOf(['GET /a HTTP/1.1', 'Host: a', 'Connection: close']);

for (const [what, text, replies] of [
  ['a NUL behind a request', `${REQUEST}\0`, 1],
  ['garbage behind two requests', `${REQUEST}${REQUEST}\0\0garbage`, 2],
  ['a space behind the last request', `${LAST} `, 1],
  ['a request behind the last request', `${LAST}${REQUEST}`, 1],
] as const) {
  test(`${what}: ${replies} replies, then the end`, async () => {
    const client = await connectTo(url);
    client.send(text);
    for (let count = 0; count < replies; count += 1) {
      const { status, json } = await client.answer();
      assert.deepEqual([status, json], [200, 'a']);
    }
    assert.equal(await client.closed(), '');
  });
}
