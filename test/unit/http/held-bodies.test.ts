/** When the connections of a network are not read, because its bodies have no room. */
import assert from 'node:assert/strict';
import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { createBodyReader } from '../../../src/platform/http/wire/body-reader.ts';
import { createHeldBodies } from '../../../src/platform/http/wire/held-bodies.ts';
import { test, until } from '../../support/until.ts';

const SIZE = 60_000;
/** Of so many bodies, the last ones do not fit into the share of a network. */
const BODIES = 40;

test('connections of proxies stay paused until each client network has room again', async () => {
  const { addIdle, hold } = createHeldBodies(createBodyReader().held);
  const connect = (network: string | null) => {
    const socket = new Socket();
    addIdle({ socket, network });
    return socket;
  };
  const fill = (network: string) =>
    Promise.all(
      Array.from({ length: BODIES }, () => {
        const request = new IncomingMessage(new Socket());
        request.push(Buffer.alloc(SIZE));
        request.headers = { 'transfer-encoding': 'chunked' };
        request.complete = true;
        return hold(request, network, null);
      }),
    );
  const before = connect(null);
  const client = connect('192.0.2.1');
  const one = await fill('192.0.2.1');
  const after = connect(null);
  const other = await fill('192.0.2.2');
  await until(() => after.isPaused(), 'a new connection is paused');
  assert.deepEqual([before.isPaused(), client.isPaused()], [true, false]);

  for (const { release } of one) release();
  await new Promise(setImmediate);
  assert.deepEqual([before.isPaused(), after.isPaused()], [true, true]);

  for (const { release } of other) release();
  await until(() => !before.isPaused() && !after.isPaused(), 'both are read again');
  assert.equal(client.isPaused(), false);
});
