import { basename } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Invocation, OperationFailed, type Terminal, UsageError } from './command.ts';
import { sendRequest } from './request.ts';
import { membersOf, readOptionFile } from './terminal.ts';
import { isThisHost } from '../platform/db/url.ts';
import { isObject } from '../platform/http/route/schema.ts';
// The code of the pages, as in browsers. The service itself does not use it.
import { type Content, envelopeLength, joinKeys, safeName } from '../secrets/pages/envelope.js';
import type { Link } from '../secrets/pages/link.js';
import {
  checkKept,
  checkRequest,
  digestIn,
  keptIn,
  openAnswerKeys,
  sealAnswer,
} from '../secrets/pages/request-keys.js';

type Reply = Readonly<Record<string, unknown>>;

export class PassphraseNeeded extends OperationFailed {}

const CHECK = 'check GATEHOUSE_URL or the link';
export const UNEXPECTED =
  'unexpected reply: is GATEHOUSE_URL, or the link, a Gatehouse secrets service?';

/**
 * @returns a function that sends one request. It throws UsageError for an invalid value,
 * PassphraseNeeded, and OperationFailed for any other failure
 */
export function connect(base: string, token: string | null, { note }: Terminal) {
  const { protocol, hostname, origin } = new URL(base);
  const isProtected = protocol === 'https:' || isThisHost(hostname.replace(/^\[(.*)\]$/, '$1'));
  if (!isProtected)
    note(`Warning: ${origin} does not use TLS. Others on the network can read what is sent.`);
  return async (method: string, path: string, body?: object, others = {}) => {
    const response = await sendRequest(base + path, token, {
      method,
      headers: { 'content-type': 'application/json', ...others },
      body: body ? JSON.stringify(body) : null,
    }).catch((error: unknown) => {
      const { code } = membersOf(error instanceof Error && error.cause);
      const reason = code === undefined ? '' : ` (${code})`;
      throw new OperationFailed(`${origin} did not answer${reason}; ${CHECK}`);
    });
    const reply: unknown = await response.json().catch((error: unknown) => {
      if (!response.ok || error instanceof SyntaxError) return null;
      throw new OperationFailed('the reply was cut off; a read may have been used up');
    });
    if (isObject(reply) && response.ok) return reply;
    throw errorOf(reply, response.headers.get('retry-after'), origin);
  };
}

/** @param wait the seconds of Retry-After */
function errorOf(reply: unknown, wait: string | null, origin: string) {
  const error = membersOf(membersOf(reply).error);
  const { code } = error;
  if (typeof code !== 'string') return new OperationFailed(UNEXPECTED);
  // Without share pages, `/api/store/request` matches the path of a secret, which has no POST.
  if (code === 'no_such_path' || code === 'method_not_allowed')
    return new OperationFailed(`no secrets service or share page at ${origin}; ${CHECK}`);
  if (code === 'unauthorized')
    return new OperationFailed(`AUTH_TOKEN is not the token of the service at ${origin}`);
  const fields: unknown[] = Array.isArray(error.fields) ? error.fields : [];
  const problems = fields
    .filter(isObject)
    .map(({ path, message }) => `${optionOf(String(path))} ${message}`);
  const what = problems.join('; ') || String(error.message);
  const message = wait === null ? what : `${what} (try again after ${wait} s)`;
  if (code === 'invalid_body') return new UsageError(message);
  if (code === 'passphrase_needed') return new PassphraseNeeded(message);
  return new OperationFailed(message);
}

