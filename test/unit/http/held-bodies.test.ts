/** When the connections of a network are not read, because its bodies have no room. */
import assert from 'node:assert/strict';
import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { test } from 'node:test';
import { createBodyReader } from '../../../src/platform/http/wire/body-reader.ts';

const SIZE = 60_000;
/** Of so many bodies, the last ones do not fit into the share of a network. */
const BODIES = 40;

test('connections of proxies stay paused until each client network has room again', async () => {
  const bodies = createBodyReader();
  const fill = (network: string) =>
    Promise.all(
      Array.from({ length: BODIES }, () => {
        const request = new IncomingMessage(new Socket());
        request.push(Buffer.alloc(SIZE));
        request.complete = true;
        return bodies.hold(request, network, null);
      }),
    );
  const one = await fill('192.0.2.1');
  const other = await fill('192.0.2.2');
  const changed = () => new Promise<void>((resolve) => bodies.onPause(() => resolve()));
  assert.equal(bodies.isPaused(null), true);

  const oneEnded = changed();
  for (const { release } of one) release();
  await oneEnded;
  assert.equal(bodies.isPaused(null), true);

  const bothEnded = changed();
  for (const { release } of other) release();
  await bothEnded;
  assert.equal(bodies.isPaused(null), false);
  assert.equal(bodies.isPaused('192.0.2.1'), false);
});
