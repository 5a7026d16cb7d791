/**
 * Setup of the proxy tests: the compiled identity service, and an upstream program that echoes its
 * requests.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, request as httpRequest } from 'node:http';
import { dirname, join } from 'node:path';
import { after } from 'node:test';
import type { Sql } from 'postgres';
import { createDatabase } from '../../support/database.ts';
import { ADMIN_PASSWORD, type Answer, ask, logIn, variables } from '../../support/gatehouse.ts';
import { findProgram, start, type Started } from '../programs.ts';
import { listenOn } from '../../support/ports.ts';

const root = dirname(dirname(dirname(import.meta.dirname)));
/** The files of `deploy/` by proxy and by the part of docs/forward-auth.md that they belong to. */
const FILES: Readonly<Record<'nginx' | 'caddy', Readonly<Record<string, string>>>> = {
  nginx: {
    'Proxy configurations': 'nginx/app.conf',
    'Sign-in pages': 'nginx/app-with-signin.conf',
    'Share pages and inbox behind the sign-in': 'nginx/pages.conf',
  },
  caddy: {
    'Proxy configurations': 'caddy/app.caddyfile',
    'Sign-in pages': 'caddy/app-with-signin.caddyfile',
    'Share pages and inbox behind the sign-in': 'caddy/pages.caddyfile',
  },
};

/** A configuration of `deploy/` with replacements. It must contain each of them. */
export function documented(
  proxy: 'nginx' | 'caddy',
  replacements: Readonly<Record<string, string>>,
  part = 'Proxy configurations',
): string {
  const file = FILES[proxy][part] ?? '';
  const configuration = readFileSync(join(root, 'deploy', file), 'utf8');
  return Object.entries(replacements).reduce((text, [from, to]) => {
    assert.ok(text.includes(from), `${file} contains ${from}`);
    return text.replaceAll(from, to);
  }, configuration);
}

/** The block of code of a document that contains a text. */
export function documentedBlock(file: string, part: string): string {
  const text = readFileSync(join(root, file), 'utf8');
  const blocks = [...text.matchAll(/^```\w*\n(.*?)^```$/gms)].map(([, block = '']) => block);
  const [found, ...others] = blocks.filter((block) => block.includes(part));
  assert.ok(found !== undefined && others.length === 0, `${file} has one block with ${part}`);
  return found;
}

const MODULES = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];

/**
 * A complete nginx configuration as a package installs it, but in its own directory and in the
 * foreground.
 */
export const completeNginx = (configuration: string): string => `
daemon off;
pid nginx.pid;
error_log stderr warn;
worker_processes 1;
events {}
http {
    access_log off;
    # As docs/proxy-nginx.md says for large cookies.
    large_client_header_buffers 4 32k;
    ${MODULES.map((name) => `${name}_temp_path ${name};`).join('\n    ')}
${configuration}}
`;

export const nginxCommand = (directory: string, file: string): [string, ...string[]] => [
  findProgram('nginx') ?? 'nginx',
  '-p',
  directory,
  '-c',
  file,
  '-e',
  'stderr',
];

export type HeaderFields = ReadonlyArray<readonly [name: string, value: string]>;

export const pairs = (rawHeaders: readonly string[]): [name: string, value: string][] =>
  rawHeaders.flatMap((name, index) =>
    index % 2 === 0 ? [[name, rawHeaders[index + 1] ?? '']] : [],
  );

/** A request as the upstream program received it. */
export interface ReceivedRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: HeaderFields;
  readonly body: string;
}

export interface Upstream {
  readonly port: number;
  /** Every request so far. */
  readonly requests: readonly ReceivedRequest[];
}

/** A program that echoes its requests. */
export async function startUpstream(): Promise<Upstream> {
  const requests: ReceivedRequest[] = [];
  const server = createServer({ maxHeaderSize: 64 * 1024 }, (incoming, response) => {
    const body: Buffer[] = [];
    incoming.on('data', (chunk: Buffer) => body.push(chunk));
    incoming.on('end', () => {
      const { method = '', url: path = '', rawHeaders } = incoming;
      const received = {
        method,
        path,
        headers: pairs(rawHeaders),
        body: Buffer.concat(body).toString(),
      };
      requests.push(received);
      response.end(JSON.stringify(received));
    });
  });
  server.on('upgrade', ({ method = '', url: path = '', rawHeaders }, socket) => {
    requests.push({ method, path, headers: pairs(rawHeaders), body: '' });
    socket.end(
      'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n',
    );
  });
  return { port: await listenOn({ after }, server), requests };
}

