import { anonymous, routeDefaults } from '../platform/http/route/route.ts';
import { text } from '../platform/http/route/schema.ts';
import { bearer } from './guard.ts';
import { outcomeSchema } from './model.ts';
import { PASSWORD_MAX_UNITS } from './rules.ts';

/** What rows of the API have in common. */

export const open = { ...routeDefaults, method: 'POST', guard: anonymous } as const;
/** Rows that need a credential. */
export const read = { ...routeDefaults, method: 'GET', guard: bearer } as const;
export const write = { ...read, method: 'POST' } as const;
export const remove = { ...read, method: 'DELETE' } as const;
export const revoke = {
  ...remove,
  reply: outcomeSchema('REVOKED'),
  errors: ['forbidden', 'not_found'],
} as const;
export const pages = { ...read, paged: 'always', errors: ['forbidden', 'too_slow'] } as const;

/** Longer names and passwords than any accepted one get the answer to a wrong one. */
export const password = text({ max: PASSWORD_MAX_UNITS });
