/** The memory of a process, as Linux shows it. `make e2e NAME=image` sets a limit. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createDatabase } from '../support/database.ts';
import { readDocument } from '../support/documents.ts';
import { variables } from '../support/gatehouse.ts';
import { root, startProgram } from '../support/process.ts';
import { SERVICES } from '../support/settings.ts';
import { connectTo, exchange, headOf, type RawClient } from '../support/socket.ts';
import { test } from '../support/until.ts';

const { url: databaseUrl } = await createDatabase();
const CONNECTIONS = 1_000;

/** The `export` lines below "For 64 MiB". */
function documentedSettings(): Record<string, string> {
  const [, block = ''] =
    /For 64 MiB[^`]*```\n([^`]*)```/.exec(readDocument('docs/containers.md')) ?? [];
  const assignments = [...block.matchAll(/([A-Z_]+)=("([^"]*)"|\S+)/g)];
  return Object.fromEntries(
    assignments.map(([, name = '', bare = '', quoted]) => [name, quoted ?? bare]),
  );
}

/** What the process has, and the most that it had, in kB. */
const memoryOf = (pid: number) => {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const read = (name: string) =>
    Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(status)?.[1]);
  return { now: read('VmRSS'), most: read('VmHWM') };
};

// With the settings that docs/containers.md gives, and of clients without a credential.
test('1,000 unfinished bodies do not end a process with 64 MiB', async (t) => {
  const settings = documentedSettings();
  assert.equal(settings.PASSWORD_HASHES, '1', 'the settings were found');
  const running = startProgram(t, root, ['serve'], { ...variables(databaseUrl), ...settings });
  await running.ready(...SERVICES);
  const url = await running.url('identity');
  const idle = memoryOf(running.pid).now;
  for (const size of [64 * 1024, 8 * 1024]) {
    const clients: RawClient[] = [];
    for (let n = 0; n < CONNECTIONS; n += 1) {
      const client = await connectTo(url, `127.0.1.${1 + (n % 8)}`);
      clients.push(client);
      client.send(
        headOf(['POST /api/auth/login HTTP/1.1', 'Host: a', `Content-Length: ${size}`]),
        ' '.repeat(size - 1),
      );
    }
    const body = JSON.stringify({ username: 'nobody', password: 'wrong' });
    const answer = await exchange(
      url,
      ['POST /api/auth/login HTTP/1.1', 'Host: a', `Content-Length: ${body.length}`],
      body,
      '127.0.2.1',
    );
    assert.equal(answer.status, 401, `another client is served beside bodies of ${size} bytes`);
    const more = memoryOf(running.pid).most - idle;
    assert.ok(more < 48 * 1024, `the bodies take ${more} kB`);
    for (const client of clients) client.leave();
  }
  running.signal('SIGTERM');
  assert.deepEqual(await running.ended, { code: 0, signal: null });
});