/** The option for a member of the request. What the service calls `password` is the secret here. */
const optionOf = (path: string) =>
  path === '/password' ? 'the secret' : path.replace(/^\//, '').replaceAll('_', '-');

/** @returns the member of this name. @throws OperationFailed unless it is a string */
export function textOf(reply: Reply, name: string) {
  const text = reply[name];
  if (typeof text === 'string') return text;
  throw new OperationFailed(UNEXPECTED);
}

/** What was asked for, as the service says. */
const askedIn = (reply: Reply) => ({
  kind: textOf(reply, 'kind'),
  title: textOf(reply, 'title'),
  public_key: textOf(reply, 'public_key'),
});

const ALTERED =
  'the service has altered this request: what it returned does not belong to the link';
const PAUSE_MS = 2_000;
export const INCOMPLETE =
  'the link is incomplete or has a mistake, or is of another version: copy all of it, with what follows the #';

export const contentOf = (text: string): Content => ({
  about: { kind: 'text' },
  bytes: new TextEncoder().encode(text),
});

/** @param path of the option --file. @throws UsageError */
export async function contentOfFile(path: string): Promise<Content> {
  const bytes = await readOptionFile('file', path);
  const name = safeName(basename(path));
  return {
    about: {
      kind: 'file',
      name,
      type: 'application/octet-stream',
    },
    bytes,
  };
}

/** @param max bytes that the service stores. @throws OperationFailed */
export function checkSize({ about, bytes }: Content, max: unknown) {
  if (envelopeLength(about, bytes.length) > Number(max))
    throw new OperationFailed('the text or file is too large for the service: nothing was sent');
}

/**
 * Finds the answer to a request.
 * @param link to keep; any other one is returned as it is
 * @param waits whether to wait for the answer
 * @returns the link of the answer
 */
export async function findAnswer(link: Link, terminal: Terminal, waits: boolean): Promise<Link> {
  const { base, kind, id } = link;
  if (kind !== 'request') return link;
  const kept = await keptIn(link.keys);
  if (!kept) throw new OperationFailed(INCOMPLETE);
  const ask = connect(base, null, terminal);
  const find = async () => {
    const reply = await ask('POST', `/request/${id}`, { key: kept.receipt });
    const own = await checkKept(kept, askedIn(reply));
    if (own)
      return {
        status: textOf(reply, 'status'),
        reply,
        own,
      };
    throw new OperationFailed(`${ALTERED}. Ask again with a new request`);
  };
  let found = await find();
  while (waits && found.status === 'open') {
    await sleep(PAUSE_MS);
    found = await find();
  }
  if (found.status !== 'answered')
    throw new OperationFailed(`there is no answer: the request is ${found.status}`);
  const public_key = textOf(found.reply, 'public_key');
  const answer_key = textOf(found.reply, 'answer_key');
  const keys = await openAnswerKeys(id, found.own, { public_key, answer_key });
  if (!keys)
    throw new OperationFailed(
      'the answer does not open with this link: it was altered in the service. No read was used up',
    );
  return {
    base,
    kind: 's',
    id,
    keys: joinKeys(keys.serviceKey, keys.key),
  };
}

/**
 * Answers a request with the file that the command names, if one is asked for.
 * @param link to send, from standard input; null if it is not whole
 * @param readText asks for the text otherwise
 * @returns what was done
 */
export async function sendAnswer(
  call: Invocation,
  link: Link | null,
  readText: () => Promise<string>,
) {
  const { note } = call;
  const path = call.text('file');
  const digest = digestIn(link?.keys ?? '');
  if (!link || digest === null) throw new UsageError(INCOMPLETE);
  const { base, id } = link;
  const ask = connect(base, null, call);
  const request = await ask('POST', `/request/${id}`, { key: digest });
  const status = textOf(request, 'status');
  const asked = askedIn(request);
  const keys = await checkRequest(id, digest, asked);
  if (!keys) throw new OperationFailed(`${ALTERED}. Nothing was sent`);
  if (status !== 'open')
    throw new OperationFailed(`this request takes no answer any more: it is ${status}`);
  note(`Asked for: ${asked.title}`);
  if ((asked.kind === 'file') !== (path !== undefined))
    throw new UsageError('give --file if a file is asked for, and not for a text');
  const content = path === undefined ? contentOf(await readText()) : await contentOfFile(path);
  checkSize(content, request.max_bytes);
  const answer = await sealAnswer(content, keys);
  await ask('POST', `/answer/${id}`, answer, { 'X-Link-Key': digest });
  return 'Sent. Only the link of the person who asked opens it.';
}
