import { OperationFailed, type Terminal, UsageError } from './command.ts';
import { stripControlChars } from './terminal.ts';
import { isThisHost } from '../db/address.ts';
import { VARIABLES } from '../secrets/settings.ts';
import { Findings, readVariables } from '../runtime/variables.ts';
import { ConfigurationError, ENVIRONMENT } from '../settings.ts';

type Reply = Readonly<Record<string, unknown>>;

export class PassphraseNeeded extends OperationFailed {}

const NO_TOKEN = 'AUTH_TOKEN must be set to the bearer token of the secrets service.';
const CHECK = 'check GATEHOUSE_URL or the link';
const UNEXPECTED = 'unexpected reply: is GATEHOUSE_URL, or the link, a Gatehouse secrets service?';
/** Enough for a password hash that waits for others. */
const TIMEOUT_MS = 30_000;

/** @returns a client of the service at GATEHOUSE_URL, with AUTH_TOKEN. @throws ConfigurationError */
export function connectToSecrets(note: Terminal['note']) {
  const { GATEHOUSE_URL, AUTH_TOKEN } = VARIABLES;
  const findings = new Findings();
  const values = readVariables({ GATEHOUSE_URL, AUTH_TOKEN }, ENVIRONMENT, findings);
  if (findings.problems.length > 0) throw new ConfigurationError(findings.problems);
  const { GATEHOUSE_URL: base, AUTH_TOKEN: token } = values;
  if (token === null) throw new ConfigurationError([NO_TOKEN]);
  const url = base.replace(/\/$/, '');
  return { url, ask: connect(url, token, note) };
}

/**
 * @returns a function that sends one request. Redirects are not followed: they could send the key to another host.
 * It throws UsageError for an invalid value, PassphraseNeeded, and OperationFailed for any other failure
 */
export function connect(base: string, token: string | null, note: Terminal['note']) {
  const { protocol, hostname, origin } = new URL(base);
  const isProtected = protocol === 'https:' || isThisHost(hostname.replace(/^\[(.*)\]$/, '$1'));
  if (!isProtected)
    note(`Warning: ${origin} does not use TLS. Others on the network can read what is sent.`);
  const headers = {
    'content-type': 'application/json',
    ...(token && { authorization: `Bearer ${token}` }),
  };
  return async (method: string, path: string, body?: object) => {
    const init = {
      method,
      headers,
      redirect: 'manual',
      body: body ? JSON.stringify(body) : null,
    } as const;
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const response = await fetch(base + path, { ...init, signal }).catch((error: unknown) => {
      const cause = error instanceof Error && error.cause;
      const code = isRecord(cause) && cause.code !== undefined ? ` (${String(cause.code)})` : '';
      throw new OperationFailed(`${origin} did not answer${code}; ${CHECK}`);
    });
    const reply: unknown = await response.json().catch(() => null);
    if (isRecord(reply) && response.ok) return reply;
    const {
      code,
      message: text,
      fields,
    } = isRecord(reply) && isRecord(reply.error) ? reply.error : {};
    if (typeof code !== 'string') throw new OperationFailed(UNEXPECTED);
    if (code === 'no_such_path')
      throw new OperationFailed(`no secrets service or share page at ${origin}; ${CHECK}`);
    if (code === 'unauthorized')
      throw new OperationFailed(`AUTH_TOKEN is not the token of the service at ${origin}`);
    const errors: unknown[] = Array.isArray(fields) ? fields : [];
    const problems = errors
      .filter(isRecord)
      .map(({ path, message }) => `${optionOf(String(path))} ${String(message)}`);
    const wait = response.headers.get('retry-after');
    const what = problems.join('; ') || String(text);
    const message = stripControlChars(wait === null ? what : `${what} (try again after ${wait} s)`);
    if (code === 'invalid_body') throw new UsageError(message);
    throw code === 'passphrase_needed'
      ? new PassphraseNeeded(message)
      : new OperationFailed(message);
  };
}

/** The option for a member of the request. What the service calls `password` is the secret here. */
const optionOf = (path: string) =>
  path
    .replace(/^\/password$/, 'the secret')
    .replace(/^\//, '')
    .replaceAll('_', '-');

const isRecord = (json: unknown): json is Reply =>
  typeof json === 'object' && json !== null && !Array.isArray(json);

/** @returns the members of these names. @throws OperationFailed unless all are strings */
export function textsOf(reply: Reply, ...names: readonly string[]): string[] {
  const texts = names.map((name) => reply[name]).filter((text) => typeof text === 'string');
  if (texts.length < names.length) throw new OperationFailed(UNEXPECTED);
  return texts;
}
