/** A TCP proxy in front of a PostgreSQL server, for tests of a network or server that fails. */
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import type { Owner } from './owner.ts';

type Stalled = 'all' | 'statements' | 'replies';
export type Proxy = Awaited<ReturnType<typeof startProxy>>;
type Observe = () => (chunk: Buffer) => void;

/**
 * How PostgreSQL ends its reply to an UPDATE. Outside a transaction it is sent after the commit.
 */
const UPDATED = /UPDATE [1-9][0-9]*\0/;
const MAX_UPDATED_LENGTH = 'UPDATE 1000\0'.length;

interface ProxyState {
  readonly server: Server;
  /** Of the PostgreSQL server. */
  targetPort: number;
  mode: 'forward' | 'cut' | Stalled;
  roundTripMs: number;
  accepted: number;
  onStatement: () => void;
  onReply: () => void;
  /** Called with the reply that is dropped. */
  onDropped: (() => void) | null;
  /** Each connection's two sockets, with what is read from them. */
  readonly sockets: Map<Socket, 'statements' | 'replies'>;
  readonly stalled: Set<Socket>;
}

/**
 * @param observe is called for each connection. Its result gets everything the server sends on it.
 */
export async function startProxy(owner: Owner, databaseUrl: string, observe?: Observe) {
  const server = createServer({ noDelay: true }, (client) => acceptClient(state, client, observe));
  const state: ProxyState = {
    server,
    targetPort: portOf(databaseUrl),
    mode: 'forward',
    roundTripMs: 0,
    accepted: 0,
    onStatement: () => {},
    onReply: () => {},
    onDropped: null,
    sockets: new Map(),
    stalled: new Set(),
  };
  owner.after(async () => {
    for (const socket of state.sockets.keys()) socket.destroy();
    server.close();
  });
  const port = await listen(server, 0);
  const url = new URL(databaseUrl);
  url.port = String(port);
  return {
    /** The given database URL, through this proxy. */
    url: url.href,
    /** The number of connections accepted so far. */
    connections: () => state.accepted,
    /**
     * Closes every connection. New ones are refused, or accepted and closed at once as by a proxy
     * without a server.
     */
    cut: (manner: 'refused' | 'closed' = 'refused') => cut(state, manner),
    /**
     * Forwards nothing more, in both directions or in one, on open and on new connections. They
     * stay open.
     */
    stall: (what: Stalled = 'all') => stall(state, what),
    ...interferenceOf(state),
    /**
     * Forwards new connections again. Stalled ones stay stalled.
     * @param movedTo where the server is now, if it moved
     */
    async restore(movedTo?: string) {
      if (movedTo !== undefined) state.targetPort = portOf(movedTo);
      state.mode = 'forward';
      if (!server.listening) await listen(server, port);
    },
  };
}

const interferenceOf = (state: ProxyState) => ({
  /** Makes each round trip so much longer. */
  delay(roundTripMs: number) {
    state.roundTripMs = roundTripMs;
  },
  /** Calls back with each piece that a client sends from now on, even if it is not forwarded. */
  onStatement(callback: () => void) {
    state.onStatement = callback;
  },
  /** Calls back with each piece that the server sends from now on, before it is forwarded. */
  onReply(callback: () => void) {
    state.onReply = callback;
  },
  /**
   * Drops the next reply that reports updated rows, and everything the server sends after it on
   * that connection.
   * @returns resolves when that reply has arrived here
   */
  drop: () =>
    new Promise<void>((resolve) => {
      state.onDropped = resolve;
    }),
});

const portOf = (url: string) => Number(new URL(url).port);

/** @returns the port */
async function listen(server: Server, port: number): Promise<number> {
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  const bound = server.address();
  return typeof bound === 'object' && bound ? bound.port : 0;
}

async function cut(state: ProxyState, manner: 'refused' | 'closed'): Promise<void> {
  state.mode = 'cut';
  for (const socket of state.sockets.keys()) socket.destroy();
  if (manner === 'refused') await new Promise((resolve) => state.server.close(resolve));
}

function stall(state: ProxyState, what: Stalled): void {
  state.mode = what;
  for (const [socket, kind] of state.sockets) {
    if (what === 'all' || what === kind) state.stalled.add(socket);
  }
}

function acceptClient(state: ProxyState, client: Socket, observe: Observe | undefined): void {
  state.accepted += 1;
  if (state.mode === 'cut') {
    client.destroy();
    return;
  }
  const upstream = connect({ port: state.targetPort, host: '127.0.0.1', noDelay: true });
  addSocket(state, client, upstream, 'statements');
  addSocket(state, upstream, client, 'replies');
  client.on('data', (chunk) => {
    state.onStatement();
    if (!state.stalled.has(client)) forward(state, upstream, chunk);
  });
  forwardReplies(state, upstream, client, observe?.());
}

function forward({ roundTripMs }: ProxyState, to: Socket, chunk: Buffer): void {
  if (roundTripMs === 0) to.write(chunk);
  else setTimeout(() => to.write(chunk), roundTripMs / 2);
}

/** What breaks on one side breaks on the other. The error itself is what the test provokes. */
function addSocket(
  { sockets, stalled, mode }: ProxyState,
  socket: Socket,
  other: Socket,
  what: 'statements' | 'replies',
): void {
  sockets.set(socket, what);
  if (mode === 'all' || mode === what) stalled.add(socket);
  socket.on('error', () => {});
  socket.on('close', () => {
    sockets.delete(socket);
    if (!stalled.has(socket)) other.destroy();
  });
}

function forwardReplies(
  state: ProxyState,
  upstream: Socket,
  client: Socket,
  read: ((chunk: Buffer) => void) | undefined,
): void {
  let isDropping = false;
  // The text searched for may arrive in two pieces.
  let tail = Buffer.alloc(0);
  upstream.on('data', (chunk: Buffer) => {
    if (isDropping || state.stalled.has(upstream)) return;
    read?.(chunk);
    const all = Buffer.concat([tail, chunk]);
    const at = state.onDropped ? all.toString('latin1').search(UPDATED) : -1;
    if (at < 0) {
      tail = all.subarray(1 - MAX_UPDATED_LENGTH);
      state.onReply();
      forward(state, client, chunk);
      return;
    }
    isDropping = true;
    client.write(all.subarray(tail.length, Math.max(at, tail.length)));
    state.onDropped?.();
    state.onDropped = null;
  });
}
