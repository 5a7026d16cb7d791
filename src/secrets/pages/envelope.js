/**
 * End-to-end encryption of shared texts and files, in a browser and in the command line.
 * docs/envelope.md describes the format. The service stores the envelope as it would store any
 * text, and never sees the key.
 */

const VERSION = 1;
const KEY_BYTES = 32;
const CHECK_BYTES = 4;
const NONCE_BYTES = 12;
const LENGTH_BYTES = 4;
const MIN_PADDED = 256;
/** The longest name of a file in UTF-8. File systems allow 255 bytes, and a number may be added. */
const NAME_BYTES = 200;
/** OWASP password storage cheat sheet, for PBKDF2 with SHA-256. */
const ITERATIONS = 600_000;
const LABEL = 'gatehouse/envelope/v1/';

/**
 * @typedef {Uint8Array<ArrayBuffer>} Bytes
 * @typedef {{ kind: 'text' } | { kind: 'file', name: string, type: string }} About
 * @typedef {{ about: About, bytes: Bytes }} Content
 */

const encoder = new TextEncoder();

/** False on a page without HTTPS: browsers offer no encryption there. */
export const isSupported = () => globalThis.crypto?.subtle !== undefined;

/** @param {Bytes} bytes */
export function toBase64url(bytes) {
  let binary = '';
  // In pieces: a function takes a limited number of arguments.
  for (let at = 0; at < bytes.length; at += 8_192)
    binary += String.fromCharCode(...bytes.subarray(at, at + 8_192));
  return btoa(binary).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
}

/**
 * As in the service, each value has one encoding: the unused bits of the last character are zero.
 * @param {string} text @returns {Bytes | null}
 */
export function fromBase64url(text) {
  if (!/^[A-Za-z0-9_-]*$/.test(text)) return null;
  try {
    const binary = atob(text.replaceAll('-', '+').replaceAll('_', '/'));
    const bytes = Uint8Array.from(binary, (one) => one.charCodeAt(0));
    return toBase64url(bytes) === text ? bytes : null;
  } catch {
    return null;
  }
}

const ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const SERVICE_LINK = /^[A-Za-z0-9_-]{43}$/;

/**
 * What the service returns becomes a part of links. Another text could make another link of one, or
 * add a line with one.
 * @param {string} id @param {string[]} keys
 */
export const fitLink = (id, ...keys) => ID.test(id) && keys.every((key) => SERVICE_LINK.test(key));

const END_TO_END_LINK = /^1\.([A-Za-z0-9_-]{43})\.([A-Za-z0-9_-]{48})$/;

/**
 * The mark at the start says that two keys follow. Otherwise a link that was cut at its last dot
 * would look whole, and opening it would use up a read.
 * @param {string} serviceKey @param {string} key of `seal`
 * @returns what follows the # in an end-to-end link
 */
export const joinKeys = (serviceKey, key) => `1.${serviceKey}.${key}`;

/**
 * @param {string} text what follows the # in a link
 * @returns {{ serviceKey: string, key: string | null } | null} `key` is null if the service alone
 * has encrypted; null for a link that is incomplete or wrong
 */
export function splitKeys(text) {
  if (SERVICE_LINK.test(text)) return { serviceKey: text, key: null };
  const [, serviceKey, key] = END_TO_END_LINK.exec(text) ?? [];
  return serviceKey && key ? { serviceKey, key } : null;
}

/** @param {Bytes} from @param {string} use */
async function derive(from, use) {
  const base = await crypto.subtle.importKey('raw', from, 'HKDF', false, ['deriveBits']);
  const terms = {
    name: 'HKDF',
    hash: 'SHA-256',
    salt: new Uint8Array(0),
    info: encoder.encode(LABEL + use),
  };
  return new Uint8Array(await crypto.subtle.deriveBits(terms, base, 8 * KEY_BYTES));
}

/**
 * A key with a mistake is recognized before it is used: a read would be lost otherwise.
 * @param {string} key of the link @returns its bytes without the check value, or null
 */
