/** Requests through the Caddy of compose.yaml, whose certificates no authority has signed. */
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { text as readText } from 'node:stream/consumers';

interface Sent {
  method?: string;
  path?: string;
  headers?: Record<string, string>;
  body?: string;
}

interface Visited {
  readonly status: number | undefined;
  readonly text: string;
  readonly headers: IncomingHttpHeaders;
}

/** The headers of a browser that opens a page. */
export const PAGE = {
  accept: 'text/html',
  'sec-fetch-mode': 'navigate',
  'sec-fetch-dest': 'document',
};

/** @param host a name, which Caddy on this machine serves */
export async function visit(
  host: string,
  port: number,
  { method = 'GET', path = '/', headers = {}, body }: Sent = {},
): Promise<Visited> {
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const options = {
      host: '127.0.0.1',
      port,
      servername: host,
      method,
      path,
      headers: { host, ...headers },
      rejectUnauthorized: false,
      agent: false,
    };
    request(options, resolve).on('error', reject).end(body);
  });
  const text = await readText(response);
  return { status: response.statusCode, text, headers: response.headers };
}

/** Signs in on the page. @returns the session's cookie, `name=value` */
export async function signIn(host: string, port: number, password: string): Promise<string> {
  const { headers, text } = await visit(host, port, {
    method: 'POST',
    path: '/login',
    headers: {
      'content-type': 'application/x-www-form-urlencoded',
      origin: `https://${host}`,
      'sec-fetch-site': 'same-origin',
    },
    body: String(new URLSearchParams({ username: 'admin', password, return_to: '' })),
  });
  const cookies = (headers['set-cookie'] ?? []).map((one) => one.split(';', 1).join(''));
  const cookie = cookies.find((one) => one.startsWith('__Secure-gatehouse='));
  if (cookie === undefined) throw new Error(`no session: ${text}`);
  return cookie;
}
