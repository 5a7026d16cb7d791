import { stripControlChars } from './administration.ts';
import { OperationFailed, UsageError } from './command.ts';
import { isThisHost } from '../db/connection.ts';
import { VARIABLES } from '../secrets/settings.ts';
import { ConfigurationError, readTable } from '../settings.ts';

/** What a service answered. */
export type Answer = { readonly ok: true; readonly data: Readonly<Record<string, unknown>> } | { readonly ok: false; readonly code: string; readonly message: string };

/** Long enough for a password hash behind others. */
const TIMEOUT_MS = 30_000;

/** @returns the secrets service of GATEHOUSE_URL, asked with AUTH_TOKEN. @throws ConfigurationError */
export function connectToSecrets(note: (line: string) => void) {
  const { GATEHOUSE_URL, AUTH_TOKEN: token } = readTable({ GATEHOUSE_URL: VARIABLES.GATEHOUSE_URL, AUTH_TOKEN: VARIABLES.AUTH_TOKEN });
  const url = (GATEHOUSE_URL ?? '').replace(/\/$/, '');
  if (token === null) throw new ConfigurationError(['AUTH_TOKEN must be set to the bearer token of the secrets service.']);
  warnIfOpen(new URL(url), note);
  return { url, ask: (method: string, path: string, body?: object) => ask(method, url + path, { authorization: `Bearer ${token}` }, body) };
}

export function warnIfOpen({ protocol, hostname, origin }: URL, note: (line: string) => void): void {
  if (protocol === 'https:' || isThisHost(hostname.replace(/^\[(.*)\]$/, '$1'))) return;
  note(`Warning: ${origin} is not under TLS; whoever can listen on the way reads what is sent.`);
}

/**
 * One request. A redirect is not followed: it could carry the key to somebody else.
 * @throws OperationFailed when there is no answer, or one that is not Gatehouse's
 */
export async function ask(method: string, url: string, headers: Record<string, string>, body?: object): Promise<Answer> {
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const request = { method, headers: { ...headers, 'content-type': 'application/json' }, redirect: 'manual', signal, ...(body ? { body: JSON.stringify(body) } : {}) } as const;
  const response = await fetch(url, request).catch((error: unknown) => {
    const cause = error instanceof Error && error.cause instanceof Error && 'code' in error.cause ? ` (${String(error.cause.code)})` : '';
    throw new OperationFailed(`${new URL(url).origin} did not answer${cause}; check GATEHOUSE_URL or the link`);
  });
  const reply: unknown = await response.json().catch(() => null);
  if (!isRecord(reply)) throw strange();
  if (response.ok) return { ok: true, data: reply };
  const { error } = reply;
  if (!isRecord(error) || typeof error.code !== 'string') throw strange();
  if (error.code === 'no_such_path') throw new OperationFailed(`there is no secrets service at ${new URL(url).origin}, or its share pages are off; check GATEHOUSE_URL or the link`);
  if (error.code === 'unauthorized') throw new OperationFailed(`AUTH_TOKEN is not the token of the service at ${new URL(url).origin}`);
  const fields: unknown[] = Array.isArray(error.fields) ? error.fields : [];
  const faults = fields.filter(isRecord).map(({ path, message }) => `${String(path).replace(/^\/(password$)?/, (_, secret: string | undefined) => (secret ? 'the secret' : '')).replaceAll('_', '-')} ${String(message)}`);
  const wait = response.headers.get('retry-after');
  return { ok: false, code: error.code, message: stripControlChars((faults.join('; ') || String(error.message)) + (wait === null ? '' : ` (try again after ${wait} s)`)) };
}

const strange = () => new OperationFailed("what is at this address does not answer as Gatehouse's secrets service does; check GATEHOUSE_URL or the link");

const isRecord = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value);

/**
 * @param texts members that the reply must have as texts
 * @throws UsageError where a value was at fault, OperationFailed for every other refusal
 */
export function dataOf(command: string, answer: Answer, ...texts: readonly string[]): Readonly<Record<string, unknown>> {
  if (answer.ok && !texts.every((name) => typeof answer.data[name] === 'string')) throw strange();
  if (answer.ok) return answer.data;
  if (answer.code === 'invalid_body') throw new UsageError(`${command}: ${answer.message}`);
  throw new OperationFailed(answer.message);
}
