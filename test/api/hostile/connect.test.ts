/**
 * CONNECT asks for a tunnel and TRACE for an echo. No service offers them, and neither must affect
 * other clients. Nor must a connection that cannot be accepted.
 */
import assert from 'node:assert/strict';
import { get, post, slowGuard, startListener } from '../../support/listener.ts';
import { connectTo, exchange } from '../../support/socket.ts';
import { test } from '../../support/until.ts';

const CONNECT = 'CONNECT gatehouse.test:1 HTTP/1.1\r\nHost: gatehouse.test\r\n\r\n';
const rows = [get('/a', async () => ({ data: 'a' }))];
const getA = (url: string) => exchange(url, ['GET /a HTTP/1.1', 'Host: x']);

test('CONNECT followed by a reset does not harm the process', async (t) => {
  const { url } = await startListener(t, rows);
  for (let turns = 0; turns < 30; turns += 1) {
    const { socket } = await connectTo(url);
    await new Promise((resolve) => socket.write(CONNECT, resolve));
    for (let left = turns; left > 0; left -= 1) await new Promise(setImmediate);
    socket.resetAndDestroy();
    assert.equal((await getA(url)).status, 200);
  }
});

test('CONNECT gets 400, and a half-open connection does not delay the shutdown', async (t) => {
  const { url, requests, close } = await startListener(t, rows);
  const client = await connectTo(url);
  client.socket.allowHalfOpen = true;
  client.send(CONNECT);
  assert.equal((await client.answer()).status, 400);
  assert.deepEqual(
    requests().map(({ route, status }) => [route, status]),
    [['(unreadable)', 400]],
  );
  // With no grace at all: it would wait for this client for ever.
  await close(0);
  client.leave();
});

test('CONNECT behind a request without a reply is not answered in its place', async (t) => {
  const { guard, entered, release } = slowGuard();
  const { url } = await startListener(t, [post('/slow', guard)]);
  const client = await connectTo(url);
  client.send('POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}');
  await entered;
  client.send(CONNECT);
  assert.equal(await client.closed(), '');
  release();
});

test('TRACE gets 405 and no echo of its headers (ASVS 13.4.4)', async (t) => {
  const { url } = await startListener(t, rows);
  const { status, body } = await exchange(url, ['TRACE /a HTTP/1.1', 'Host: x', 'X-Secret: 4b1d']);
  assert.equal(status, 405);
  assert.doesNotMatch(body, /4b1d/);
});

test('a connection that cannot be accepted is logged, and the next one is served', async (t) => {
  const { server, url, lines } = await startListener(t, rows);
  // As Node reports it if no file is left, which depends on the limits of the machine.
  server.emit('error', Object.assign(new Error('accept EMFILE'), { code: 'EMFILE' }));
  assert.equal((await getA(url)).status, 200);
  const [line] = lines().filter(({ level }) => level === 'error');
  assert.deepEqual([line?.message, line?.code], ['a connection was not accepted', 'EMFILE']);
});
