/** What stands behind the proxy: Gatehouse as it is built, and a program that repeats what reaches it. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, request } from 'node:http';
import { dirname, join } from 'node:path';
import { after } from 'node:test';
import { createDatabase } from '../../test/support/database.ts';
import { ADMIN_PASSWORD, type Answer, ask, logIn, variables } from '../../test/support/gatehouse.ts';
import { start, type Started } from '../programs.ts';

const root = dirname(dirname(import.meta.dirname));

/** The one fenced block of this language in FORWARD-AUTH.md, with what differs here. Each replacement must find its place. */
export function documented(language: string, replacements: Readonly<Record<string, string>>): string {
  const blocks = [...readFileSync(join(root, 'FORWARD-AUTH.md'), 'utf8').matchAll(new RegExp(`^\`\`\`${language}\n([\\s\\S]*?)^\`\`\`$`, 'gm'))];
  assert.equal(blocks.length, 1, `FORWARD-AUTH.md has one block of ${language}`);
  return Object.entries(replacements).reduce((text, [from, to]) => {
    assert.ok(text.includes(from), `the configuration of ${language} has ${from}`);
    return text.replaceAll(from, to);
  }, blocks[0]?.[1] ?? '');
}

/** A request as the program got it. */
export interface Seen {
  readonly method: string;
  readonly path: string;
  readonly headers: ReadonlyArray<readonly [name: string, value: string]>;
  readonly body: string;
}

export interface Program {
  readonly port: number;
  /** Every request so far. */
  readonly seen: readonly Seen[];
}

async function startProgram(): Promise<Program> {
  const seen: Seen[] = [];
  const server = createServer({ maxHeaderSize: 64 * 1024 }, (incoming, response) => {
    const body: Buffer[] = [];
    incoming.on('data', (chunk: Buffer) => body.push(chunk));
    incoming.on('end', () => {
      const { method = '', url: path = '', rawHeaders } = incoming;
      const headers = rawHeaders.flatMap((name, index) => (index % 2 === 0 ? [[name, rawHeaders[index + 1] ?? ''] as const] : []));
      const one: Seen = { method, path, headers, body: Buffer.concat(body).toString() };
      seen.push(one);
      response.end(JSON.stringify(one));
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  after(() => void server.close());
  const address = server.address();
  return { port: typeof address === 'object' && address !== null ? address.port : 0, seen };
}

/** Who the program takes the sender for: under every name that some language would read as one of ours. An empty value is none. */
export function identityOf({ headers }: Seen): Record<string, string> {
  const ours = headers.filter(([name, value]) => /^x[^a-z0-9]auth[^a-z0-9]/i.test(name) && value !== '');
  const identity: Record<string, string> = {};
  for (const [name, value] of ours) {
    const key = name.toLowerCase();
    assert.match(value, /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/);
    assert.doesNotMatch(value, /[,;:"\\()<>[\]]/);
    identity[key] = key in identity ? `${identity[key]} and ${value}` : decodeURIComponent(value);
  }
  return identity;
}

export type Fields = ReadonlyArray<readonly [name: string, value: string]>;

export interface Visit {
  readonly method?: string;
  readonly host?: string;
  readonly path?: string;
  readonly headers?: Fields;
  readonly body?: string;
  /** Sends the body without saying first how long it is. */
  readonly chunked?: boolean;
  /** The client's own address, of those that lead to this machine. */
  readonly from?: string;
}

/** One request, with exactly these headers. */
export async function visit(port: number, { method = 'GET', host = 'app.example.org', path = '/', headers = [], body, chunked = false, from }: Visit): Promise<Answer> {
  const length = body === undefined ? [] : [chunked ? ['Transfer-Encoding', 'chunked'] : ['Content-Length', String(Buffer.byteLength(body))]];
  const fields = [['Host', host], ...(headers.some(([name]) => name === 'Connection') ? [] : [['Connection', 'close']]), ...length, ...headers].flat();
  const options = { host: '127.0.0.1', port, method, path, headers: fields, agent: false, ...(from === undefined ? {} : { localAddress: from }) };
  const response = await new Promise<IncomingMessage>((resolve, reject) => request(options, resolve).on('error', reject).end(body));
  let text = '';
  for await (const chunk of response.setEncoding('utf8')) text += chunk;
  const json = text.startsWith('{') ? JSON.parse(text) : undefined;
  return { status: response.statusCode ?? 0, headers: new Headers(pairs(response.rawHeaders)), text, json };
}

const pairs = (raw: readonly string[]): [string, string][] => raw.flatMap((name, index) => (index % 2 === 0 ? [[name, raw[index + 1] ?? '']] : []));

export interface Account {
  readonly id: string;
  readonly username: string;
  readonly email: string;
  readonly password: string;
}

export interface House {
  readonly gatehouse: Started;
  readonly program: Program;
  /** `http://127.0.0.1:…`, past every proxy. */
  readonly url: string;
  /** A super administrator's session token. */
  readonly admin: string;
  /** Without super administrator's rights. */
  addUser(name: string, address?: string): Promise<Account>;
  /** @returns its id and the key itself */
  addKey(bearer: string, body: unknown): Promise<{ id: string; key: string }>;
}

/** At a test file's top level; all of it ends with the file's tests. */
export async function startHouse(): Promise<House> {
  const database = await createDatabase();
  const gatehouse = await start({ after }, {
    name: 'identity',
    unprivileged: false,
    prepare: (_, port) => ({
      command: [process.execPath, join(root, 'dist/cli.js'), 'serve', 'identity'],
      env: { ...variables(database.url), IDENTITY_PORT: String(port), TRUSTED_PROXIES: '127.0.0.1', LOG_LEVEL: 'warn' },
    }),
    isReady: async (port) => (await ask('GET', `http://127.0.0.1:${port}/readyz`)).status === 200,
  });
  const url = `http://127.0.0.1:${gatehouse.port}`;
  const admin = await logIn(url, 'admin', ADMIN_PASSWORD);
  const create = async (path: string, bearer: string, body: unknown) => {
    const answer = await ask('POST', url + path, { bearer, body });
    assert.equal(answer.status, 201, answer.text);
    return answer.json.data;
  };
  let users = 0;
  return {
    gatehouse,
    program: await startProgram(),
    url,
    admin,
    async addUser(name, address = `ö+${(users += 1)}@example.org`) {
      const password = 'a passphrase for tests';
      const { id, username, email } = await create('/api/user/', admin, { username: name, email: address, password });
      return { id, username, email, password };
    },
    addKey: (bearer, body) => create('/api/key/', bearer, body),
  };
}
