/** Identity with its sign-in pages, visited as a browser would. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { type Identity, startIdentity } from './api-users.ts';
import { PASSWORD } from './users.ts';

export const ORIGIN = 'https://login.example.org';

/** Where a page sends a browser that must sign in first. */
export const signInFor = (path: string) =>
  `/login?again=on&return_to=${encodeURIComponent(ORIGIN + path)}`;

export interface Page {
  status: number;
  text: string;
  cookies: readonly string[];
  headers: Headers;
}
export type Options = {
  headers?: Record<string, string>;
  fields?: Record<string, string> | string;
  cookie?: string;
  /** Whether a program sends the form, without the headers of a browser. */
  isProgram?: boolean;
};

export interface SignedIn {
  readonly username: string;
  readonly page: Page;
  /** The cookies, as a browser sends them. */
  readonly host: string;
  readonly domain: string;
}

export interface PortalOf extends Identity {
  visit(path: string, options?: Options): Promise<Page>;
  signIn(username: string, options?: Options): Promise<SignedIn>;
}

export const valueOf = (cookie = '') => /=([^;]*)/.exec(cookie)?.[1] ?? '';
/** The new value of a cookie, as a browser sends it. */
export function cookieFrom({ cookies }: Page, name: string): string {
  const found = cookies.find(
    (cookie) => cookie.startsWith(`${name}=`) && !cookie.endsWith('Max-Age=0'),
  );
  return found?.split(';')[0] ?? '';
}

/** Not `fetch`, which sends Fetch Metadata of its own. */
export const visitorOf =
  (identity: string) =>
  async (
    path: string,
    { headers = {}, fields, cookie, isProgram = false }: Options = {},
  ): Promise<Page> => {
    const form = {
      ...(isProgram ? {} : { host: new URL(ORIGIN).host, origin: ORIGIN }),
      'content-type': 'application/x-www-form-urlencoded',
    };
    const sent = {
      ...(fields ? form : {}),
      ...(cookie === undefined ? {} : { cookie }),
      ...headers,
    };
    const asked = request(identity + path, { method: fields ? 'POST' : 'GET', headers: sent });
    const text = typeof fields === 'string' ? fields : String(new URLSearchParams(fields));
    // With a string, Node would send the headers in its encoding.
    asked.end(Buffer.from(text));
    const [response]: IncomingMessage[] = await once(asked, 'response');
    assert.ok(response);
    const chunks: Buffer[] = [];
    for await (const chunk of response) chunks.push(chunk);
    const received = new Headers();
    for (const [name, value] of Object.entries(response.headers))
      if (typeof value === 'string') received.set(name, value);
    const {
      statusCode: status = 0,
      headers: { 'set-cookie': cookies = [] },
    } = response;
    return { status, text: Buffer.concat(chunks).toString(), cookies, headers: received };
  };

export const PORTAL = {
  SIGNIN_PAGES: 'on',
  SIGNIN_ORIGIN: ORIGIN,
  COOKIE_DOMAIN: 'example.org',
  TRUSTED_PROXIES: '127.0.0.1',
  RETURN_ORIGINS: 'https://app.example.org,https://wiki.example.org',
  IDENTITY_SECRET: 'identity-secret-for-tests-0123456789abcdef',
};

export async function startPortal(
  owner: Parameters<typeof startIdentity>[0],
  environment: Readonly<Record<string, string>> = {},
): Promise<PortalOf> {
  const started = await startIdentity(owner, { ...PORTAL, ...environment });
  const visit = visitorOf(started.identity);
  return {
    ...started,
    visit,
    async signIn(username, more = {}) {
      const page = await visit('/login', {
        ...more,
        fields: {
          username,
          password: PASSWORD,
          return_to: '',
          ...(typeof more.fields === 'object' ? more.fields : {}),
        },
      });
      assert.equal(page.status, 200, page.text);
      return {
        username,
        page,
        host: cookieFrom(page, '__Host-gatehouse'),
        domain: cookieFrom(page, '__Secure-gatehouse'),
      };
    },
  };
}
