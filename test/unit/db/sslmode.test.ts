/**
 * What goes over the wire before anything is secret: looked at byte by byte, by a server that has
 * no TLS.
 */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { Unavailable } from '../../../src/platform/runtime/errors.ts';
import { ask, openConnections } from '../../support/connections.ts';
import { listenOnTcp } from '../../support/socket.ts';

/**
 * PostgreSQL, "Message Formats": an SSLRequest is a length of 8 and this number; a StartupMessage
 * begins with its length and 3.0.
 */
const SSL_REQUEST = 80_877_103;
const PROTOCOL_3_0 = 196_608;
const TLS_HANDSHAKE = 0x16;

/** Refuses TLS, and writes down what comes. */
async function listen(t: TestContext): Promise<{ port: number; heard: string[] }> {
  const heard: string[] = [];
  const port = await listenOnTcp(t, (socket) => {
    socket.on('data', (bytes) => {
      const number = bytes.length >= 8 ? bytes.readInt32BE(4) : 0;
      if (number === SSL_REQUEST) {
        heard.push('asks for TLS');
        socket.write('N');
      } else {
        if (bytes[0] === TLS_HANDSHAKE) heard.push('insists on TLS');
        else if (number === PROTOCOL_3_0) heard.push('goes on in the clear');
        else heard.push('something else');
        socket.destroy();
      }
    });
  });
  return { port, heard };
}

const modes: ReadonlyArray<readonly [mode: string, heard: readonly string[]]> = [
  ['disable', ['goes on in the clear']],
  ['prefer', ['asks for TLS', 'goes on in the clear']],
  ['require', ['asks for TLS', 'insists on TLS']],
  ['verify-ca', ['asks for TLS', 'insists on TLS']],
  ['verify-full', ['asks for TLS', 'insists on TLS']],
];

for (const [mode, expected] of modes) {
  test(`sslmode=${mode}, where the server has no TLS: ${expected.join(', then ')}`, async (t) => {
    const { port, heard } = await listen(t);
    const database = openConnections(
      t,
      `postgres://user:word@127.0.0.1:${port}/d?sslmode=${mode}`,
      'wire',
    );
    await assert.rejects(
      ask(database, 'read', 'select 1'),
      (error) => error instanceof Unavailable && error.isTemporary,
    );
    assert.deepEqual(heard, expected);
  });
}
