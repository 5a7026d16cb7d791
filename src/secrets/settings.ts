import { costWarnings, scryptCost } from '../crypto/scrypt.ts';
import type { DatabaseAddress } from '../db/url.ts';
import {
  checkUserList,
  earlierSecrets,
  matching,
  MIN_SECRET,
  number,
  numberOrNull,
  numberOrOff,
  secret,
  SECRET_ADVICE,
  type SettingsInput,
  text,
  toggle,
  userList,
} from '../runtime/variables.ts';
import { DAY_SECONDS } from '../runtime/duration.ts';

export const PORT = 8080;
export const STYLE = { wrapping: 'bare', unavailable: 'unavailable' } as const;
export const PREFIXES = ['SECRET_', 'RECEIPT_'];

/** What an Authorization header can hold. */
const checkBearerToken = matching(
  /^[\x21-\x2b\x2d-\x7e]+$/,
  'visible ASCII characters without spaces and commas',
);

const checkBaseUrl = (value: string) =>
  /^https?:\/\/[^\s/?#@]+\/?$/.test(value) && URL.canParse(value)
    ? null
    : 'the address of the secrets service, such as https://secrets.example.org';

export const VARIABLES = {
  PASSWORD_SCRYPT: scryptCost(),
  SERVER_SECRET: secret(),
  SERVER_SECRET_PREVIOUS: earlierSecrets(0),
  AUTH_TOKEN: secret(checkBearerToken),
  AUTH_TOKEN_PREVIOUS: earlierSecrets(MIN_SECRET, checkBearerToken),
  SECRET_TTL: number(7 * DAY_SECONDS, 0, 366 * DAY_SECONDS),
  SECRET_TTL_MAX: numberOrNull(30 * DAY_SECONDS, 1, 366 * DAY_SECONDS),
  SECRET_READS: numberOrOff(1, 1_000),
  SECRET_READS_MAX: numberOrNull(1_000, 1, 1_000),
  RECEIPT_RETENTION: number(30 * DAY_SECONDS, 0, 3_660 * DAY_SECONDS),
  SHARE_PAGES: toggle('off'),
  SHARE_USERS: userList(),
  SHARE_ANYONE: toggle('off'),
  SECRETS_MAX_BODY_BYTES: numberOrNull(65_536, 2_048, 2_097_152),
  GATEHOUSE_URL: text('http://localhost:8080', checkBaseUrl),
} as const;

export type SecretsSettings = ReturnType<typeof read>;
export type Limits = SecretsSettings['limits'];

export function read(input: SettingsInput<typeof VARIABLES, DatabaseAddress>) {
  const { values, purpose, findings, userSource } = input;
  findings.warnings.push(...costWarnings(values.PASSWORD_SCRYPT));
  for (const name of ['SERVER_SECRET', 'AUTH_TOKEN'] as const) {
    const isMissing = values[name] === null && purpose === 'serve' && !findings.reports(name);
    if (isMissing) findings.problems.push(`${name} must be set; ${SECRET_ADVICE}`);
  }
  // The pages take files of 1 MiB, whose envelope is longer.
  const defaultBytes = values.SHARE_PAGES ? 1_638_400 : 65_536;
  const maxBodyBytes = values.SECRETS_MAX_BODY_BYTES ?? defaultBytes;
  if (values.SHARE_ANYONE && !values.SHARE_PAGES)
    findings.problems.push('SHARE_ANYONE=on requires SHARE_PAGES=on.');
  checkUserList('SHARE_USERS', values.SHARE_USERS, userSource, findings);
  return {
    database: input.requireDatabase(),
    /** Empty only in a command. */
    serverSecret: values.SERVER_SECRET ?? '',
    /** These decrypt only. */
    previousSecrets: values.SERVER_SECRET_PREVIOUS,
    /** Any of them authenticates. The first is AUTH_TOKEN. */
    authTokens: [values.AUTH_TOKEN ?? '', ...values.AUTH_TOKEN_PREVIOUS],
    /** By the members that `GET /api/store/options` shows; a default of null: without a limit. */
    limits: {
      expires_in: limit(values.SECRET_TTL, values.SECRET_TTL_MAX, 30 * DAY_SECONDS),
      max_reads: limit(values.SECRET_READS, values.SECRET_READS_MAX, 1_000),
      // The rest of the body fits in 1 KiB.
      password: { max_bytes: maxBodyBytes - 1_024 },
    },
    maxBodyBytes,
    passphraseCost: values.PASSWORD_SCRYPT,
    /** How long a receipt is kept after its secret has ended. */
    receiptSeconds: values.RECEIPT_RETENTION,
    sharePages: values.SHARE_PAGES,
    /** Which users, or whether anyone, may store secrets without a token. */
    users: values.SHARE_USERS.length > 0 ? values.SHARE_USERS : ['*'],
    userSource,
    anyone: values.SHARE_ANYONE,
  };
}

/**
 * A maximum that is set bounds the default; otherwise it grows with the default.
 * @param fallback 0: without a limit
 */
function limit(fallback: number, max: number | null, defaultMax: number) {
  if (max === null) return { default: fallback || null, max: Math.max(fallback, defaultMax) };
  return { default: Math.min(fallback || max, max), max };
}
