import { DAY_SECONDS } from '../platform/runtime/duration.ts';
import {
  HEADER_NAME,
  isKeepable,
  isPlace,
  isPointer,
  isReadable,
  MAX_PLACE,
} from '../webhook/places.ts';
import {
  ALGORITHMS,
  ENCODINGS,
  readSigned,
  type Scheme,
  SECRET_ENCODINGS,
} from '../webhook/signatures.ts';
import { type CustomSource, type SourceName, SOURCES } from '../webhook/sources.ts';
import { type Arguments, choice, option, UsageError } from './command.ts';
import { readDuration } from './terminal.ts';

const PLACE = 'a header, or a JSON pointer into the body, such as /data/type';
/** Before the name of every event, in place of a header or a pointer. */
const FIXED = 'fixed:';

/** What only a signed request has. */
const SIGNING_OPTIONS = {
  'signature-prefix': option('TEXT', 'custom: what is before the signature, such as sha256='),
  encoding: option('ENCODING', `custom: ${ENCODINGS.join(', ')}; default hex`),
  algorithm: option('NAME', `custom: ${ALGORITHMS.join(', ')}; default hmac-sha256`),
  'secret-encoding': option(
    'ENCODING',
    `custom: of the signing secret: ${SECRET_ENCODINGS.join(', ')}; default text`,
  ),
  'signed-text': option('TEXT', 'custom: with {body}, {timestamp}, {id}; default {body}'),
  time: option('PLACE', `custom: the signed time: ${PLACE}`),
  'time-prefix': option('TEXT', "custom: before a time in the signature's header; default t="),
  'max-age': option('TIME', 'custom: how old the signed time of a repetition may be; default 5m'),
};

/** For a token with the source `custom`. */
export const CUSTOM_OPTIONS = {
  'event-name': option('PLACE', `custom: the name of the event: ${PLACE}; or ${FIXED}NAME`),
  'delivery-id': option('PLACE', `custom: the id of the delivery: ${PLACE}`),
  'keep-headers': option('NAMES', 'custom: further headers to keep, such as x-tenant,x-shop-*'),
  'signature-header': option(
    'NAME',
    'custom: the header with the signature; without it, the token alone decides',
  ),
  ...SIGNING_OPTIONS,
};

const PLACEHOLDERS = ['{body}', '{timestamp}', '{id}'];

const firstGiven = (given: Arguments, options: object) =>
  Object.keys(options).find((name) => given.text(name) !== undefined);

/**
 * @returns null for another source
 * @throws UsageError for anything that could never verify a request
 */
export function readCustomSource(given: Arguments, source: SourceName): CustomSource | null {
  if (source !== 'custom') {
    const name = firstGiven(given, CUSTOM_OPTIONS);
    if (name !== undefined) throw new UsageError(`--${name} needs --source custom`);
    return null;
  }
  const named = given.text('event-name');
  if (named === undefined) throw new UsageError('source custom needs --event-name');
  const id = readPlace(given, 'delivery-id');
  const about = {
    ...readName(given, named),
    deliveryId: id ? [id] : [],
    ...readKept(given),
  };
  const header = readHeader(given, 'signature-header');
  if (header !== undefined) return { ...about, ...readSigning(given, header, id) };
  const name = firstGiven(given, SIGNING_OPTIONS);
  if (name !== undefined) throw new UsageError(`--${name} needs --signature-header`);
  return { ...about, scheme: null };
}

function readName(given: Arguments, named: string) {
  if (!named.startsWith(FIXED)) {
    const place = readPlace(given, 'event-name');
    return { event: place ? [place] : [] };
  }
  const name = named.slice(FIXED.length);
  if (name === '' || name.length > 255 || /\p{C}/u.test(name))
    throw new UsageError('--event-name takes 1 to 255 printable characters as a name');
  return { event: [], name };
}

/** Further headers, and beginnings of their names: never so short that they select any header. */
function readKept(given: Arguments) {
  const names = given.text('keep-headers')?.toLowerCase().split(',') ?? [];
  const isPrefix = (name: string) => /^[a-z0-9-]{2,}-\*$/.test(name);
  const kept = names.filter((name) => !isPrefix(name));
  for (const name of kept) {
    if (name.includes('*'))
      throw new UsageError('--keep-headers takes * only at the end, as in x-shop-*');
    checkHeader(name, 'keep-headers', isKeepable);
  }
  const prefixes = names.filter(isPrefix).map((name) => name.slice(0, -1));
  return names.length === 0
    ? {}
    : { kept, keptPrefixes: [...SOURCES.custom.keptPrefixes, ...prefixes] };
}

