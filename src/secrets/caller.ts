export const RANKS = { anyone: 0, sender: 1, operator: 2 } as const;
export type Role = keyof typeof RANKS;
/**
 * `creator` is recorded with a secret: `token:ID`, `user:NAME` or `anyone`; null for AUTH_TOKEN.
 */
export type Caller = Readonly<{ role: Role; creator: string | null }>;

/** The creator whose secrets the caller may see; null for all secrets. */
export const ownOnly = ({ role, creator }: Caller): string | null =>
  role === 'operator' ? null : creator;

/** How named tokens begin: no other token needs the database. */
export const PREFIX = 'share:';
