/** Identity as a provider of OpenID Connect: programs, and a browser that signs in at them. */
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { runCommand } from './commands.ts';
import { startGatehouse } from './gatehouse.ts';
import { ORIGIN, type Page, PORTAL, type PortalOf, startPortal, visitorOf } from './portal.ts';

export const CALLBACK = 'https://app.example.net/callback';
export const OIDC = { ...PORTAL, OIDC: 'on' };

type Fields = Readonly<Record<string, string>>;

/** A program that is registered. `secret`: empty without one. */
export interface Program {
  readonly id: string;
  readonly secret: string;
}

/** What a program keeps of a sign-in that it begins. */
export interface Begun {
  readonly path: string;
  readonly verifier: string;
}

export interface Provider extends PortalOf {
  /** Runs a command on the database of the provider. */
  run(words: readonly string[], input?: string): ReturnType<typeof runCommand>;
  /** Registers a program that asks nobody. */
  register(id: string, ...options: readonly string[]): Promise<Program>;
  /** Sends a form as a program. */
  post(path: string, fields: Fields, headers?: Record<string, string>): Promise<Page>;
  /** The code that a browser brings back. */
  codeFor(program: Program, cookie: string, more?: Fields): Promise<Begun & { code: string }>;
  exchange(program: Program, begun: Begun & { code: string }, more?: Fields): Promise<Page>;
  /** Signs a browser in at a program. @returns its tokens */
  tokensFor(program: Program, cookie: string, more?: Fields): Promise<Tokens>;
  refresh(program: Program, tokens: Tokens, more?: Fields): Promise<Page>;
  userinfo(token: string): Promise<Page>;
  /** Another process on the same database. */
  replica(): Promise<Replica>;
}

export interface Tokens {
  readonly access_token: string;
  readonly refresh_token: string;
  readonly id_token: string;
}

type Replica = Pick<Provider, 'identity' | 'visit' | 'post' | 'exchange' | 'refresh' | 'userinfo'>;

/** The address with which a program sends a browser. An empty value removes a parameter. */
export function begin({ id }: Program, more: Fields = {}): Begun {
  const verifier = randomBytes(32).toString('base64url');
  const query = new URLSearchParams({
    response_type: 'code',
    client_id: id,
    redirect_uri: CALLBACK,
    scope: 'openid profile email groups',
    state: 'a state & more',
    nonce: 'nonce-1',
    code_challenge: createHash('sha256').update(verifier).digest('base64url'),
    code_challenge_method: 'S256',
    ...more,
  });
  for (const [name, value] of Object.entries(more)) if (value === '') query.delete(name);
  return { path: `/oidc/authorize?${query}`, verifier };
}

/** The parameters that a program gets with the browser. */
export function answerIn({ status, headers, text }: Page): URLSearchParams {
  assert.equal(status, 303, text);
  return new URL(headers.get('location') ?? '').searchParams;
}

/** The parts of a token, without checking its signature. */
export function readToken(token: string): Record<'head' | 'claims', Record<string, unknown>> {
  const [head = '', claims = ''] = token.split('.');
  const read = (part: string) => JSON.parse(Buffer.from(part, 'base64url').toString());
  return { head: read(head), claims: read(claims) };
}

/** Where the link of a page leads that continues. */
export function continuation({ text }: Pick<Page, 'text'>): string {
  const [, address = ''] =
    /<a href="([^"]*)" (?:data-continue|class="button primary")>Continue/.exec(text) ?? [];
  assert.notEqual(address, '', text);
  return decodeEntities(address);
}

const decodeEntities = (value: string): string =>
  value.replace(/&#(\d+);/g, (_, code) => String.fromCharCode(Number(code)));

/** The fields of the forms of a page, as a browser would send them. */
export function fieldsOf(text: string): Record<string, string> {
  const inputs = text.matchAll(/<input[^>]*\bname="([^"]+)"[^>]*\bvalue="([^"]*)"/g);
  return Object.fromEntries(
    [...inputs].map(([, name = '', value = '']) => [name, decodeEntities(value)]),
  );
}

function programOn(identity: string) {
  const visit = visitorOf(identity);
  const post: Provider['post'] = (path, fields, headers = {}) =>
    visit(path, {
      fields: String(new URLSearchParams(fields)),
      headers,
      isProgram: true,
    });
  const exchange: Provider['exchange'] = ({ id, secret }, { code, verifier }, more = {}) =>
    post('/oidc/token', {
      grant_type: 'authorization_code',
      code,
      redirect_uri: CALLBACK,
      code_verifier: verifier,
      client_id: id,
      ...(secret && { client_secret: secret }),
      ...more,
    });
  const refresh: Provider['refresh'] = ({ id, secret }, { refresh_token }, more = {}) =>
    post('/oidc/token', {
      grant_type: 'refresh_token',
      refresh_token,
      client_id: id,
      ...(secret && { client_secret: secret }),
      ...more,
    });
  const userinfo: Provider['userinfo'] = (token) =>
    visit('/oidc/userinfo', { headers: { authorization: `Bearer ${token}` } });
  return { identity, visit, post, exchange, refresh, userinfo };
}

/** What gives a refresh token. */
export const OFFLINE = { scope: 'openid offline_access' };
export const INVALID_GRANT = [400, 'invalid_grant'];
export const errorOf = ({ status, text }: Page) => [status, JSON.parse(text).error];

/** Both are refused at the next request. */
export async function assertDead(at: Replica, program: Program, tokens: Tokens): Promise<void> {
  const info = await at.userinfo(tokens.access_token);
  assert.equal(info.status, 401);
  assert.match(info.headers.get('www-authenticate') ?? '', /^Bearer .*error="invalid_token"/);
  assert.deepEqual(errorOf(await at.refresh(program, tokens)), INVALID_GRANT);
}

export async function assertAlive(at: Replica, tokens: Tokens): Promise<void> {
  const { status, text } = await at.userinfo(tokens.access_token);
  assert.equal(status, 200, text);
}

export async function startProvider(
  owner: Parameters<typeof startPortal>[0],
  environment: Readonly<Record<string, string>> = {},
): Promise<Provider> {
  const portal = await startPortal(owner, { OIDC: 'on', ...environment });
  const program = programOn(portal.identity);
  const run: Provider['run'] = (words, input) =>
    runCommand(words, { ...OIDC, DATABASE_URL: portal.databaseUrl, ...environment }, input);
  const codeFor: Provider['codeFor'] = async (of, cookie, more) => {
    const begun = begin(of, more);
    const answer = answerIn(await portal.visit(begun.path, { cookie }));
    assert.deepEqual(
      [answer.get('error'), answer.get('state'), answer.get('iss')],
      [null, 'a state & more', ORIGIN],
    );
    return { ...begun, code: answer.get('code') ?? '' };
  };
  return {
    ...portal,
    ...program,
    run,
    async register(id, ...options) {
      const words = ['--id', id, '--name', `Program ${id}`, '--redirect', CALLBACK];
      const done = await run(['client', 'create', ...words, '--no-consent', ...options]);
      assert.equal(done.code, 0, done.stderr);
      return { id, secret: done.stdout.trim() };
    },
    codeFor,
    async tokensFor(of, cookie, more) {
      const page = await program.exchange(of, await codeFor(of, cookie, more));
      assert.equal(page.status, 200, page.text);
      return JSON.parse(page.text);
    },
    async replica() {
      const services = ['identity'] as const;
      const other = await startGatehouse(owner, services, portal.databaseUrl, {
        ...OIDC,
        ...environment,
      });
      return programOn(other.url.identity);
    },
  };
}
