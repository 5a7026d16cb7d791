import { randomUUID } from 'node:crypto';
import { fromAnyBase64, isUuid } from '../crypto/text.ts';
import { digest } from '../crypto/token.ts';

const PREFIX = 'session:';

/** A session token in its one plain form, `session:<uuid>`, made only in this file: a raw string cannot be taken for one. */
declare const checked: unique symbol;
export type SessionToken = string & { readonly [checked]: true };

/** The specification fixes the form; a version 4 UUID has 122 random bits (see SECURITY.md on ASVS 7.2.3). */
export const createSessionToken = (): SessionToken => `${PREFIX}${randomUUID()}` as SessionToken;

/** What the database holds in place of the token. */
export const digestOf = (token: SessionToken): Buffer => digest(token);

/**
 * The forms in which a token may come, all of them and no others:
 * `session:<uuid>`; that whole text in Base64 or Base64url; `session:` and that Base64.
 * @returns the plain form, or null
 */
export function parseSessionToken(credential: string): SessionToken | null {
  if (credential.length > 256) return null;
  const encoded = credential.startsWith(PREFIX) ? credential.slice(PREFIX.length) : credential;
  return parsePlain(credential) ?? parsePlain(fromAnyBase64(encoded)?.toString('latin1') ?? '');
}

function parsePlain(text: string): SessionToken | null {
  // The form has just been checked.
  return text.startsWith(PREFIX) && isUuid(text.slice(PREFIX.length)) ? (text as SessionToken) : null;
}
