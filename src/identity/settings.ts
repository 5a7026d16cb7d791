import { scryptCost } from '../crypto/password.ts';
import type { DatabaseAddress } from '../db/connection.ts';
import { DAY, number, numberOrOff, type SettingsInput, text } from '../runtime/variables.ts';

export const PORT = 3000;
/** The specification wraps replies in `data`, and wants 500 from identity when its database fails. */
export const STYLE = { envelope: 'data', unavailable: 'service_failed' } as const;
export const PREFIXES = ['SESSION_', 'PASSWORD_', 'AUDIT_'];

export const VARIABLES = {
  PASSWORD_SCRYPT: scryptCost(),
  ADMIN_USERNAME: text('admin'),
  ADMIN_PASSWORD: text(null),
  ADMIN_EMAIL: text('admin@localhost'),
  PASSWORD_MIN_LENGTH: number(8, 8, 64),
  SESSION_TTL: number(DAY, 60, 366 * DAY),
  SESSION_IDLE_TTL: numberOrOff(300, 366 * DAY),
  SESSION_RETENTION: number(30 * DAY, 0, 3_660 * DAY),
  AUDIT_RETENTION: number(365 * DAY, DAY, 3_660 * DAY),
} as const;

export type IdentitySettings = ReturnType<typeof read>;

export function read({ values, database, findings }: SettingsInput<typeof VARIABLES, DatabaseAddress>) {
  const { ADMIN_PASSWORD: password, PASSWORD_MIN_LENGTH: minLength } = values;
  if (password !== null && [...password].length < minLength) {
    findings.problems.push(`ADMIN_PASSWORD must have at least ${minLength} characters.`);
  }
  return {
    database,
    admin: { username: values.ADMIN_USERNAME ?? 'admin', password, email: values.ADMIN_EMAIL ?? 'admin@localhost' },
    passwords: { minLength, cost: values.PASSWORD_SCRYPT },
    /** How long a session lives from login. */
    sessionSeconds: values.SESSION_TTL,
    /** How long a session lives from its last use; 0: no idle limit. */
    idleSeconds: values.SESSION_IDLE_TTL,
    /** How long an ended session stays in lists. */
    retentionSeconds: values.SESSION_RETENTION,
    auditSeconds: values.AUDIT_RETENTION,
  } as const;
}
