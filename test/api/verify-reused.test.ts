/** SIGNIN_VERIFY_URL: identity, or a proxy in front of it, may close a kept connection at any time. */
import assert from 'node:assert/strict';
import { after } from 'node:test';
import { ask, launch } from '../support/gatehouse.ts';
import { listenOnTcp } from '../support/socket.ts';
import { test } from '../support/until.ts';

const USER =
  'HTTP/1.1 200 OK\r\nx-auth-username: ada\r\ncontent-length: 0\r\nconnection: keep-alive\r\n\r\n';
const COOKIE = `session=${'a'.repeat(44)}`;

/** Each connection answers one request, and ends without a reply when the next one arrives. */
let requests = 0;
const port = await listenOnTcp({ after }, (socket) => {
  let isUsed = false;
  socket.on('data', () => {
    requests += 1;
    if (isUsed) return socket.resetAndDestroy();
    isUsed = true;
    return socket.write(USER);
  });
});
const verify = `http://127.0.0.1:${port}/api/auth/verify`;

test('each question has a connection of its own', async (t) => {
  const settings = { SHARE_PAGES: 'on', SIGNIN_VERIFY_URL: verify };
  const { secrets } = await launch(['secrets'], settings, t);
  for (let count = 0; count < 4; count += 1) {
    const { status, json, text } = await ask('GET', `${secrets}/api/store/options`, {
      headers: { cookie: COOKIE, 'sec-fetch-site': 'same-origin' },
    });
    assert.deepEqual([status, json.caller?.user], [200, 'ada'], text);
  }
  assert.equal(requests, 4, 'none was sent on a connection that had answered');
});
