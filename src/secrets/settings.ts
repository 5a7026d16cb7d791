import { readCost } from '../platform/crypto/scrypt.ts';
import type { DatabaseAddress } from '../platform/db/url.ts';
import {
  type Env,
  matching,
  MIN_SECRET,
  readUsers,
  satisfying,
  SECRET_ADVICE,
  type SettingsInput,
  toggle,
  wholeNumber,
  zeroOr,
} from '../platform/runtime/env.ts';
import { DAY_SECONDS } from '../platform/runtime/duration.ts';

export const PORT = 8080;
export const STYLE = { wrapping: 'bare', unavailable: 'unavailable' } as const;
export const PREFIXES = ['SECRET_', 'RECEIPT_'];

/** What an Authorization header can hold. */
const bearerToken = matching(
  /^[\x21-\x2b\x2d-\x7e]+$/,
  'visible ASCII characters without spaces and commas',
);

const baseAddress = satisfying(
  (text) => /^https?:\/\/[^\s/?#@]+\/?$/.test(text) && URL.canParse(text),
  'the address of the secrets service, such as https://secrets.example.org',
);

export type SecretsSettings = ReturnType<typeof read>;
export type Limits = SecretsSettings['limits'];

export function read(
  env: Env,
  { requireDatabase, purpose, userSource }: SettingsInput<DatabaseAddress>,
) {
  const passphraseCost = readCost(env);
  // For the commands, whose variables are known here as well.
  readClient(env);
  const serverSecret = env.secret('SERVER_SECRET');
  const previousSecrets = env.previousSecrets('SERVER_SECRET', 0);
  const authToken = env.secret('AUTH_TOKEN', bearerToken);
  const previousTokens = env.previousSecrets('AUTH_TOKEN', MIN_SECRET, bearerToken);
  if (purpose === 'serve') {
    requireSecret(env, 'SERVER_SECRET', serverSecret);
    requireSecret(env, 'AUTH_TOKEN', authToken);
  }
  const sharePages = env.get('SHARE_PAGES', false, toggle);
  const anyone = env.get('SHARE_ANYONE', false, toggle);
  if (anyone && !sharePages) env.problem('SHARE_ANYONE=on', 'requires SHARE_PAGES=on.');
  // The pages take files of 1 MiB, whose envelope is longer.
  const maxBodyBytes = env.get(
    'SECRETS_MAX_BODY_BYTES',
    sharePages ? 1_638_400 : 65_536,
    wholeNumber(2_048, 2_097_152),
    '65536',
  );
  const users = readUsers(env, 'SHARE_USERS', userSource);
  return {
    /** Empty only in a command. */
    serverSecret: serverSecret ?? '',
    /** These decrypt only. */
    previousSecrets,
    /** Any of them authenticates. The first is AUTH_TOKEN. */
    authTokens: [authToken ?? '', ...previousTokens],
    limits: readLimits(env, maxBodyBytes),
    maxBodyBytes,
    passphraseCost,
    /** How long a receipt is kept after its secret has ended. */
    receiptSeconds: env.get(
      'RECEIPT_RETENTION',
      30 * DAY_SECONDS,
      wholeNumber(0, 3_660 * DAY_SECONDS),
    ),
    sharePages,
    /** Which users, or whether anyone, may store secrets without a token. */
    users: users.length > 0 ? users : ['*'],
    userSource,
    anyone,
    database: requireDatabase(),
  };
}

/** What a command needs that sends requests to the service. */
export const readClient = (env: Env) => ({
  address: env.get('GATEHOUSE_URL', 'http://localhost:8080', baseAddress),
  token: env.get('AUTH_TOKEN', null, bearerToken),
});

function requireSecret(env: Env, name: string, value: string | null) {
  if (value === null && !env.isWrong(name)) env.problem(name, `must be set; ${SECRET_ADVICE}`);
}

/** By the members that `GET /api/store/options` shows; a default of null: without a limit. */
function readLimits(env: Env, maxBodyBytes: number) {
  const year = 366 * DAY_SECONDS;
  const seconds = env.get('SECRET_TTL', 7 * DAY_SECONDS, wholeNumber(0, year));
  const maxSeconds = env.get('SECRET_TTL_MAX', null, wholeNumber(1, year), String(MAX_SECONDS));
  const reads = env.get('SECRET_READS', 0, zeroOr(1, MAX_READS));
  const maxReads = env.get('SECRET_READS_MAX', null, wholeNumber(1, MAX_READS), String(MAX_READS));
  return {
    expires_in: limit(seconds, maxSeconds, MAX_SECONDS),
    max_reads: limit(reads, maxReads, MAX_READS),
    // The rest of the body fits in 1 KiB.
    password: { max_bytes: maxBodyBytes - 1_024 },
  };
}

const MAX_SECONDS = 30 * DAY_SECONDS;
const MAX_READS = 1_000;

/**
 * A maximum that is set bounds the default; otherwise it grows with the default.
 * @param fallback 0: without a limit
 */
function limit(fallback: number, max: number | null, defaultMax: number) {
  if (max === null) return { default: fallback || null, max: Math.max(fallback, defaultMax) };
  return { default: Math.min(fallback || max, max), max };
}
