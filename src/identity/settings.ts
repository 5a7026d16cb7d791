import { costWarnings, scryptCost } from '../crypto/password.ts';
import type { DatabaseAddress } from '../db/connection.ts';
import { nullable, object, text as textShape, validate } from '../http/shape.ts';
import { DAY, number, numberOrOff, type SettingsInput, text } from '../runtime/variables.ts';
import { nameShapes, passwordError } from './rules.ts';

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
  PASSWORD_WORDS: text(null),
  SESSION_TTL: number(DAY, 60, 366 * DAY),
  SESSION_IDLE_TTL: numberOrOff(300, 366 * DAY),
  SESSION_RETENTION: number(30 * DAY, 0, 3_660 * DAY),
  AUDIT_RETENTION: number(365 * DAY, DAY, 3_660 * DAY),
} as const;

export type IdentitySettings = ReturnType<typeof read>;

export function read({ values, database, findings }: SettingsInput<typeof VARIABLES, DatabaseAddress>) {
  const { ADMIN_USERNAME: username, ADMIN_EMAIL: email, PASSWORD_SCRYPT: cost } = values;
  const words = (values.PASSWORD_WORDS ?? '').split(',').map((word) => word.trim()).filter((word) => word !== '');
  const admin = { username: username ?? 'admin', email: email ?? 'admin@localhost', password: values.ADMIN_PASSWORD };
  const rules = { minLength: values.PASSWORD_MIN_LENGTH, words };
  const password = nullable(textShape({ check: (value) => passwordError(value, rules, admin) }));
  const checked = validate(object({ username: nameShapes.username, email: nameShapes.email, password }), admin, '');
  const errors = checked.ok ? [] : checked.errors;
  findings.problems.push(...errors.map(({ path, message }) => `ADMIN_${path.slice(1).toUpperCase()} ${message}.`));
  findings.warnings.push(...costWarnings(cost));
  return {
    database,
    admin,
    passwords: { ...rules, cost },
    /** How long a session lives from login. */
    sessionSeconds: values.SESSION_TTL,
    /** How long a session lives from its last use; 0: no idle limit. */
    idleSeconds: values.SESSION_IDLE_TTL,
    /** How long an ended session stays in lists. */
    retentionSeconds: values.SESSION_RETENTION,
    auditSeconds: values.AUDIT_RETENTION,
  } as const;
}
