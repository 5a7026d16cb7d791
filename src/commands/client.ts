import { OperationFailed, type Terminal, UsageError } from './command.ts';
import { stripControlChars } from './terminal.ts';
import { isThisHost } from '../db/connection.ts';
import { VARIABLES } from '../secrets/settings.ts';
import { ConfigurationError, readTable } from '../settings.ts';

type Reply = Readonly<Record<string, unknown>>;
type Headers = Readonly<Record<string, string>>;

export class PassphraseNeeded extends OperationFailed {}

const NO_TOKEN = 'AUTH_TOKEN must be set to the bearer token of the secrets service.';
const UNEXPECTED = 'unexpected reply: is GATEHOUSE_URL, or the link, a Gatehouse secrets service?';
/** Enough for a password hash that waits for others. */
const TIMEOUT_MS = 30_000;

/** @returns a client of the service at GATEHOUSE_URL, with AUTH_TOKEN. @throws ConfigurationError */
export function connectToSecrets(command: string, note: Terminal['note']) {
  const { GATEHOUSE_URL, AUTH_TOKEN } = VARIABLES;
  const values = readTable({ GATEHOUSE_URL, AUTH_TOKEN });
  if (values.AUTH_TOKEN === null) throw new ConfigurationError([NO_TOKEN]);
  const url = (values.GATEHOUSE_URL ?? '').replace(/\/$/, '');
  const headers = { authorization: `Bearer ${values.AUTH_TOKEN}` };
  warnWithoutTls(new URL(url), note);
  return { url, ask: (method: string, path: string, body?: object) => ask(command, method, url + path, headers, body) };
}

export function warnWithoutTls({ protocol, hostname, origin }: URL, note: Terminal['note']): void {
  if (protocol === 'https:' || isThisHost(hostname.replace(/^\[(.*)\]$/, '$1'))) return;
  note(`Warning: ${origin} does not use TLS. Others on the network can read what is sent.`);
}

/**
 * Sends one request. Redirects are not followed: they could send the key to another host.
 * @throws UsageError for an invalid value, PassphraseNeeded, and OperationFailed for any other failure
 */
export async function ask(command: string, method: string, url: string, headers: Headers, body?: object) {
  const { origin } = new URL(url);
  const response = await fetch(url, {
    method, headers: { ...headers, 'content-type': 'application/json' }, redirect: 'manual',
    signal: AbortSignal.timeout(TIMEOUT_MS), body: body ? JSON.stringify(body) : null,
  }).catch((error: unknown) => {
    const cause = error instanceof Error && error.cause;
    const code = isRecord(cause) && cause.code !== undefined ? ` (${String(cause.code)})` : '';
    throw new OperationFailed(`${origin} did not answer${code}; check GATEHOUSE_URL or the link`);
  });
  const reply: unknown = await response.json().catch(() => null);
  if (isRecord(reply) && response.ok) return reply;
  const error = isRecord(reply) ? reply.error : null;
  if (!isRecord(error) || typeof error.code !== 'string') throw new OperationFailed(UNEXPECTED);
  if (error.code === 'no_such_path') throw new OperationFailed(`no secrets service, or no share pages, at ${origin}`);
  if (error.code === 'unauthorized') throw new OperationFailed(`the service at ${origin} rejected AUTH_TOKEN`);
  const fields: unknown[] = Array.isArray(error.fields) ? error.fields : [];
  const problems = fields.filter(isRecord).map(({ path, message }) => `${optionOf(String(path))} ${String(message)}`);
  const wait = response.headers.get('retry-after');
  const hint = wait === null ? '' : ` (try again after ${wait} s)`;
  const message = stripControlChars((problems.join('; ') || String(error.message)) + hint);
  if (error.code === 'invalid_body') throw new UsageError(`${command}: ${message}`);
  throw error.code === 'passphrase_needed' ? new PassphraseNeeded(message) : new OperationFailed(message);
}

/** The option for a member of the request. What the service calls `password` is the secret here. */
const optionOf = (path: string) => path.replace(/^\/password$/, 'the secret').replace(/^\//, '').replaceAll('_', '-');

const isRecord = (value: unknown): value is Reply =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** @returns the members of these names. @throws OperationFailed unless all are strings */
export function textsOf(reply: Reply, ...names: readonly string[]): string[] {
  const texts = names.map((name) => reply[name]).filter((text) => typeof text === 'string');
  if (texts.length < names.length) throw new OperationFailed(UNEXPECTED);
  return texts;
}