export async function parseKey(key) {
  const bytes = fromBase64url(key);
  if (bytes?.length !== KEY_BYTES + CHECK_BYTES) return null;
  const secret = bytes.slice(0, KEY_BYTES);
  const check = bytes.slice(KEY_BYTES);
  return (await derive(secret, 'check')).slice(0, CHECK_BYTES).join() === check.join()
    ? secret
    : null;
}

/** @param {Bytes} secret @returns the key as it stands in a link */
export async function createKey(secret = crypto.getRandomValues(new Uint8Array(KEY_BYTES))) {
  return toBase64url(
    new Uint8Array([...secret, ...(await derive(secret, 'check')).slice(0, CHECK_BYTES)]),
  );
}

/**
 * The salt of the passphrase comes from the key, which the service never sees. So it cannot guess
 * the passphrase from the proof that it checks.
 * @param {string} key of the link
 * @param {string} passphrase the empty string if there is none
 * @returns {Promise<{ content: Bytes, proof: string | undefined } | null>} null for a key with a
 * mistake; `proof` is the passphrase for the service
 */
export async function deriveKeys(key, passphrase) {
  const secret = await parseKey(key);
  if (!secret) return null;
  if (passphrase === '') return { content: await derive(secret, 'content'), proof: undefined };
  const typed = encoder.encode(passphrase.normalize('NFKC'));
  const base = await crypto.subtle.importKey('raw', typed, 'PBKDF2', false, ['deriveBits']);
  const terms = {
    name: 'PBKDF2',
    hash: 'SHA-256',
    salt: await derive(secret, 'salt'),
    iterations: ITERATIONS,
  };
  const stretched = new Uint8Array(await crypto.subtle.deriveBits(terms, base, 8 * KEY_BYTES));
  const both = new Uint8Array([...secret, ...stretched]);
  return {
    content: await derive(both, 'content'),
    proof: toBase64url(await derive(both, 'proof')),
  };
}

/** Padmé (Nikitin et al. 2019): hides the length, and adds at most 12 %. @param {number} length */
function paddedLength(length) {
  if (length <= MIN_PADDED) return MIN_PADDED;
  const exponent = Math.floor(Math.log2(length));
  const unit = 2 ** (exponent - Math.floor(Math.log2(exponent)) - 1);
  return Math.ceil(length / unit) * unit;
}

/**
 * @param {About} about
 * @param {number} size of the content in bytes
 * @returns the length of the envelope
 */
export function envelopeLength(about, size) {
  const header = encoder.encode(JSON.stringify(about)).length;
  return Math.ceil(
    ((1 + NONCE_BYTES + paddedLength(2 * LENGTH_BYTES + header + size) + 16) * 4) / 3,
  );
}

/** @param {Bytes} bytes @param {'encrypt' | 'decrypt'} use */
const aesKey = (bytes, use) => crypto.subtle.importKey('raw', bytes, 'AES-GCM', false, [use]);

/**
 * @param {Content} content
 * @param {string} passphrase the empty string for none
 * @param {string} [given] the key for the link; a new one without it
 * @returns the key for the link, the envelope to store, and what to send to the service as the
 * passphrase
 */
export async function seal({ about, bytes }, passphrase, given) {
  const key = given ?? (await createKey());
  const keys = await deriveKeys(key, passphrase);
  if (!keys) throw new Error('internal error: a new key is malformed');
  const header = encoder.encode(JSON.stringify(about));
  const padded = new Uint8Array(paddedLength(2 * LENGTH_BYTES + header.length + bytes.length));
  const view = new DataView(padded.buffer);
  view.setUint32(0, header.length);
  padded.set(header, LENGTH_BYTES);
  view.setUint32(LENGTH_BYTES + header.length, bytes.length);
  padded.set(bytes, 2 * LENGTH_BYTES + header.length);
  const iv = crypto.getRandomValues(new Uint8Array(NONCE_BYTES));
  const terms = { name: 'AES-GCM', iv, additionalData: new Uint8Array([VERSION]) };
  const ciphertext = await crypto.subtle.encrypt(
    terms,
    await aesKey(keys.content, 'encrypt'),
    padded,
  );
  const envelope = new Uint8Array([VERSION, ...iv, ...new Uint8Array(ciphertext)]);
  return { key, envelope: toBase64url(envelope), proof: keys.proof };
}

