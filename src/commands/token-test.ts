import { unsealServiceSecret } from '../platform/crypto/service-secret.ts';
import { Failure } from '../platform/http/route/errors.ts';
import { eventBody, sentSecret, signedPartOf } from '../webhook/body.ts';
import { readContent } from '../webhook/content.ts';
import {
  ALGORITHMS,
  ENCODINGS,
  isSignedWith,
  missingHeaders,
  namesIn,
  readSigned,
  type Scheme,
  secondsOf,
} from '../webhook/signatures.ts';
import { sourceOf } from '../webhook/order.ts';
import { SOURCE_NAMES, SOURCES } from '../webhook/sources.ts';
import { findSecrets } from '../webhook/store/signing-secrets.ts';
import { listTokens, type Token } from '../webhook/store/tokens.ts';
import { UNKNOWN_KEY } from '../webhook/verification.ts';
import { type Command, OperationFailed, requiredOption, UsageError } from './command.ts';
import { readOptionFile } from './terminal.ts';
import { inWebhook, requireKeys } from './webhook-database.ts';

/** A request with the active signing secrets of its token. */
type Captured = Awaited<ReturnType<typeof readRequest>> & Readonly<{ secrets: readonly string[] }>;

export const TEST_COMMAND: Command = {
  name: 'token test',
  positionals: 'TOKEN',
  summary:
    'Say whether a captured request verifies with a token, given by name or id, and if not, why',
  options: {
    request: requiredOption('FILE', 'header lines, an empty line, and the body as it was sent'),
  },
  async run(call) {
    const request = await readRequest(call.text('request') ?? '');
    const { token, secrets } = await inWebhook(call, async (database, settings) => {
      const found = (await listTokens(database)).filter(
        (one) => one.revoked_at === null && [one.id, one.name].includes(call.first),
      );
      const [only] = found;
      if (!only || found.length > 1)
        throw new OperationFailed(`${found.length} active tokens have this name or id`);
      const sealed = await findSecrets(database, only.id, 'verify');
      const secrets = sealed.map((one) => unsealServiceSecret(requireKeys(settings), one));
      if (!secrets.every((secret) => secret !== null)) throw new OperationFailed(UNKNOWN_KEY);
      return { token: only, secrets };
    });
    const problems = problemsOf(token, { ...request, secrets }, call.print);
    for (const problem of problems) call.note(problem);
    if (problems.length > 0) throw new OperationFailed('the request would not be accepted');
    call.print('The request is accepted.');
  },
};

/** Splits a request as it is sent: a request line is ignored, and the body is kept byte by byte. */
async function readRequest(file: string) {
  const bytes = await readOptionFile('request', file);
  const found = /\r?\n\r?\n/.exec(bytes.toString('latin1'));
  if (!found) throw new UsageError('--request needs an empty line between headers and body');
  const lines = bytes.toString('latin1', 0, found.index).split(/\r?\n/);
  const headers = lines.flatMap((line) => {
    const [, name = '', value = ''] = /^([^\s:]+):\s*(.*?)\s*$/.exec(line) ?? [];
    return name === '' ? [] : [[name.toLowerCase(), value] as const];
  });
  const body: Buffer = bytes.subarray(found.index + found[0].length);
  return { headers: Object.fromEntries(headers), body };
}

function problemsOf(token: Token, captured: Captured, print: (line: string) => void) {
  if (token.role === 'operator') return ['It is the token of an operator, which sends no events.'];
  const source = sourceOf(token);
  const refused = eventBody.accepts(captured.headers);
  const problems = refused ? [bodyProblem(refused)] : [];
  if (sentSecret(source, captured.headers, captured.body) !== null) {
    print('It is a signing secret, which waits for: gatehouse token confirm');
    return problems;
  }
  const signed = { ...captured, body: signedPartOf(source, captured.headers, captured.body) };
  if (source.scheme) problems.push(...signatureProblems(source.scheme, signed, print));
  else print('signature: none; the token alone decides');
  return [...problems, ...bodyProblems(token, captured, print)];
}

function bodyProblems(
  token: Token,
  { headers, body, secrets }: Captured,
  print: (line: string) => void,
) {
  const source = sourceOf(token);
  const content = readContent(source, headers, body, secrets[0] ?? null);
  if (content instanceof Failure) return [bodyProblem(content)];
  if (content.signedAt === null) return [`body: ${source.time} must be the signed time`];
  const { found } = content;
  if (found instanceof Failure) return [bodyProblem(found)];
  if (found.kind === 'handshake') {
    print('It is a handshake, which is answered and not stored.');
    return [];
  }
  print(`event name: ${found.name}`);
  print(`delivery id: ${found.deliveryId ?? 'none'}`);
  if (source.order) print(`in order with: ${found.page ?? 'no other event'}`);
  return [];
}

const bodyProblem = (failure: Failure) => `body: ${problemOf(failure)}`;

