/** A row of `identity.users`, without the password hash. */
export interface User {
  readonly id: string;
  readonly first_name: string;
  readonly last_name: string;
  readonly username: string;
  readonly email: string;
  readonly enabled: boolean;
  readonly verified: boolean;
  readonly super_admin: boolean;
  readonly created_at: Date;
  readonly updated_at: Date;
  readonly deleted_at: Date | null;
}

/** A user and what is needed to log in. */
export interface Account extends User {
  readonly password_hash: string | null;
}

/** What is judged of a session at each request: most of what a process ever reads. */
export interface CallerSession {
  readonly id: string;
  readonly revoked: boolean;
  readonly logged_out: boolean;
  /** By the database's clock, the only one for expiry; also when it was idle for too long. */
  readonly expired: boolean;
  /** Not seen for so long that the next use is to be noted. */
  readonly last_seen_is_old: boolean;
  readonly user: User;
}

/** A row of `identity.sessions` that is not deleted, with its user. */
export interface Session extends CallerSession {
  readonly user_id: string;
  readonly expires_at: Date;
  readonly ip: string | null;
  readonly user_agent: string | null;
  readonly last_seen_at: Date;
  readonly created_at: Date;
  readonly updated_at: Date;
  readonly deleted_at: Date | null;
}

/** A row of `identity.api_keys`, with its user if it has one. */
export interface ApiKey {
  readonly id: string;
  readonly key_prefix: string;
  readonly name: string;
  readonly user_id: string | null;
  readonly revoked: boolean;
  readonly expires_at: Date | null;
  readonly expired: boolean;
  readonly last_used_at: Date | null;
  readonly last_seen_is_old: boolean;
  readonly created_at: Date;
  readonly updated_at: Date;
  readonly deleted_at: Date | null;
  readonly user: User | null;
}

export const mayLogIn = (user: Pick<User, 'enabled' | 'deleted_at'>): boolean => user.enabled && user.deleted_at === null;

/** Whether a session still opens the door. Judged from the row at every request, so that an end holds at once, everywhere. */
export function isActive(session: CallerSession): boolean {
  return !session.revoked && !session.logged_out && !session.expired && mayLogIn(session.user);
}

/** Likewise for a key; that of a user ends with its user. */
export function isUsable(key: ApiKey): boolean {
  return !key.revoked && !key.expired && key.deleted_at === null && (key.user ? mayLogIn(key.user) : key.user_id === null);
}

/**
 * What a name or an address is compared by: `Ａdmin`, `ADMIN` and `admin` are one account. Normalised again at the end,
 * because a capital may compose with its mark only as a small letter.
 */
export const accountKey = (name: string): string => name.normalize('NFKC').toLowerCase().normalize('NFKC');

/** Lengths count code points, as a person counts characters (NIST SP 800-63B). There are no composition rules (ASVS 6.2.5). */
export const PASSWORD_MAX_LENGTH = 1_024;

/** @returns what is wrong with a new password, or null */
export function passwordError(password: string, minLength: number, common: ReadonlySet<string>): string | null {
  const length = [...password.normalize('NFKC')].length;
  if (length < minLength) return `must have at least ${minLength} characters`;
  if (length > PASSWORD_MAX_LENGTH) return `must have at most ${PASSWORD_MAX_LENGTH} characters`;
  if (password.includes('\0')) return 'must not contain the character U+0000';
  if (common.has(accountKey(password))) return 'is among the most common passwords; choose another';
  return null;
}

/** @returns what is wrong with a username, or null; it must be safe in a header, a log and a terminal */
export function usernameError(username: string): string | null {
  if (username !== username.trim()) return 'must not begin or end with a space';
  return nameError(username);
}

/** Only what would surely fail is refused: whether an address works shows when it is used. */
export function emailError(email: string): string | null {
  return /^[^\s@]+@[^\s@]+$/.test(email) ? nameError(email) : 'must be an e-mail address, such as ada@example.org';
}

function nameError(name: string): string | null {
  // Two names that look alike are one to whoever reads them.
  if (/[\p{Cf}\p{Default_Ignorable_Code_Point}]/u.test(name)) return 'must not contain invisible characters';
  // Some characters become many in NFKC; the index takes about 2,700 bytes.
  return controlCharError(name) ?? (Buffer.byteLength(accountKey(name)) > 1_024 ? 'is too long' : null);
}

/** Control characters, line and paragraph separators, and what reverses the order of a line where it is shown. */
export const controlCharError = (value: string): string | null =>
  /[\p{Cc}\p{Zl}\p{Zp}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/u.test(value) ? 'must not contain control characters' : null;

/**
 * A stored name as the value of a header. What is not plain ASCII, and the characters that separate values or quote
 * them, is percent-encoded in UTF-8; `decodeURIComponent` gives the name back.
 */
export const headerValue = (name: string): string => name.replace(/[^\w .@+!#$&'*/=?^`{|}~-]/gu, encodeRune);

/** `encodeURIComponent` leaves parentheses alone. */
const encodeRune = (rune: string) => [...Buffer.from(rune)].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join('');

const plural = (count: number, what: string): string => `${count} ${what}${count === 1 ? '' : 's'}`;
export const revokedMessage = (count: number): string => `${plural(count, 'session')} revoked.`;
export const passwordMessage = (ended: number): string => `Password changed. ${plural(ended, 'session')} ended.`;

/** The scopes in which failed logins are counted: how many may be (a pair is slowed down then, the others stopped), and how long each counts. */
export const THROTTLES = {
  /** One account from one network. */
  pair: { limit: 5, seconds: 12 * 3_600 },
  account: { limit: 100, seconds: 3_600 },
  network: { limit: 1_000, seconds: 3_600 },
} as const;
const FIRST_DELAY = 15;
const LONGEST_DELAY = 900;
/** From a network where the account has logged in within this time, a stranger's failures elsewhere do not count. */
export const KNOWN_SECONDS = 90 * 86_400;

export interface FailureCount {
  readonly scope: keyof typeof THROTTLES;
  /** How many there are. */
  readonly failures: number;
  /** Seconds since the latest of them. */
  readonly latest: number | null;
  /** Seconds since the earliest of the last `limit`; null while there are fewer. */
  readonly limiting: number | null;
  /** Of a pair: the account has logged in from there lately. */
  readonly known: boolean;
}

/**
 * How long the next attempt has to wait, in seconds. A pair's delay is 15 s after the fifth failure and doubles with
 * each further one, up to 15 minutes. The two wide limits are not for an account's own networks: whatever strangers do
 * elsewhere, its owner gets in (ASVS 6.1.1).
 */
export function secondsToWait(counts: readonly FailureCount[]): number {
  const known = counts.some((count) => count.known);
  const waits = counts.map(({ scope, failures, latest, limiting }) => {
    if (scope !== 'pair') return known || limiting === null ? 0 : THROTTLES[scope].seconds - limiting;
    if (failures < THROTTLES.pair.limit || latest === null) return 0;
    return Math.min(LONGEST_DELAY, FIRST_DELAY * 2 ** (failures - THROTTLES.pair.limit)) - latest;
  });
  return Math.max(0, ...waits);
}
