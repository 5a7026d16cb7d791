/**
 * The keys of requests, in a browser and in the command line. docs/envelope.md describes the
 * format.
 * The two parties agree on the keys of an ordinary end-to-end link, which the service never sees.
 */
import { createKey, fitLink, fromBase64url, parseKey, seal, toBase64url } from './envelope.js';

/** @import { Content } from './envelope.js' */

const LABEL = 'gatehouse/request/v1/';
const CURVE = { name: 'ECDH', namedCurve: 'P-256' };
const POINT_BYTES = 65;
const UNCOMPRESSED = 4;

/**
 * @typedef {{ kind: string, title: string, public_key: string }} Asked
 * @typedef {{ serviceKey: string, key: string }} LinkKeys
 * @typedef {{ receipt: string, digest: string, key: string }} Kept `key` is the private key
 * @typedef {Asked & {
 *   status: 'open' | 'answered' | 'expired' | 'withdrawn',
 *   asker: string | null,
 *   answer_key: string | null,
 *   max_bytes: number,
 *   expires_at: string,
 * }} Described
 */

const encoder = new TextEncoder();

/** @param {CryptoKey} key */
const pointOf = async (key) =>
  toBase64url(new Uint8Array(await crypto.subtle.exportKey('raw', key)));

/**
 * Other forms of a point are refused: each point has one form. The browser refuses a point that is
 * not on the curve, which could disclose a part of the private key.
 * @param {string} text @returns {Promise<CryptoKey | null>}
 */
async function importPoint(text) {
  const bytes = fromBase64url(text);
  if (bytes?.length !== POINT_BYTES || bytes[0] !== UNCOMPRESSED) return null;
  return crypto.subtle.importKey('raw', bytes, CURVE, false, []).catch(() => null);
}

/**
 * It is in both links, so that neither party takes another key, or another question, from the
 * service. Only the service can enforce the other terms of a request, so they are not part of it.
 * @param {Asked} asked
 */
export async function digestOf({ kind, title, public_key }) {
  const whole = encoder.encode(`${LABEL}digest/${kind}/${public_key}/${title}`);
  return toBase64url(new Uint8Array(await crypto.subtle.digest('SHA-256', whole)));
}

/**
 * @param {string} kind 'text' or 'file' @param {string} title
 * @returns the private key, and what the service gets
 */
export async function createRequest(kind, title) {
  const pair = await crypto.subtle.generateKey(CURVE, true, ['deriveBits']);
  const { d = '' } = await crypto.subtle.exportKey('jwk', pair.privateKey);
  const secret = fromBase64url(d);
  if (!secret) throw new Error('internal error: a new private key is malformed');
  const asked = { kind, title, public_key: await pointOf(pair.publicKey) };
  const key = await createKey(secret);
  return { key, request: { ...asked, digest: await digestOf(asked) } };
}

/**
 * @param {string} origin @param {{ id: string, receipt: string }} made as the service says
 * @param {string} digest @param {string} key of `createRequest`
 * @returns null unless the service has returned an id and a key
 */
export function linksOf(origin, { id, receipt }, digest, key) {
  if (!fitLink(id, receipt)) return null;
  return {
    send: sendLink(origin, id, digest),
    keep: `${origin}/request/${id}#1.${receipt}.${digest}.${key}`,
  };
}

/** @param {string} origin @param {string} id @param {string} digest */
export const sendLink = (origin, id, digest) => `${origin}/answer/${id}#1.${digest}`;

const KEPT = /^1\.([A-Za-z0-9_-]{43})\.([A-Za-z0-9_-]{43})\.([A-Za-z0-9_-]{48})$/;

/**
 * @param {string} text what follows the # in a link to keep
 * @returns {Promise<Kept | null>} null if it is incomplete, or its private key has a mistake
 */
