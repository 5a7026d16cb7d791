/** Identity with its sign-in pages, visited as a browser would. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { startIdentity } from './api-users.ts';
import { PASSWORD } from './users.ts';

export const ORIGIN = 'https://login.example.org';
/** A password that a person chooses. */
export const OWN = 'a-password-of-my-own';

/** Where a page sends a browser that must sign in first. */
export const signInFor = (path: string) =>
  `/login?again=on&return_to=${encodeURIComponent(ORIGIN + path)}`;

/** What a proxy says of the request that it asks about. */
export const forwarded = (host: string, uri = '/a?b=c') => ({
  accept: 'text/html',
  'x-forwarded-proto': 'https',
  'x-forwarded-host': host,
  'x-forwarded-uri': uri,
});

/** `host`, `domain` and `pending`: the new values of these cookies, as a browser sends them. */
export interface Page {
  status: number;
  text: string;
  cookies: readonly string[];
  headers: Headers;
  host: string;
  domain: string;
  pending: string;
}
type Fields = Readonly<Record<string, string>> | string;
export type Options = {
  headers?: Readonly<Record<string, string>>;
  fields?: Fields;
  cookie?: string;
  /** Whether a program sends the form, without the headers of a browser. */
  isProgram?: boolean;
};

export const valueOf = (cookie = '') => /=([^;]*)/.exec(cookie)?.[1] ?? '';
/** The new value of a cookie, as a browser sends it. */
export const cookieFrom = ({ cookies }: Pick<Page, 'cookies'>, name: string): string =>
  cookies
    .find((cookie) => cookie.startsWith(`${name}=`) && !cookie.endsWith('Max-Age=0'))
    ?.split(';')[0] ?? '';

/** Not `fetch`, which sends Fetch Metadata of its own. */
export const visitorOf =
  (identity: string) =>
  async (
    path: string,
    { headers = {}, fields, cookie, isProgram }: Options = {},
  ): Promise<Page> => {
    const asked = request(identity + path, {
      method: fields ? 'POST' : 'GET',
      headers: {
        ...(fields && !isProgram && { host: new URL(ORIGIN).host, origin: ORIGIN }),
        ...(fields && { 'content-type': 'application/x-www-form-urlencoded' }),
        ...(cookie && { cookie }),
        ...headers,
      },
    });
    const text = typeof fields === 'string' ? fields : String(new URLSearchParams(fields));
    // With a string, Node would send the headers in its encoding.
    asked.end(Buffer.from(text));
    const [response]: IncomingMessage[] = await once(asked, 'response');
    assert.ok(response);
    const { 'set-cookie': cookies = [], ...received } = response.headers;
    return {
      status: response.statusCode ?? 0,
      text: Buffer.concat(await response.toArray()).toString(),
      cookies,
      headers: new Headers(Object.entries(received).map(([name, value]) => [name, String(value)])),
      host: cookieFrom({ cookies }, '__Host-gatehouse'),
      domain: cookieFrom({ cookies }, '__Secure-gatehouse'),
      pending: cookieFrom({ cookies }, '__Host-gatehouse-pending'),
    };
  };

/** What a browser does at a process of the service. */
export function pagesOf(identity: string) {
  const visit = visitorOf(identity);
  const post = (path: string, cookie: string, fields: Fields = {}) =>
    visit(path, { cookie, fields });
  return {
    visit,
    show: (path: string, cookie: string) => visit(path, { cookie }),
    post,
    enterPassword: (username: string, password = PASSWORD) =>
      post('/login', '', { username, password }),
    choosePassword: (cookie: string, password = OWN) =>
      post('/login/password', cookie, { password }),
  };
}

export const PORTAL = {
  SIGNIN_PAGES: 'on',
  SIGNIN_ORIGIN: ORIGIN,
  COOKIE_DOMAIN: 'example.org',
  TRUSTED_PROXIES: '127.0.0.1',
  RETURN_ORIGINS: 'https://app.example.org,https://wiki.example.org',
  IDENTITY_SECRET: 'identity-secret-for-tests-0123456789abcdef',
};

export type PortalOf = Awaited<ReturnType<typeof startPortal>>;

export async function startPortal(
  owner: Parameters<typeof startIdentity>[0],
  environment: Readonly<Record<string, string>> = {},
) {
  const started = await startIdentity(owner, { ...PORTAL, ...environment });
  const pages = pagesOf(started.identity);
  async function signIn(username: string, { fields, ...more }: Options = {}) {
    const credentials = { username, password: PASSWORD, ...Object(fields) };
    const page = await pages.visit('/login', { ...more, fields: credentials });
    assert.equal(page.status, 200, page.text);
    return { username, page, host: page.host, domain: page.domain };
  }
  return {
    ...started,
    ...pages,
    signIn,
    /** A user who has signed in. */
    async addSignedIn(more: Record<string, unknown> = {}) {
      const user = await started.add(more);
      return { ...user, ...(await signIn(user.username)) };
    },
  };
}