/** How requests are signed. @param idPlace of the delivery */
function readSigning(given: Arguments, header: string, idPlace: string | undefined) {
  const text = given.text('signed-text') ?? '{body}';
  const unknown = (text.match(/\{[^{}]*\}/g) ?? []).find((name) => !PLACEHOLDERS.includes(name));
  if (unknown !== undefined)
    throw new UsageError(`--signed-text has ${unknown}; it may have ${PLACEHOLDERS.join(', ')}`);
  if (text.split('{body}').length !== 2)
    throw new UsageError('--signed-text must have {body} once');
  const timePlace = readPlace(given, 'time');
  const time = signedHeader(text, '{timestamp}', timePlace, '--time');
  const id = signedHeader(text, '{id}', idPlace, '--delivery-id');
  const bodyTime = time ? undefined : timePlace;
  if (bodyTime && !isPointer(bodyTime))
    throw new UsageError('a time in a header protects only if it is signed: use {timestamp}');
  const isTimeInside = time === header;
  const prefix = given.text('signature-prefix');
  const timePrefix = given.text('time-prefix') ?? (isTimeInside ? 't=' : undefined);
  if (timePrefix !== undefined && !isTimeInside)
    throw new UsageError('--time-prefix needs --time with the header of the signature');
  const scheme = {
    header,
    text,
    prefix,
    // None of these is in a signature or a time.
    separators: [...',; ']
      .filter((one) => !`${prefix ?? ''}${timePrefix ?? ''}`.includes(one))
      .join(''),
    encoding: choice(given, 'encoding', ENCODINGS),
    algorithm: choice(given, 'algorithm', ALGORITHMS),
    secretEncoding: choice(given, 'secret-encoding', SECRET_ENCODINGS),
    time: isTimeInside ? undefined : time,
    timePrefix,
    id,
  };
  if (!canVerify(scheme))
    throw new UsageError(
      'no request can be signed as these options say: look at the prefixes, and at headers that are named twice',
    );
  return {
    scheme,
    time: bodyTime,
    maxAge: readMaxAge(given, timePlace),
  };
}

function readMaxAge(given: Arguments, timePlace: string | undefined) {
  const seconds = readDuration(given, 'max-age');
  if (seconds === undefined) return undefined;
  if (timePlace === undefined) throw new UsageError('--max-age needs --time');
  if (seconds < 1 || seconds > 7 * DAY_SECONDS)
    throw new UsageError('--max-age must be from 1s to 7d');
  return seconds;
}

/** Of the request that `canVerify` makes up. */
const TIME = 1_700_000_000;
const SIGNATURE = Buffer.alloc(32, 'any');

/** Reads back a signature and a time, written as described. The algorithm does not matter. */
function canVerify(given: Scheme) {
  const scheme: Scheme = { ...given, algorithm: 'hmac-sha256' };
  const { header, time, id, prefix = '', timePrefix, separators = '', encoding = 'hex' } = scheme;
  const names = [header, time, id].filter((name) => name !== undefined);
  if (new Set(names).size < names.length) return false;
  const isUpper = encoding === 'hex-upper';
  const signature = SIGNATURE.toString(isUpper ? 'hex' : encoding);
  const parts = [prefix + (isUpper ? signature.toUpperCase() : signature)];
  if (timePrefix !== undefined) parts.unshift(timePrefix + TIME);
  const written = Buffer.from(parts.join(separators.slice(0, 1)), 'latin1');
  const headers = Object.fromEntries(names.map((name) => [name, String(TIME)]));
  // As a parser of HTTP hands it over.
  headers[header] = written.toString('latin1').trim();
  const { sent, at } = readSigned(scheme, headers);
  const isTimeRead = at === undefined || at === TIME;
  return isTimeRead && sent.some(({ bytes }) => bytes.equals(SIGNATURE));
}

/**
 * What is signed must be known before the body is parsed.
 * @returns the header of what stands in the signed text under this name, or undefined
 */
function signedHeader(text: string, name: string, place: string | undefined, option: string) {
  if (!text.includes(name)) return undefined;
  if (place && !isPointer(place)) return place;
  throw new UsageError(`--signed-text has ${name}, so ${option} must name a header`);
}

function readPlace(given: Arguments, name: string) {
  const place = given.text(name);
  if (place === undefined || !isPointer(place))
    return readHeader(given, name, name === 'time' ? isReadable : isKeepable);
  if (place.length > MAX_PLACE)
    throw new UsageError(`--${name} takes at most ${MAX_PLACE} characters`);
  if (!isPlace(place))
    throw new UsageError(`--${name} must be ${PLACE}; in a name, ~ is ~0 and / is ~1`);
  return place;
}

/** @param isAllowed for a header that is only read, or stored as well */
function readHeader({ text }: Arguments, name: string, isAllowed = isReadable) {
  const header = text(name)?.toLowerCase();
  return header === undefined ? undefined : checkHeader(header, name, isAllowed);
}

function checkHeader(header: string, name: string, isAllowed: (header: string) => boolean) {
  if (!HEADER_NAME.test(header)) throw new UsageError(`--${name} must be the name of a header`);
  if (!isAllowed(header)) throw new UsageError(`--${name} cannot be ${header}`);
  return header;
}

/** For a list. */
export function customText(custom: CustomSource | null) {
  if (!custom) return null;
  if (!custom.scheme) return 'not signed: the token alone decides';
  const { header, algorithm = 'hmac-sha256', text = '{body}' } = custom.scheme;
  return `${header}: ${algorithm} of ${text}`;
}
