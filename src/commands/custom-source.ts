import { isKeepable, isReadable } from '../webhook/header-names.ts';
import { ALGORITHMS, ENCODINGS } from '../webhook/signatures.ts';
import type { CustomSource, SourceName } from '../webhook/sources.ts';
import { type Arguments, choice, option, UsageError } from './command.ts';

const PLACE = 'a header, or a JSON pointer into the body, such as /data/type';

/** For a token with the source `custom`. */
export const CUSTOM_OPTIONS = {
  'signature-header': option('NAME', 'custom: the header with the signature'),
  'signature-prefix': option('TEXT', 'custom: what is before the signature, such as sha256='),
  encoding: option('ENCODING', `custom: ${ENCODINGS.join(' or ')}; default hex`),
  algorithm: option('NAME', `custom: ${ALGORITHMS.join(', ')}; default hmac-sha256`),
  'signed-text': option('TEXT', 'custom: with {body}, {timestamp}, {id}; default {body}'),
  time: option('PLACE', `custom: the signed time: ${PLACE}`),
  'event-name': option('PLACE', `custom: the name of the event: ${PLACE}`),
  'delivery-id': option('PLACE', `custom: the id of the delivery: ${PLACE}`),
};

const PLACEHOLDERS = ['{body}', '{timestamp}', '{id}'];

/** A place in the body; any other is a header. */
const isPointer = (place: string) => place.startsWith('/');

/**
 * @returns null for another source
 * @throws UsageError for anything that could never verify a request
 */
export function readCustomSource(given: Arguments, source: SourceName): CustomSource | null {
  if (source !== 'custom') {
    const name = Object.keys(CUSTOM_OPTIONS).find((option) => given.text(option) !== undefined);
    if (name !== undefined) throw new UsageError(`--${name} needs --source custom`);
    return null;
  }
  const header = readHeader(given, 'signature-header');
  const event = readPlace(given, 'event-name');
  if (header === undefined || event === undefined)
    throw new UsageError('source custom needs --signature-header and --event-name');
  const text = given.text('signed-text') ?? '{body}';
  const unknown = (text.match(/\{[^{}]*\}/g) ?? []).find((name) => !PLACEHOLDERS.includes(name));
  if (unknown !== undefined)
    throw new UsageError(`--signed-text has ${unknown}; it may have ${PLACEHOLDERS.join(', ')}`);
  if (text.split('{body}').length !== 2)
    throw new UsageError('--signed-text must have {body} once');
  const timePlace = readPlace(given, 'time');
  const idPlace = readPlace(given, 'delivery-id');
  const time = signedHeader(text, '{timestamp}', timePlace, '--time');
  const id = signedHeader(text, '{id}', idPlace, '--delivery-id');
  const bodyTime = time ? undefined : timePlace;
  if (bodyTime && !isPointer(bodyTime))
    throw new UsageError('a time in a header protects only if it is signed: use {timestamp}');
  const scheme = {
    header,
    text,
    prefix: given.text('signature-prefix'),
    encoding: choice(given, 'encoding', ENCODINGS),
    algorithm: choice(given, 'algorithm', ALGORITHMS),
    time,
    id,
  };
  return {
    scheme,
    event: [event],
    deliveryId: idPlace ? [idPlace] : [],
    time: bodyTime,
  };
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
  if (place.length > 255) throw new UsageError(`--${name} takes at most 255 characters`);
  if (/~(?![01])/.test(place))
    throw new UsageError(`--${name} must be ${PLACE}; in a name, ~ is ~0 and / is ~1`);
  return place;
}

/** @param isAllowed for a header that is only read, or stored as well */
function readHeader({ text }: Arguments, name: string, isAllowed = isReadable) {
  const header = text(name)?.toLowerCase();
  if (header === undefined) return header;
  // RFC 9110, 5.6.2.
  if (!/^[a-z0-9!#$%&'*+.^_`|~-]{1,128}$/.test(header))
    throw new UsageError(`--${name} must be the name of a header`);
  if (!isAllowed(header)) throw new UsageError(`--${name} cannot be ${header}`);
  return header;
}

/** For a list. */
export function customText(custom: CustomSource | null) {
  if (!custom) return null;
  const { header, algorithm = 'hmac-sha256', text = '{body}' } = custom.scheme;
  return `${header}: ${algorithm} of ${text}`;
}