/**
 * The identity that the upstream program reads from a request: every header that some language or
 * framework would normalize to an `X-Auth-…` name. An empty value counts as none.
 */
export function identityOf({ headers }: ReceivedRequest): Record<string, string> {
  const identity: Record<string, string> = {};
  for (const [name, value] of headers) {
    if (!/^x[^a-z0-9]auth[^a-z0-9]/i.test(name) || value === '') continue;
    const key = name.toLowerCase();
    assert.match(value, /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/);
    assert.doesNotMatch(value, /[,;:"\\()<>[\]]/);
    identity[key] = key in identity ? `${identity[key]} and ${value}` : decodeURIComponent(value);
  }
  return identity;
}

export interface ProxyRequest {
  readonly method?: string;
  readonly host?: string;
  readonly path?: string;
  readonly headers?: HeaderFields;
  readonly body?: string;
  /** Sends the body with `Transfer-Encoding: chunked`. */
  readonly chunked?: boolean;
  /** The client's address, one of 127.0.0.0/8. */
  readonly from?: string;
}

/** Sends one request with exactly these headers and those that its framing needs. */
export async function request(
  port: number,
  {
    method = 'GET',
    host = 'app.example.org',
    path = '/',
    headers = [],
    body,
    chunked,
    from,
  }: ProxyRequest,
): Promise<Answer> {
  const connection = headers.some(([name]) => name === 'Connection')
    ? []
    : [['Connection', 'close']];
  const length = ['Content-Length', String(Buffer.byteLength(body ?? ''))];
  const ofBody = chunked ? ['Transfer-Encoding', 'chunked'] : length;
  const framing = body === undefined ? [] : [ofBody];
  const options = {
    host: '127.0.0.1',
    port,
    method,
    path,
    agent: false,
    ...(from === undefined ? {} : { localAddress: from }),
    headers: [['Host', host], ...connection, ...framing, ...headers].flat(),
  };
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    httpRequest(options, resolve).on('upgrade', resolve).on('error', reject).end(body);
  });
  let text = '';
  for await (const chunk of response.setEncoding('utf8')) text += chunk;
  const json = text.startsWith('{') ? JSON.parse(text) : undefined;
  return {
    status: response.statusCode ?? 0,
    headers: new Headers(pairs(response.rawHeaders)),
    text,
    json,
  };
}

export interface Account {
  readonly id: string;
  readonly username: string;
  readonly email: string;
  readonly password: string;
}

export interface ProxySetup {
  readonly gatehouse: Started;
  readonly upstream: Upstream;
  readonly sql: Sql;
  /** `http://127.0.0.1:…` of Gatehouse itself, without a proxy. */
  readonly url: string;
  /** The session token of a super administrator. */
  readonly admin: string;
  /** Creates a user who is not a super administrator. */
  addUser(name: string, email?: string): Promise<Account>;
  /** @returns the id of the new key and the key itself */
  addKey(bearer: string, body: unknown): Promise<{ id: string; key: string }>;
}

/** Call at the top level of a test file. Everything stops after the file's tests. */
export async function startProxySetup(
  environment: Readonly<Record<string, string>> = {},
  startProgram: () => Promise<Upstream> = startUpstream,
): Promise<ProxySetup> {
  const database = await createDatabase();
  const gatehouse = await start(
    { after },
    {
      name: 'identity',
      unprivileged: false,
      prepare: (_, port) => ({
        command: [process.execPath, join(root, 'dist/cli.js'), 'serve', 'identity'],
        env: {
          ...variables(database.url),
          IDENTITY_PORT: String(port),
          TRUSTED_PROXIES: '127.0.0.1',
          LOG_LEVEL: 'warn',
          ...environment,
        },
      }),
      isReady: async (port) => (await ask('GET', `http://127.0.0.1:${port}/readyz`)).status === 200,
    },
  );
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
    upstream: await startProgram(),
    sql: database.sql,
    url,
    admin,
    async addUser(name, given) {
      users += 1;
      const address = given ?? `ö+${users}@example.org`;
      const password = 'a passphrase for tests';
      const { id, username, email } = await create('/api/user/', admin, {
        username: name,
        email: address,
        password,
      });
      return { id, username, email, password };
    },
    addKey: (bearer, body) => create('/api/key/', bearer, body),
  };
}
