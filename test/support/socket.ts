/**
 * Bytes on a socket: a client that sends exactly the given ones and accepts only correct HTTP/1.1,
 * and a server.
 */
import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { connect as open, createServer, type Socket } from 'node:net';
import type { TestContext } from 'node:test';
import { listenOn } from './ports.ts';

export interface RawAnswer {
  readonly status: number;
  /** By lower-case name. */
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
  /** The parsed body. */
  readonly json: any;
}

export type RawClient = Awaited<ReturnType<typeof connectTo>>;

/**
 * @param url `http://127.0.0.1:…`
 * @param from the client's address: Linux has all of 127.0.0.0/8
 */
export async function connectTo(url: string, from?: string) {
  const { hostname, port } = new URL(url);
  const local = from === undefined ? {} : { localAddress: from };
  const socket = open({ host: hostname, port: Number(port), ...local });
  await once(socket, 'connect');
  let bytes = Buffer.alloc(0);
  let reason = 'the connection was closed';
  let isOver = false;
  const waiting = new Set<() => void>();
  const more = () => new Promise<void>((resolve) => waiting.add(resolve));
  const notify = () => {
    for (const goOn of waiting) goOn();
    waiting.clear();
  };
  socket.on('data', (chunk: Buffer) => {
    bytes = Buffer.concat([bytes, chunk]);
    notify();
  });
  // Tests look at what arrived before a reset.
  socket.on('error', (error) => {
    reason = error.message;
  });
  socket.on('close', () => {
    isOver = true;
    notify();
  });
  return {
    socket,
    send(...parts: ReadonlyArray<string | Buffer>) {
      for (const part of parts) socket.write(part);
    },
    /** The next complete reply. Rejects if the connection ends first. */
    async answer(to: 'GET' | 'HEAD' = 'GET'): Promise<RawAnswer> {
      for (;;) {
        const taken = parseAnswer(bytes, to === 'HEAD');
        if (taken) {
          bytes = bytes.subarray(taken.length);
          return taken.answer;
        }
        const text = JSON.stringify(bytes.toString('latin1').slice(0, 400));
        if (isOver) throw new Error(`no complete reply (${reason}): ${text}`);
        await more();
      }
    },
    /** Resolves when the connection is closed, with the bytes received after the last reply. */
    async closed() {
      while (!isOver) await more();
      return bytes.toString('utf8');
    },
    /** The bytes received after the last reply. */
    pending: () => bytes.toString('utf8'),
    leave: () => {
      socket.destroy();
    },
  };
}

/**
 * Requests on connections of their own, sent at once so that they arrive in one turn.
 * @returns the replies in order
 */
export async function exchangeAtOnce(
  url: string,
  requests: readonly string[],
): Promise<RawAnswer[]> {
  const clients = await Promise.all(requests.map(() => connectTo(url)));
  try {
    // Node accepts one connection for each turn of its event loop. All are accepted once all have a
    // reply.
    for (const client of clients) client.send(headOf(['GET /livez HTTP/1.1', 'Host: gatehouse']));
    await Promise.all(clients.map((client) => client.answer()));
    for (const [index, client] of clients.entries()) client.send(requests[index] ?? '');
    return await Promise.all(clients.map((client) => client.answer()));
  } finally {
    for (const client of clients) client.leave();
  }
}

/**
 * One request on a connection of its own.
 * @param head request line and headers, without the empty line
 */
export async function exchange(
  url: string,
  head: readonly string[],
  body: string | Buffer = '',
  from?: string,
): Promise<RawAnswer> {
  const client = await connectTo(url, from);
  try {
    client.send(headOf(head), body);
    return await client.answer(head[0]?.startsWith('HEAD ') ? 'HEAD' : 'GET');
  } finally {
    client.leave();
  }
}

export const headOf = (lines: readonly string[]): string => `${lines.join('\r\n')}\r\n\r\n`;

interface Taken {
  readonly answer: RawAnswer;
  readonly length: number;
}

/** @returns null while bytes are missing; throws if they cannot become a correct reply */
function parseAnswer(bytes: Buffer, headOnly: boolean): Taken | null {
  const end = bytes.indexOf('\r\n\r\n');
  if (end < 0) return null;
  const [statusLine = '', ...lines] = bytes.subarray(0, end).toString('latin1').split('\r\n');
  const status = Number(/^HTTP\/1\.1 ([1-5][0-9]{2}) [\x20-\x7e]*$/.exec(statusLine)?.[1]);
  assert.ok(status, `not a status line: ${statusLine.slice(0, 200)}`);
  const headers = new Map<string, string>();
  for (const line of lines) {
    const [, name = '', value = ''] =
      /^([!#$%&'*+.^_`|~0-9A-Za-z-]+): ?([^\x00-\x1f]*)$/.exec(line) ?? [];
    assert.ok(name !== '', `not a header: ${line}`);
    assert.ok(!headers.has(name.toLowerCase()), `the header ${name} twice`);
    headers.set(name.toLowerCase(), value);
  }
  const rest = bytes.subarray(end + 4);
  const found =
    headOnly || status < 200 || status === 204
      ? { body: Buffer.alloc(0), length: 0 }
      : parseBody(headers, rest);
  if (!found) return null;
  const body = found.body.toString('utf8');
  const json: unknown =
    headers.get('content-type')?.startsWith('application/json') && body !== ''
      ? JSON.parse(body)
      : undefined;
  return { answer: { status, headers, body, json }, length: end + 4 + found.length };
}

function parseBody(
  headers: ReadonlyMap<string, string>,
  rest: Buffer,
): { body: Buffer; length: number } | null {
  if (headers.get('transfer-encoding') === 'chunked') {
    assert.ok(!headers.has('content-length'), 'both Transfer-Encoding and Content-Length');
    return parseChunks(rest);
  }
  const announced = headers.get('content-length') ?? '';
  assert.match(announced, /^[0-9]+$/, 'a reply must state its length');
  const length = Number(announced);
  return rest.length < length ? null : { body: rest.subarray(0, length), length };
}

function parseChunks(rest: Buffer): { body: Buffer; length: number } | null {
  const chunks: Buffer[] = [];
  for (let at = 0; ;) {
    const line = rest.indexOf('\r\n', at);
    if (line < 0) return null;
    const size = Number.parseInt(rest.subarray(at, line).toString('latin1'), 16);
    assert.ok(size >= 0, 'not a chunk');
    if (rest.length < line + 2 + size + 2) return null;
    chunks.push(rest.subarray(line + 2, line + 2 + size));
    at = line + 2 + size + 2;
    if (size === 0) return { body: Buffer.concat(chunks), length: at };
  }
}

/**
 * A TCP server on 127.0.0.1, which is closed with its connections when its owner ends.
 * @returns its port
 */
export function listenOnTcp(
  owner: Parameters<typeof listenOn>[0],
  accept: (socket: Socket) => void,
): Promise<number> {
  return listenOn(
    owner,
    createServer((socket) => accept(socket.on('error', () => {}))),
  );
}

/** The server's side of the connections that are made during a test. */
export function serverSockets(t: TestContext): Socket[] {
  const sockets: Socket[] = [];
  const note = (message: unknown) => {
    sockets.push((message as { socket: Socket }).socket);
  };
  subscribe('net.server.socket', note);
  t.after(() => {
    unsubscribe('net.server.socket', note);
  });
  return sockets;
}
