/**
 * The settings that docs/containers.md gives for 64 MiB, under unfinished bodies of clients without
 * a credential.
 */
import assert from 'node:assert/strict';
import { accessSync, constants, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { createDatabase } from '../support/database.ts';
import { variables } from '../support/gatehouse.ts';
import { root, startProgram } from '../support/process.ts';
import { SERVICES } from '../support/settings.ts';
import { connectTo, exchange, headOf, type RawClient } from '../support/socket.ts';

const MEMORY = 64 * 1024 * 1024;
const CONNECTIONS = 1_000;
const CGROUPS = '/sys/fs/cgroup/memory';

/** The `export` lines below "For 64 MiB". */
function documentedSettings(): Record<string, string> {
  const text = readFileSync(join(root, 'docs/containers.md'), 'utf8');
  const [, block = ''] = /For 64 MiB[^`]*```\n([^`]*)```/.exec(text) ?? [];
  const assignments = [...block.matchAll(/([A-Z_]+)=("([^"]*)"|\S+)/g)];
  return Object.fromEntries(
    assignments.map(([, name = '', bare = '', quoted]) => [name, quoted ?? bare]),
  );
}

/** A kernel limit of 64 MiB, where this user may set one. */
function limitedGroup(): string | null {
  const group = join(CGROUPS, `gatehouse-${process.pid}`);
  try {
    accessSync(CGROUPS, constants.W_OK);
    mkdirSync(group);
    writeFileSync(join(group, 'memory.limit_in_bytes'), String(MEMORY));
    return group;
  } catch {
    return null;
  }
}

const anonymousBytes = (pid: number) =>
  Number(/^RssAnon:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024;

test(
  '1,000 unfinished bodies do not end a process with 64 MiB',
  { timeout: 120_000 },
  async (t) => {
    const { url: databaseUrl } = await createDatabase(t);
    const group = limitedGroup();
    if (group !== null) t.after(() => rmdirSync(group));
    const settings = documentedSettings();
    assert.equal(settings.PASSWORD_HASHES, '1', 'the settings were found');
    const running = startProgram(
      t,
      root,
      ['serve'],
      { ...variables(databaseUrl), ...settings },
      group === null ? {} : { cgroup: group },
    );
    await running.ready(...SERVICES);
    const url = await running.url('identity');
    const idle = anonymousBytes(running.pid);
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
      assert.ok(
        anonymousBytes(running.pid) - idle < 48 * 1024 * 1024,
        'the bodies take bounded memory',
      );
      for (const client of clients) client.leave();
    }
    running.signal('SIGTERM');
    assert.deepEqual(await running.ended, { code: 0, signal: null });
  },
);
