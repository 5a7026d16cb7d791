import { scryptCost } from '../crypto/password.ts';
import type { DatabaseAddress } from '../db/connection.ts';
import {
  DAY, type Findings, number, numberOrNull, numberOrOff, type SettingsInput, text, toggle,
} from '../runtime/variables.ts';

export const PORT = 8080;
export const STYLE = { envelope: 'bare', unavailable: 'unavailable' } as const;
export const PREFIXES = ['SECRET_', 'RECEIPT_'];

export const VARIABLES = {
  PASSWORD_SCRYPT: scryptCost(),
  SERVER_SECRET: text(null, checkServerSecret),
  SERVER_SECRET_PREVIOUS: text(null),
  AUTH_TOKEN: text(null, checkBearerToken),
  SECRET_TTL: number(7 * DAY, 0, 366 * DAY),
  SECRET_TTL_MAX: numberOrNull(30 * DAY, 1, 366 * DAY),
  SECRET_READS: numberOrOff(1, 1_000),
  SECRET_READS_MAX: numberOrNull(1_000, 1, 1_000),
  RECEIPT_RETENTION: number(30 * DAY, 0, 3_660 * DAY),
  SHARE_PAGES: toggle('off'),
  GATEHOUSE_URL: text('http://localhost:8080', checkBaseUrl),
} as const;

export type SecretsSettings = ReturnType<typeof read>;

/** A secret or token with fewer characters causes a warning. */
const ADVISED_LENGTH = 32;
const ADVICE = 'make a long random one with: openssl rand -base64 32';

export function read({ values, database, purpose, findings }: SettingsInput<typeof VARIABLES, DatabaseAddress>) {
  const isServing = purpose === 'serve';
  const previousSecrets: readonly string[] = (values.SERVER_SECRET_PREVIOUS ?? '').split(',').map((one) => one.trim()).filter(Boolean);
  if (previousSecrets.some((one) => one.length < ADVISED_LENGTH)) {
    findings.warnings.push(`SERVER_SECRET_PREVIOUS has an entry of fewer than ${ADVISED_LENGTH} characters; is it complete?`);
  }
  return {
    database,
    serverSecret: required('SERVER_SECRET', values.SERVER_SECRET, isServing, findings),
    /** Open what was sealed under them, and seal nothing. */
    previousSecrets,
    authToken: required('AUTH_TOKEN', values.AUTH_TOKEN, isServing, findings),
    limits: {
      /** How long a secret lives unless its sender says otherwise; 0: without end. */
      seconds: capped(values.SECRET_TTL, values.SECRET_TTL_MAX),
      maxSeconds: values.SECRET_TTL_MAX ?? Math.max(30 * DAY, values.SECRET_TTL),
      /** How often it can be read unless its sender says otherwise; 0: any number of times. */
      reads: capped(values.SECRET_READS, values.SECRET_READS_MAX),
      maxReads: values.SECRET_READS_MAX ?? 1_000,
    },
    passphraseCost: values.PASSWORD_SCRYPT,
    /** How long a receipt outlives its secret. */
    receiptSeconds: values.RECEIPT_RETENTION,
    sharePages: values.SHARE_PAGES,
  } as const;
}

function required(name: string, value: string | null, isServing: boolean, findings: Findings): string {
  if (value === null && isServing && !findings.reports(name)) {
    findings.problems.push(`${name} must be set, to a long random text; make one with: openssl rand -base64 32`);
  }
  if (value !== null && value.length < ADVISED_LENGTH) {
    findings.warnings.push(`${name} has fewer than ${ADVISED_LENGTH} characters; ${ADVICE}`);
  }
  return value ?? '';
}

/** A maximum that is set also bounds the default: 0, for no limit, becomes the maximum. */
const capped = (fallback: number, max: number | null): number => (max === null ? fallback : Math.min(fallback || max, max));

/** A server secret must fit SERVER_SECRET_PREVIOUS, a list with commas, once it is replaced. */
function checkServerSecret(value: string): string | null {
  return value.includes(',') || value !== value.trim() ? 'a text without commas, and without spaces around it' : null;
}

/** A token that a header can carry. */
function checkBearerToken(value: string): string | null {
  return /^[\x21-\x7e]+$/.test(value) ? null : 'visible ASCII characters without spaces';
}

function checkBaseUrl(value: string): string | null {
  const isBase = /^https?:\/\/[^\s/?#@]+\/?$/.test(value) && URL.canParse(value);
  return isBase ? null : 'the address of the secrets service, such as https://secrets.example.org';
}
