/** The memory of a process, as Linux shows it: how much there is, and what is never in it. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import {
  accessSync,
  closeSync,
  constants,
  mkdirSync,
  openSync,
  readFileSync,
  readSync,
  rmdirSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { runCommand } from '../support/commands.ts';
import { createDatabase } from '../support/database.ts';
import { AUTH_TOKEN, variables } from '../support/gatehouse.ts';
import { root, startProgram } from '../support/process.ts';
import { SERVICES } from '../support/settings.ts';
import { connectTo, exchange, headOf, type RawClient } from '../support/socket.ts';
import { test } from '../support/until.ts';

const { url: databaseUrl } = await createDatabase();
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

// With the settings that docs/containers.md gives, and of clients without a credential.
test('1,000 unfinished bodies do not end a process with 64 MiB', async (t) => {
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
});

const CHUNK_BYTES = 4 * 2 ** 20;

/** Which of the needles the writable memory of the process holds. */
function foundInMemory(pid: number, needles: ReadonlyMap<string, Buffer>): readonly string[] {
  const found = new Set<string>();
  const longest = Math.max(...[...needles.values()].map(({ length }) => length));
  const memory = openSync(`/proc/${pid}/mem`, 'r');
  const chunk = Buffer.alloc(CHUNK_BYTES + longest);
  const maps = readFileSync(`/proc/${pid}/maps`, 'utf8').matchAll(/^(\w+)-(\w+) rw/gm);
  for (const [, first, last] of maps) {
    const end = Number.parseInt(last ?? '', 16);
    for (let at = Number.parseInt(first ?? '', 16); at < end; at += CHUNK_BYTES) {
      const bytes = read(memory, chunk.subarray(0, end - at), at);
      for (const [name, needle] of needles) {
        if (bytes.includes(needle)) found.add(name);
      }
    }
  }
  closeSync(memory);
  return [...found].sort();
}

function read(file: number, into: Buffer, position: number): Buffer {
  try {
    return into.subarray(0, readSync(file, into, 0, into.length, position));
  } catch {
    // The kernel's own pages cannot be read.
    return Buffer.alloc(0);
  }
}

// That requests, rows and the log have neither: test/api/secrets/requests.test.ts.
test('neither the text nor the private key is ever in the memory of the service', async (t) => {
  const environment = { ...variables(databaseUrl), SHARE_PAGES: 'on' };
  const service = startProgram(t, root, ['serve', 'secrets'], environment);
  await service.ready('secrets');
  const own = { GATEHOUSE_URL: await service.url('secrets'), AUTH_TOKEN };
  const title = `title-${randomBytes(12).toString('hex')}`;
  const text = `text-${randomBytes(24).toString('hex')}`;

  const asked = await runCommand(['secret', 'request', title], own);
  assert.equal(asked.code, 0, asked.stderr);
  const [send = '', keep = ''] = asked.stdout.trimEnd().split('\n');
  assert.equal((await runCommand(['secret', 'answer'], {}, `${send}\n${text}`)).code, 0);
  const opened = await runCommand(['secret', 'get'], {}, keep);
  assert.equal(opened.stdout.trimEnd(), text);

  const [, privateKey = ''] = /\.([\w-]{48})$/.exec(keep) ?? [];
  assert.notEqual(privateKey, '');
  const scalar = Buffer.from(privateKey, 'base64url').subarray(0, 32);
  const needles = new Map([
    ['the title', Buffer.from(title)],
    ['the text', Buffer.from(text)],
    ['the text in 16 bits', Buffer.from(text, 'utf16le')],
    ['the private key', scalar],
    ['the private key in the link', Buffer.from(privateKey.slice(0, 42))],
  ]);
  // The title proves that the search finds what is there.
  assert.deepEqual(foundInMemory(service.pid, needles), ['the title']);
});
