/**
 * What a service that is asked for a secret never has in its memory: the text and the private key.
 * That requests, rows and the log have neither: test/api/secrets/requests.test.ts. Reads the memory
 * of a process, as only Linux offers it.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { closeSync, openSync, readFileSync, readSync } from 'node:fs';
import { after } from 'node:test';
import { runCommand } from '../support/commands.ts';
import { createDatabase } from '../support/database.ts';
import { AUTH_TOKEN, variables } from '../support/gatehouse.ts';
import { buildProgram, startProgram } from '../support/process.ts';
import { test } from '../support/until.ts';

const program = buildProgram();
const { url: databaseUrl } = await createDatabase({ after });
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

test('neither the text nor the private key is ever in the memory of the service', async (t) => {
  const environment = { ...variables(databaseUrl), SHARE_PAGES: 'on' };
  const service = startProgram(t, program, ['serve', 'secrets'], environment);
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