/**
 * @param {string} envelope
 * @param {Bytes} contentKey of `deriveKeys`
 * @returns {Promise<Content | null>} null for a wrong key or a damaged envelope
 */
export async function open(envelope, contentKey) {
  const bytes = fromBase64url(envelope);
  if (bytes?.[0] !== VERSION) return null;
  const iv = bytes.subarray(1, 1 + NONCE_BYTES);
  const ciphertext = bytes.subarray(1 + NONCE_BYTES);
  const terms = { name: 'AES-GCM', iv, additionalData: bytes.subarray(0, 1) };
  try {
    const padded = new Uint8Array(
      await crypto.subtle.decrypt(terms, await aesKey(contentKey, 'decrypt'), ciphertext),
    );
    const view = new DataView(padded.buffer);
    const start = LENGTH_BYTES + view.getUint32(0);
    const about = aboutOf(
      new TextDecoder('utf-8', { fatal: true }).decode(padded.subarray(LENGTH_BYTES, start)),
    );
    const end = start + LENGTH_BYTES + view.getUint32(start);
    return about && end <= padded.length
      ? { about, bytes: padded.subarray(start + LENGTH_BYTES, end) }
      : null;
  } catch {
    return null;
  }
}

/** @param {string} json @returns {About | null} */
function aboutOf(json) {
  const about = JSON.parse(json);
  if (about?.kind === 'text') return { kind: 'text' };
  if (about?.kind !== 'file' || typeof about.name !== 'string' || typeof about.type !== 'string')
    return null;
  return { kind: 'file', name: safeName(about.name), type: about.type };
}

/** Devices of Windows, whatever follows the first dot. */
const DEVICE = /^(con|prn|aux|nul|(com|lpt)[0-9¹²³]|conin\$|conout\$) *(\.|$)/i;

/** A letter or picture that is not ASCII, perhaps with a variation selector. */
const SIGN = String.raw`(?![\0-\x7f]|\p{Default_Ignorable_Code_Point})[\p{L}\p{M}\p{Extended_Pictographic}\p{Emoji_Modifier}][\ufe0e\ufe0f]?`;
const UNSAFE = String.raw`[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}<>:"|?*]`;
/** Joiners spell words, in Persian for example, and make one picture of several. */
const SAFE_OR_NOT = new RegExp(`(${SIGN}(?:[\\u200c\\u200d]${SIGN})*)|${UNSAFE}`, 'gu');

/**
 * The sender chose the name. Directories, control characters, runs of spaces and characters that
 * change the direction of a text could hide what the file is. A program could take a name that
 * begins with a hyphen as an option, and Windows one of its devices as that. A long name keeps its
 * extension.
 * @param {string} name
 */
export function safeName(name) {
  const plain = name
    .replace(/^.*[/\\]/s, '')
    .replace(SAFE_OR_NOT, '$1')
    .replace(/[\p{Zs}\u2800]+/gu, ' ')
    .replace(/^[. ]+/, '');
  const trimmed = withoutEnd(plain);
  const base = trimmed.startsWith('-') || DEVICE.test(trimmed) ? `_${trimmed}` : trimmed;
  const [extension = ''] = /\.[^. ]{1,20}$/.exec(base) ?? [];
  const stem = base.slice(0, base.length - extension.length);
  const room = NAME_BYTES - encoder.encode(extension).length;
  return firstBytes(stem, room) + extension || 'file';
}

/**
 * Windows ignores dots and spaces at the end of a name. A loop, because a pattern takes quadratic
 * time for a million dots.
 * @param {string} name
 */
function withoutEnd(name) {
  let end = name.length;
  while (name[end - 1] === '.' || name[end - 1] === ' ') end -= 1;
  return name.slice(0, end);
}

/** @param {string} text @param {number} max @returns whole characters of at most `max` bytes */
function firstBytes(text, max) {
  const { read } = encoder.encodeInto(text, new Uint8Array(max));
  return text.slice(0, read);
}
