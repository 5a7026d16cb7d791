/** Identity as a provider of OpenID Connect: programs, and a browser that signs in at them. */
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { runCommand } from './commands.ts';
import { decode, formsOn } from './forms.ts';
import { startGatehouse } from './gatehouse.ts';
import { ORIGIN, type Page, PORTAL, startPortal, visitorOf } from './portal.ts';

export const CALLBACK = 'https://app.example.net/callback';
export const OIDC = { ...PORTAL, OIDC: 'on' };

type Fields = Readonly<Record<string, string>>;

/** A program that is registered. `secret`: empty without one. */
export interface Program {
  readonly id: string;
  readonly secret: string;
}

/** What a program keeps of a sign-in that it begins. */
type Begun = ReturnType<typeof begin>;

export interface Tokens {
  readonly access_token: string;
  readonly refresh_token: string;
  readonly id_token: string;
}

/** The address with which a program sends a browser. An empty value removes a parameter. */
export function begin({ id }: Readonly<{ id: string }>, more: Fields = {}) {
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

/** What a program is given for a code. */
export function tokensIn({ status, text }: Pick<Page, 'status' | 'text'>): Tokens {
  assert.equal(status, 200, text);
  return JSON.parse(text);
}

/** The parts of a token, without checking its signature. */
export function readToken(token: string): Record<'head' | 'claims', Record<string, unknown>> {
  const [head = {}, claims = {}] = token
    .split('.', 2)
    .map((part) => JSON.parse(Buffer.from(part, 'base64url').toString()));
  return { head, claims };
}

/** Where the link of a page leads that continues. */
export function continuation({ text }: Pick<Page, 'text'>): string {
  const [, address = ''] =
    /<a href="([^"]*)" (?:data-continue|class="button primary")>Continue/.exec(text) ?? [];
  assert.notEqual(address, '', text);
  return decode(address);
}

/** The hidden fields of the forms of a page, as a browser would send them. */
export const fieldsOf = (text: string): Record<string, string> =>
  Object.fromEntries(formsOn(text).flatMap(({ hidden }) => Object.entries(hidden)));

/** What programs and browsers send to a process. */
function programOn(identity: string) {
  const visit = visitorOf(identity);
  const tell = (path: string, fields: Fields, headers: Fields = {}) =>
    visit(path, { fields: String(new URLSearchParams(fields)), headers, isProgram: true });
  const credentialsOf = ({ id, secret }: Program) => ({
    client_id: id,
    ...(secret && { client_secret: secret }),
  });
  return {
    identity,
    visit,
    /** Sends a form as a program. */
    tell,
    exchange: (program: Program, { code, verifier }: Begun & { code: string }, more: Fields = {}) =>
      tell('/oidc/token', {
        grant_type: 'authorization_code',
        code,
        redirect_uri: CALLBACK,
        code_verifier: verifier,
        ...credentialsOf(program),
        ...more,
      }),
    refresh: (program: Program, { refresh_token }: Tokens, more: Fields = {}) =>
      tell('/oidc/token', {
        grant_type: 'refresh_token',
        refresh_token,
        ...credentialsOf(program),
        ...more,
      }),
    userinfo: (token: string) =>
      visit('/oidc/userinfo', { headers: { authorization: `Bearer ${token}` } }),
  };
}
type Replica = ReturnType<typeof programOn>;

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

export type Provider = Awaited<ReturnType<typeof startProvider>>;

export async function startProvider(
  owner: Parameters<typeof startPortal>[0],
  environment: Fields = {},
) {
  const portal = await startPortal(owner, { OIDC: 'on', ...environment });
  const program = programOn(portal.identity);
  const settings = { ...OIDC, ...environment };
  /** Runs a command on the database of the provider. */
  const run = (words: readonly string[], input?: string) =>
    runCommand(words, { ...settings, DATABASE_URL: portal.databaseUrl }, input);
  /** The code that a browser brings back. */
  async function codeFor(of: Program, cookie: string, more?: Fields) {
    const begun = begin(of, more);
    const answer = answerIn(await portal.visit(begun.path, { cookie }));
    assert.equal(answer.get('error'), null);
    assert.deepEqual([answer.get('state'), answer.get('iss')], ['a state & more', ORIGIN]);
    return { ...begun, code: answer.get('code') ?? '' };
  }
  return {
    ...portal,
    ...program,
    run,
    codeFor,
    /** Registers a program that asks nobody. */
    async register(id: string, ...options: readonly string[]): Promise<Program> {
      const words = ['--id', id, '--name', `Program ${id}`, '--redirect', CALLBACK];
      const done = await run(['client', 'create', ...words, '--no-consent', ...options]);
      assert.equal(done.code, 0, done.stderr);
      return { id, secret: done.stdout.trim() };
    },
    /** Signs a browser in at a program. */
    async tokensFor(of: Program, cookie: string, more?: Fields): Promise<Tokens> {
      return tokensIn(await program.exchange(of, await codeFor(of, cookie, more)));
    },
    /** Another process on the same database. */
    async replica(): Promise<Replica> {
      const services = ['identity'] as const;
      const other = await startGatehouse(owner, services, portal.databaseUrl, settings);
      return programOn(other.url.identity);
    },
  };
}