export async function keptIn(text) {
  const [, receipt = '', digest = '', key = ''] = KEPT.exec(text) ?? [];
  return (await parseKey(key)) ? { receipt, digest, key } : null;
}

/** @param {string} text what follows the # in a link to send @returns the digest, or null */
export const digestIn = (text) => /^1\.([A-Za-z0-9_-]{43})$/.exec(text)?.[1] ?? null;

/**
 * @param {CryptoKey} own @param {CryptoKey} other
 * @param {readonly string[]} context the id, the public key of the request, that of the answer
 * @returns {Promise<LinkKeys>} the keys of the answer
 */
async function agree(own, other, context) {
  const shared = await crypto.subtle.deriveBits({ name: 'ECDH', public: other }, own, 256);
  const base = await crypto.subtle.importKey('raw', shared, 'HKDF', false, ['deriveBits']);
  const info = encoder.encode(`${LABEL}keys/${context.join('/')}`);
  const terms = { name: 'HKDF', hash: 'SHA-256', salt: new Uint8Array(0), info };
  const both = new Uint8Array(await crypto.subtle.deriveBits(terms, base, 512));
  return { serviceKey: toBase64url(both.slice(0, 32)), key: await createKey(both.slice(32)) };
}

/**
 * For an answer, with a new key pair.
 * @param {string} id @param {string} publicKey of the request
 * @returns null if the public key is not valid
 */
export async function createAnswerKeys(id, publicKey) {
  const other = await importPoint(publicKey);
  if (!other) return null;
  const pair = await crypto.subtle.generateKey(CURVE, true, ['deriveBits']);
  const answerKey = await pointOf(pair.publicKey);
  const keys = await agree(pair.privateKey, other, [id, publicKey, answerKey]);
  return { public_key: answerKey, ...keys };
}

/**
 * The kinds are named, because the digest would not tell another kind from a part of the key.
 * @param {Asked} asked as the service describes it @param {string} digest of the link
 */
const isAsked = async (asked, digest) =>
  (asked.kind === 'text' || asked.kind === 'file') && (await digestOf(asked)) === digest;

/**
 * @param {string} id @param {string} digest of the link to send
 * @param {Asked} asked as the service describes it
 * @returns the keys for an answer; null if the service has altered the request
 */
export const checkRequest = async (id, digest, asked) =>
  (await isAsked(asked, digest)) ? createAnswerKeys(id, asked.public_key) : null;

/**
 * For the link to keep, before anything that the service says is used.
 * @param {Kept} kept @param {Asked} asked as the service describes it
 * @returns the private key; null if the service has altered the request
 */
export async function checkKept({ digest, key }, asked) {
  const point = (await isAsked(asked, digest)) ? fromBase64url(asked.public_key) : null;
  const secret = await parseKey(key);
  if (!point || !secret) return null;
  const pair = {
    kty: 'EC',
    crv: CURVE.namedCurve,
    d: toBase64url(secret),
    x: toBase64url(point.slice(1, 33)),
    y: toBase64url(point.slice(33)),
  };
  // Fails if the public key is not that of the private key.
  return crypto.subtle.importKey('jwk', pair, CURVE, false, ['deriveBits']).catch(() => null);
}

/**
 * @param {Content} content
 * @param {LinkKeys & { public_key: string }} keys of `checkRequest`
 * @returns what the service gets
 */
export async function sealAnswer(content, { public_key, serviceKey, key }) {
  const { envelope } = await seal(content, '', key);
  return { public_key, secret: serviceKey, password: envelope };
}

/**
 * For the link to keep, once there is an answer.
 * @param {string} id @param {CryptoKey} own of `checkKept`
 * @param {{ public_key: string, answer_key: string | null }} request as the service describes it
 * @returns null if the public key of the answer is not valid
 */
export async function openAnswerKeys(id, own, { public_key, answer_key }) {
  const other = await importPoint(answer_key ?? '');
  return other && agree(own, other, [id, public_key, answer_key ?? '']);
}
