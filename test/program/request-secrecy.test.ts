/**
 * What a service that is asked for a secret never has: neither the text nor the private key is in a
 * request, a row, a log line, or the memory of the process. Reads the memory of a process, as only
 * Linux offers it.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { closeSync, openSync, readFileSync, readSync } from 'node:fs';
import { createServer, request as httpRequest } from 'node:http';
import { after } from 'node:test';
import { runCommand } from '../support/commands.ts';
import { createDatabase } from '../support/database.ts';
import { AUTH_TOKEN, variables } from '../support/gatehouse.ts';
import { buildProgram, startProgram } from '../support/process.ts';
import { test } from '../support/until.ts';
import { listenOn } from '../support/ports.ts';

const program = buildProgram();
const { url: databaseUrl, sql } = await createDatabase({ after });
const CHUNK_BYTES = 4 * 2 ** 20;

/** Passes requests on. @returns its address, and all bytes that it has passed to the service */
async function startWitness(target: string) {
  const seen: Buffer[] = [];
  const server = createServer((incoming, outgoing) => {
    const { method = '', url = '', headers } = incoming;
    seen.push(Buffer.from(`${method} ${url} ${JSON.stringify(headers)}`));
    const passed = httpRequest(`${target}${url}`, { method, headers }, (reply) => {
      outgoing.writeHead(reply.statusCode ?? 0, reply.headers);
      reply.pipe(outgoing);
    });
    incoming.on('data', (chunk: Buffer) => seen.push(chunk)).pipe(passed);
  });
  const port = await listenOn({ after }, server);
  return { url: `http://127.0.0.1:${port}`, seen: () => Buffer.concat(seen) };
}

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

/** Every row of the service, with binary values in hexadecimal digits. */
async function allRows(): Promise<string> {
  const tables = await sql`
    select table_name as name from information_schema.tables where table_schema = 'secrets'`;
  const rows = await Promise.all(
    tables.map(({ name }) => sql`select t::text as text from secrets.${sql(name)} t`),
  );
  return rows
    .flat()
    .map((row) => String(row.text))
    .join('\n');
}

test('neither the text nor the private key reaches the service', async (t) => {
  const environment = { ...variables(databaseUrl), SHARE_PAGES: 'on' };
  const service = startProgram(t, program, ['serve', 'secrets'], environment);
  await service.ready('secrets');
  const witness = await startWitness(await service.url('secrets'));
  const own = { GATEHOUSE_URL: witness.url, AUTH_TOKEN };
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
  const rows = await allRows();
  const places = new Map([
    ['requests', witness.seen()],
    ['rows', Buffer.from(rows)],
    ['log', Buffer.from(service.stdout() + service.stderr())],
  ]);
  for (const [place, bytes] of places) {
    for (const [name, needle] of needles) {
      const isFound = bytes.includes(needle) || bytes.includes(needle.toString('hex'));
      const isExpected = name === 'the title' && place !== 'log';
      assert.equal(isFound, isExpected, `${name} in ${place}`);
    }
  }
});