const problemOf = ({ code, details: { fields: [field] = [], message = code } }: Failure) =>
  field ? `${field.path}: ${field.message}`.replace(/^: /, '') : message;

function signatureProblems(scheme: Scheme, captured: Captured, print: (line: string) => void) {
  const { headers, body, secrets } = captured;
  if (secrets.length === 0) return ['The token has no active signing secret.'];
  const { prefix = '' } = scheme;
  const { header } = namesIn(scheme, headers);
  const missing = missingHeaders(scheme, headers);
  if (missing.length > 0)
    return [
      `The request lacks the header ${missing.join(' and ')}.`,
      ...variants(scheme, captured),
    ];
  const { sent, at, before, after } = readSigned(scheme, headers);
  if (sent.length === 0) {
    const { encoding = 'hex', algorithm = 'hmac-sha256' } = scheme;
    const form = `${JSON.stringify(prefix)} and a signature of ${algorithm} in ${encoding}`;
    return [`The header ${header} has not the form ${form}.`, ...variants(scheme, captured)];
  }
  if (at === null) return ['The signed time is neither a number of seconds nor an ISO time.'];
  if (at !== undefined) print(`signed: ${new Date(at * 1_000).toISOString()}`);
  if (verifies(scheme, captured)) {
    print('signature: valid');
    return [];
  }
  const start = JSON.stringify(before.slice(0, 100));
  return [
    'The signature is wrong: the secret, the signed text or the body differs.',
    `Signed text: ${start}, then the body of ${body.length} bytes, then ${JSON.stringify(after)}.`,
    ...variants(scheme, captured),
  ];
}

/** Whatever the age of the request. Without its time, no text with {timestamp} is signed. */
function verifies(scheme: Scheme, { headers, body, secrets }: Captured) {
  const signed = readSigned(scheme, headers);
  return signed.at !== null && secrets.some((secret) => isSignedWith(scheme, secret, signed, body));
}

const TEXTS = [
  '{body}',
  '{timestamp}.{body}',
  '{timestamp}:{body}',
  '{timestamp}{body}',
  'v0:{timestamp}:{body}',
  '{id}.{timestamp}.{body}',
  '{body}{timestamp}',
];

/** What else would verify: a usual mistake in the capture, the secret or the options. */
function variants(scheme: Scheme, captured: Captured) {
  const body = Buffer.from(captured.body.toString('latin1').trimEnd(), 'latin1');
  const secrets = captured.secrets.map((secret) => secret.trim());
  const found: string[] = [];
  if (verifies(scheme, { ...captured, body }))
    found.push('It verifies without the line break at the end of the file.');
  if (verifies(scheme, { ...captured, secrets }))
    found.push('It verifies without the spaces around the secret.');
  for (const source of SOURCE_NAMES) {
    const other = SOURCES[source].scheme;
    if (other && verifies(other, captured)) found.push(`It verifies with --source ${source}.`);
  }
  for (const { words, ...place } of placesOf(scheme, captured.headers))
    for (const text of TEXTS)
      for (const algorithm of ALGORITHMS) {
        const tried = {
          ...scheme,
          ...place,
          text,
          algorithm,
        };
        const encoding = ENCODINGS.find((one) => verifies({ ...tried, encoding: one }, captured));
        if (encoding === undefined) continue;
        const options = `--signed-text '${text}' --algorithm ${algorithm} --encoding ${encoding}`;
        found.push(`It verifies with ${words}${options}.`);
      }
  return [...new Set(found)];
}

/** Where else the signature and the time may be: in any header, behind what looks like a prefix. */
function* placesOf(scheme: Scheme, headers: Captured['headers']) {
  yield { words: '' };
  const { time, timePrefix } = scheme;
  const names = Object.keys(headers).filter((name) => name !== time);
  const timed = names.filter((name) => secondsOf(headers[name]) !== null);
  const others = timed.map((name) => ({ time: name, timePrefix: undefined }));
  for (const [header, value] of Object.entries(headers)) {
    const prefixes = new Set(value.split(/[,; ]+/).map(prefixOf));
    const isInside = prefixes.has('t=') && timePrefix === undefined;
    const inside = isInside ? [{ time: undefined, timePrefix: 't=' }] : [];
    for (const prefix of prefixes) {
      const own = `--signature-header ${header} `;
      const words = prefix === '' ? own : `${own}--signature-prefix ${prefix} `;
      const place = {
        header,
        prefix,
        separators: ',; ',
      };
      const isSame = header === scheme.header && prefix === (scheme.prefix ?? '');
      if (!isSame) yield { ...place, time, timePrefix, words };
      for (const way of [...others, ...inside])
        yield { ...place, ...way, words: `${words}--time ${way.time ?? header} ` };
    }
  }
}

const prefixOf = (part: string) => /^[\w-]{1,20}[=:]/.exec(part)?.[0] ?? '';
