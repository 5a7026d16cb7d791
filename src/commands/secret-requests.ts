import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Invocation, OperationFailed, type Terminal, UsageError } from './command.ts';
import { connect, textOf } from './secrets-client.ts';
// The code of the pages, as in browsers. The service itself does not use it.
import {
  type Content,
  envelopeLength,
  joinKeys,
  parseKey,
  safeName,
  splitKeys,
} from '../secrets/pages/envelope.js';
import {
  checkRequest,
  digestIn,
  openAnswerKeys,
  sealAnswer,
} from '../secrets/pages/request-keys.js';

const KEPT = /^(https?:.*)\/request\/([0-9a-f-]{36})\/?$/i;
const SENT = /^(https?:.*)\/answer\/([0-9a-f-]{36})\/?#(.*)$/i;
const PAUSE_MS = 2_000;
const INCOMPLETE =
  'the link is incomplete or has a mistake, or is of another version: copy all of it, with what follows the #';
const ALTERED =
  'the service has altered this request: what it returned does not belong to the link. Nothing was sent';
const DAMAGED =
  'the answer does not open with this link: it was altered in the service. No read was used up';

const WRONG_KIND = 'give --file if a file is asked for, and not for a text';
const TOO_LARGE = 'the text or file is too large for the service: nothing was sent';

export const contentOf = (text: string): Content => ({
  about: { kind: 'text' },
  bytes: new TextEncoder().encode(text),
});

/**
 * Finds the answer to a request.
 * @param place of the link to keep; that of any other link is returned as it is
 * @param fragment what follows the #
 * @param waits whether to wait for the answer
 */
export async function findAnswer(
  place: string,
  fragment: string,
  { note }: Terminal,
  waits: boolean,
) {
  const [, base, given = ''] = KEPT.exec(place) ?? [];
  if (base === undefined) return { place, key: fragment };
  const { serviceKey = '', key = '' } = splitKeys(fragment) ?? {};
  if (!key || !(await parseKey(key))) throw new OperationFailed(INCOMPLETE);
  const id = given.toLowerCase();
  const ask = connect(base, null, note);
  const find = () => ask('POST', `/request/${id}`, { key: serviceKey });
  let request = await find();
  while (waits && request.status === 'open') {
    await sleep(PAUSE_MS);
    request = await find();
  }
  if (request.status !== 'answered')
    throw new OperationFailed(`there is no answer: the request is ${String(request.status)}`);
  const public_key = textOf(request, 'public_key');
  const answer_key = textOf(request, 'answer_key');
  const keys = await openAnswerKeys(id, { public_key, answer_key }, key);
  if (!keys) throw new OperationFailed(DAMAGED);
  return { place: `${base}/s/${id}`, key: joinKeys(keys.serviceKey, keys.key) };
}

/**
 * Answers a request with the file that the command names, if one is asked for.
 * @param readText asks for the text otherwise
 * @returns what was done
 */
export async function sendAnswer(
  { first: link, text, note }: Invocation,
  readText: () => Promise<string>,
) {
  const path = text('file');
  const [, base = '', given = '', fragment = ''] = SENT.exec(link) ?? [];
  const digest = digestIn(fragment);
  if (digest === null) throw new UsageError(INCOMPLETE);
  const id = given.toLowerCase();
  const ask = connect(base, null, note);
  const request = await ask('POST', `/request/${id}`, { key: digest });
  const status = textOf(request, 'status');
  const kind = textOf(request, 'kind');
  const title = textOf(request, 'title');
  const public_key = textOf(request, 'public_key');
  if (status !== 'open')
    throw new OperationFailed(`this request takes no answer any more: it is ${status}`);
  const keys = await checkRequest(id, digest, { kind, title, public_key });
  if (!keys) throw new OperationFailed(ALTERED);
  note(`Asked for: ${title}`);
  if ((kind === 'file') !== (path !== undefined)) throw new UsageError(WRONG_KIND);
  const content: Content =
    path === undefined
      ? contentOf(await readText())
      : {
          about: { kind: 'file', name: safeName(basename(path)), type: 'application/octet-stream' },
          bytes: await readFile(path),
        };
  if (envelopeLength(content.about, content.bytes.length) > Number(request.max_bytes))
    throw new OperationFailed(TOO_LARGE);
  await ask('POST', `/answer/${id}`, await sealAnswer(content, digest, keys));
  return 'Sent. Only the link of the person who asked opens it.';
}
