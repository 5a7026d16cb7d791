/** What a server without TLS hears before anything is secret, in each mode. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ask, openConnections } from '../../support/connections.ts';
import { listenOnTcp } from '../../support/socket.ts';

/**
 * PostgreSQL, "Message Formats": an SSLRequest is a length of 8 and this number; a StartupMessage
 * begins with its length and 3.0.
 */
const SSL_REQUEST = 80_877_103;
const PROTOCOL_3_0 = 196_608;
const TLS_HANDSHAKE = 0x16;

for (const [mode, ...expected] of [
  ['disable', PROTOCOL_3_0],
  ['prefer', SSL_REQUEST, PROTOCOL_3_0],
  ['require', SSL_REQUEST, TLS_HANDSHAKE],
  ['verify-ca', SSL_REQUEST, TLS_HANDSHAKE],
  ['verify-full', SSL_REQUEST, TLS_HANDSHAKE],
] as const) {
  test(`sslmode=${mode}, where the server has no TLS: ${expected.join(', then ')}`, async (t) => {
    const heard: unknown[] = [];
    const port = await listenOnTcp(t, (socket) =>
      socket.on('data', (bytes) => {
        const message = bytes[0] === TLS_HANDSHAKE ? TLS_HANDSHAKE : bytes.readInt32BE(4);
        heard.push(message);
        if (message === SSL_REQUEST) socket.write('N');
        else socket.destroy();
      }),
    );
    const url = `postgres://user:word@127.0.0.1:${port}/d?sslmode=${mode}`;
    const answer = ask(openConnections(t, url, 'wire'), 'read', 'select 1');
    await assert.rejects(answer, { isTemporary: true });
    assert.deepEqual(heard, expected);
  });
}
