/** Setup of the proxy tests: identity, a proxy with files of `deploy/`, and a program behind it. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash, X509Certificate } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { join } from 'node:path';
import { text as readText } from 'node:stream/consumers';
import { after } from 'node:test';
import { callerHeaders } from '../../../src/identity/verify.ts';
import { type Answer, ask, launch, logIn } from '../../support/gatehouse.ts';
import type { Owner } from '../../support/owner.ts';
import { listenOn } from '../../support/ports.ts';
import { root } from '../../support/process.ts';
import { PASSWORD } from '../../support/users.ts';
import { wordsOf } from '../../support/words.ts';
import { findProgram, freePort, start } from '../programs.ts';
import { runTool } from '../tools.ts';

/** The headers that say who sends a request. */
export const NAMES = Object.keys(callerHeaders({ session: null, key: null, user: null }));

export const bearer = (token: string): HeaderFields => [['Authorization', `Bearer ${token}`]];

/** Like a browser that opens a page. */
export const NAVIGATION: HeaderFields = [
  ['Accept', 'text/html,*/*'],
  ['Sec-Fetch-Mode', 'navigate'],
  ['Sec-Fetch-Dest', 'document'],
];

/**
 * A configuration of `deploy/`.
 * @param ports where the services and programs listen, by the port in the file
 */
