import type { Pagination } from '../http/call.ts';

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

/** A row of `identity.sessions` with its user. */
export interface Session {
  readonly id: string;
  readonly user_id: string;
  readonly revoked: boolean;
  readonly logged_out: boolean;
  readonly expires_at: Date;
  /** By the database's clock, the only one for expiry. */
  readonly expired: boolean;
  readonly created_at: Date;
  readonly updated_at: Date;
  readonly deleted_at: Date | null;
  readonly user: User;
}

export const mayLogIn = (user: Pick<User, 'enabled' | 'deleted_at'>): boolean => user.enabled && user.deleted_at === null;

/** Whether a session still opens the door. Judged from the row at every request, so that an end holds at once, everywhere. */
export function isActive(session: Session): boolean {
  return !session.revoked && !session.logged_out && !session.expired && session.deleted_at === null && mayLogIn(session.user);
}

/**
 * What a name or an address is compared by: `Ａdmin`, `ADMIN` and `admin` are one account. Normalised again at the end,
 * because a capital may compose with its mark only as a small letter.
 */
export const accountKey = (name: string): string => name.normalize('NFKC').toLowerCase().normalize('NFKC');

/** Lengths count code points, as a person counts characters (NIST SP 800-63B). There are no composition rules (ASVS 6.2.5). */
export const PASSWORD_MAX_LENGTH = 1_024;

/** @returns what is wrong with a new password, or null */
export function passwordFault(password: string, minLength: number, common: ReadonlySet<string>): string | null {
  const length = [...password.normalize('NFKC')].length;
  if (length < minLength) return `must have at least ${minLength} characters`;
  if (length > PASSWORD_MAX_LENGTH) return `must have at most ${PASSWORD_MAX_LENGTH} characters`;
  if (password.includes('\0')) return 'must not contain the character U+0000';
  if (common.has(accountKey(password))) return 'is among the most common passwords; choose another';
  return null;
}

/** @returns what is wrong with a username, or null; it must be safe in a header, a log and a terminal */
export function usernameFault(username: string): string | null {
  if (username !== username.trim()) return 'must not begin or end with a space';
  // Invisible characters would make two names look alike.
  if (/\p{Cf}/u.test(username)) return 'must not contain invisible characters';
  return controlFault(username) ?? keyFault(username);
}

/** Only what would surely fail is refused: whether an address works shows when it is used. */
export function emailFault(email: string): string | null {
  return /^[^\s@]+@[^\s@]+$/.test(email) ? (controlFault(email) ?? keyFault(email)) : 'must be an e-mail address, such as ada@example.org';
}

/** Some characters become many in NFKC; the index takes about 2,700 bytes. */
const keyFault = (name: string): string | null => (Buffer.byteLength(accountKey(name)) > 1_024 ? 'is too long' : null);

/** Control characters, line and paragraph separators, and what reverses the order of a line where it is shown. */
export const controlFault = (value: string): string | null =>
  /[\p{Cc}\p{Zl}\p{Zp}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/u.test(value) ? 'must not contain control characters' : null;

export function paginationOf(page: number, limit: number, total: number): Pagination {
  return { page, limit, total, total_pages: Math.ceil(total / limit) };
}

/** Path and query of the neighbouring pages, filter kept; the empty string where there is none. */
export function linksOf(path: string, { page, limit, total_pages: pages }: Pagination, filter: Readonly<Record<string, string | undefined>>): Record<'first' | 'last' | 'prev' | 'next', string> {
  const to = (number: number) => {
    const query = new URLSearchParams({ page: String(number), limit: String(limit) });
    for (const [name, value] of Object.entries(filter)) if (value !== undefined) query.set(name, value);
    return `${path}?${query}`;
  };
  return {
    first: to(1),
    last: to(Math.max(1, pages)),
    // From beyond the end, the way back leads to the last page that there is.
    prev: page > 1 ? to(Math.max(1, Math.min(page - 1, pages))) : '',
    next: page < pages ? to(page + 1) : '',
  };
}

export const revokedMessage = (count: number): string => (count === 1 ? '1 session revoked.' : `${count} sessions revoked.`);