export function deployed(file: string, ports: Readonly<Record<number, number>>): string {
  let text = readFileSync(join(root, 'deploy', file), 'utf8');
  for (const [from, to] of Object.entries(ports)) {
    assert.ok(text.includes(`127.0.0.1:${from}`), `${file}: ${from}`);
    text = text.replaceAll(`127.0.0.1:${from}`, `127.0.0.1:${to}`);
  }
  return text;
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
const completeNginx = (configuration: string): string => `
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

export type ProxyName = 'nginx' | 'caddy';

type Place = Readonly<{ port: number; admin: number; pem?: string; key?: string }>;

/**
 * The configuration of a proxy at its place.
 * @param place its port, that of Caddy's own interface, by which it reads its configuration again,
 * and the paths of a certificate and its key, for TLS
 */
function placed(name: ProxyName, text: string, { port, admin, pem = '', key = '' }: Place): string {
  if (name === 'nginx')
    return completeNginx(
      text
        .replaceAll(/listen (80|443)/g, `listen 127.0.0.1:${port}`)
        .replaceAll('/etc/ssl/example.org.pem', pem)
        .replaceAll('/etc/ssl/example.org.key', key),
    );
  const at = pem ? `auto_https disable_redirects\n\thttps_port ${port}` : `http_port ${port}`;
  const site = pem ? `$&\n\ttls ${pem} ${key}` : 'http://$&';
  const sites = text.replaceAll(/^[\w.]+\.example\.org \{/gm, site);
  return `{\n\tadmin 127.0.0.1:${admin}\n\t${at}\n\tdefault_bind 127.0.0.1\n}\n\n${sites}`;
}

/** How the program of a proxy is started with a file, and told to read it again. */
function commandsOf(name: ProxyName, directory: string, file: string, admin: number) {
  const program = findProgram(name) ?? name;
  if (name === 'nginx') {
    const words = ['-p', directory, '-c', file, '-e', 'stderr'];
    return { run: [program, ...words], reload: [...words, '-s', 'reload'] } as const;
  }
  const words = ['--config', file, '--adapter', 'caddyfile'];
  const reload = ['reload', ...words, '--address', `127.0.0.1:${admin}`];
  return { run: [program, 'run', ...words], reload } as const;
}

/** @param owner by default the file of the test */
export async function startReloadable(
  name: ProxyName,
  first: string,
  tls?: Certificate,
  owner: Owner = { after },
) {
  const admin = await freePort();
  let reload = (_text: string) => {};
  const { port } = await start(owner, {
    name,
    unprivileged: true,
    prepare(directory, port) {
      const write = (file: string, content: string) => {
        writeFileSync(join(directory, file), content);
        return join(directory, file);
      };
      const own = tls ? { pem: write('pem', tls.certificate), key: write('key', tls.key) } : {};
      const place = { port, admin, ...own };
      const file = write('configuration', placed(name, first, place));
      const commands = commandsOf(name, directory, file, admin);
      reload = (text) => {
        write('configuration', placed(name, text, place));
        const { code, output } = runTool(name, commands.reload, { HOME: directory });
        assert.equal(code, 0, output);
      };
      return { command: commands.run };
    },
  });
  return { port, reload: (text: string) => reload(text) };
}

/** @returns the port of a proxy, which stops after the tests of the file */
export const startProxy = async (name: ProxyName, text: string, tls?: Certificate) =>
  (await startReloadable(name, text, tls)).port;

/** A certificate for all names of the test. Chromium accepts it by the digest of its key. */
export function createCertificate() {
  const words = wordsOf(`
    req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=example.org
    -addext subjectAltName=DNS:*.example.org,DNS:*.example.net -keyout - -out -
  `);
  const pem = execFileSync('openssl', words, { encoding: 'utf8', stdio: 'pipe' });
  const [key = '', certificate = ''] = pem.split(/(?=^-----BEGIN CERTIFICATE)/m);
  const spki = new X509Certificate(certificate).publicKey.export({ type: 'spki', format: 'der' });
  return { certificate, key, pin: createHash('sha256').update(spki).digest('base64') };
}
export type Certificate = ReturnType<typeof createCertificate>;

export type HeaderFields = ReadonlyArray<readonly [name: string, value: string]>;

const pairs = (rawHeaders: readonly string[]): [name: string, value: string][] =>
  rawHeaders.flatMap((name, index) =>
    index % 2 === 0 ? [[name, rawHeaders[index + 1] ?? '']] : [],
  );

/** A request as the program behind the proxy received it. */
export type ReceivedRequest = Readonly<{
  method: string;
  path: string;
  headers: HeaderFields;
  body: string;
}>;

/** The value of a header that the program received; the empty string if it got none. */
export const valueOf = ({ headers }: ReceivedRequest, name: string) =>
  headers.find(([key]) => key.toLowerCase() === name.toLowerCase())?.[1] ?? '';

export const pageOf = (title: string) =>
  `<!doctype html><html lang="en"><link rel="icon" href="data:,"><title>${title}</title>`;

/** What a program has beside its pages. */
const IMAGE = '<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"/>';
const WORKER = `
  addEventListener('activate', (event) => event.waitUntil(clients.claim()));
  addEventListener('fetch', (event) => event.respondWith(fetch(event.request)));`;

/**
 * A program with pages, an image, an event stream and a WebSocket, which echoes other requests. It
 * knows nothing of Gatehouse.
 */
export async function startUpstream() {
  /** Every request so far. */
  const requests: ReceivedRequest[] = [];
  const note = ({ method = '', url: path = '', rawHeaders }: IncomingMessage, body: string) => {
    const received = { method, path, headers: pairs(rawHeaders), body };
    requests.push(received);
    return received;
  };
  const server = createServer({ maxHeaderSize: 64 * 1024 }, async (incoming, response) => {
    const received = note(incoming, await readText(incoming));
    const send = (type: string, text: string) => response.setHeader('Content-Type', type).end(text);
    if (received.path === '/events') {
      response.writeHead(200, { 'content-type': 'text/event-stream', 'x-accel-buffering': 'no' });
      response.write('data: one\n\n');
    } else if (received.path.startsWith('/image')) send('image/svg+xml', IMAGE);
    else if (received.path === '/worker.js') send('text/javascript', WORKER);
    else if (incoming.headers.accept?.includes('text/html')) {
      response.setHeader('Set-Cookie', 'theme=dark; Path=/; Secure');
      send('text/html', pageOf('Program'));
    } else response.end(JSON.stringify(received));
  });
  server.on('upgrade', (incoming, socket) => {
    note(incoming, '');
    const key = `${incoming.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`;
    const accept = createHash('sha1').update(key).digest('base64');
    socket.end(
      'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n' +
        `Sec-WebSocket-Accept: ${accept}\r\n\r\n`,
    );
  });
  return { port: await listenOn({ after }, server), requests };
}

export type ProxyRequest = Readonly<{
  method?: string;
  host?: string;
  path?: string;
  headers?: HeaderFields;
  body?: string;
  /** Sends the body with `Transfer-Encoding: chunked`. */
  chunked?: boolean;
  /** The client's address, one of 127.0.0.0/8. */
  from?: string;
}>;

/** Sends one request with exactly these headers and those that its framing needs. */
export async function request(
  port: number,
  { host = 'app.example.org', headers = [], body, chunked, from, ...sent }: ProxyRequest,
  send = httpRequest,
): Promise<Answer> {
  const length = ['Content-Length', String(Buffer.byteLength(body ?? ''))];
  const framing = chunked ? ['Transfer-Encoding', 'chunked'] : length;
  const isNamed = headers.some(([name]) => name === 'Connection');
  const options = {
    ...sent,
    host: '127.0.0.1',
    port,
    agent: false,
    ...(from === undefined ? {} : { localAddress: from }),
    headers: [
      ...['Host', host],
      ...(isNamed ? [] : ['Connection', 'close']),
      ...(body === undefined ? [] : framing),
      ...headers.flat(),
    ],
    servername: host.replace(/:.*/, ''),
    rejectUnauthorized: false,
  };
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    send(options, resolve).on('upgrade', resolve).on('error', reject).end(body);
  });
  const text = await readText(response);
  return {
    status: response.statusCode ?? 0,
    headers: new Headers(pairs(response.rawHeaders)),
    text,
    json: text.startsWith('{') ? JSON.parse(text) : undefined,
  };
}

/** The same over TLS. */
export const askProxy = ({ port }: Readonly<{ port: number }>, sent: ProxyRequest) =>
  request(port, sent, httpsRequest);

export type Member = Readonly<{ id: string; username: string; email: string }>;
export type ProxySetup = Awaited<ReturnType<typeof startProxySetup>>;

/** Call at the top level of a test file. Everything stops after the file's tests. */
export async function startProxySetup(settings: Readonly<Record<string, string>> = {}) {
  const gatehouse = await launch(['identity'], { TRUSTED_PROXIES: '127.0.0.1', ...settings });
  const url = gatehouse.identity;
  const admin = await logIn(url);
  const call = async (method: string, path: string, body: unknown, bearer = admin) => {
    const answer = await ask(method, url + path, { bearer, body });
    assert.ok([200, 201].includes(answer.status), answer.text);
    return answer.json.data;
  };
  let members = 0;
  return {
    gatehouse,
    upstream: await startUpstream(),
    sql: gatehouse.sql,
    /** Of Gatehouse itself, without a proxy. */
    url,
    port: Number(new URL(url).port),
    /** The session token of a super administrator. */
    admin,
    call,
    changeUser: (id: string, change: object) => call('PATCH', `/api/user/${id}`, change),
    /** Makes a user, whose password is PASSWORD. */
    async addMember(given: object = {}): Promise<Member> {
      members += 1;
      const name = { username: `member-${members}`, email: `ö+${members}@example.org` };
      const body = { ...name, ...given };
      const { id } = await call('POST', '/api/user/', { ...body, password: PASSWORD });
      return { ...body, id: String(id) };
    },
    /** @returns the id of the new key and the key itself */
    addKey: (by: string, body: object): Promise<Readonly<{ id: string; key: string }>> =>
      call('POST', '/api/key/', body, by),
  };
}
