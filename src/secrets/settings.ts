import { readCost } from '../platform/crypto/scrypt.ts';
import { readDatabase } from '../platform/db/url.ts';
import { readUsers, readUserSource } from '../platform/http/credentials/user-source.ts';
import { DAY_SECONDS } from '../platform/runtime/duration.ts';
import {
  type Env,
  matching,
  MIN_SECRET,
  type Purpose,
  satisfying,
} from '../platform/runtime/env.ts';

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

export function read(env: Env, purpose: Purpose) {
  const passphraseCost = readCost(env);
  // For the commands, whose variables are known here as well.
  readClient(env);
  const need = purpose === 'serve' ? 'required' : 'unused';
  const [serverSecret = '', ...previousSecrets] = env.secrets('SERVER_SECRET', need);
  const authTokens = env.secrets('AUTH_TOKEN', need, bearerToken, MIN_SECRET);
  const sharePages = env.isOn('SHARE_PAGES');
  const anyone = env.isOn('SHARE_ANYONE');
  if (anyone && !sharePages)
    env.problem('SHARE_ANYONE=on', 'requires SHARE_PAGES=on.', 'SHARE_PAGES');
  // The pages take files of 1 MiB, whose envelope is longer.
  const maxBodyBytes = env.number(
    'SECRETS_MAX_BODY_BYTES',
    sharePages ? 1_638_400 : 65_536,
    2_048,
    2_097_152,
  );
  const users = readUsers(env, 'SHARE_USERS');
  return {
    /** Empty only in a command. */
    serverSecret,
    /** These decrypt only. */
    previousSecrets,
    /** Any of them authenticates. The first is AUTH_TOKEN. */
    authTokens,
    limits: readLimits(env, maxBodyBytes),
    maxBodyBytes,
    passphraseCost,
    /** How long a receipt is kept after its secret has ended. */
    receiptSeconds: env.number('RECEIPT_RETENTION', 30 * DAY_SECONDS, 0, 3_660 * DAY_SECONDS),
    sharePages,
    /** Which users, or whether anyone, may store secrets without a token. */
    users: users.length > 0 ? users : ['*'],
    userSource: readUserSource(env),
    anyone,
    database: readDatabase(env, 'SECRETS_DATABASE_URL'),
  };
}

/** What a command needs that sends requests to the service. */
export const readClient = (env: Env) => ({
  address: env.get('GATEHOUSE_URL', 'http://localhost:8080', baseAddress),
  token: env.get('AUTH_TOKEN', null, bearerToken),
});

/** By the members that `GET /api/store/options` shows; a default of null: without a limit. */
function readLimits(env: Env, maxBodyBytes: number) {
  const year = 366 * DAY_SECONDS;
  const seconds = env.number('SECRET_TTL', 7 * DAY_SECONDS, 0, year);
  const maxSeconds = env.number('SECRET_TTL_MAX', null, 1, year, MAX_SECONDS);
  const reads = env.number('SECRET_READS', 0, 0, MAX_READS);
  const maxReads = env.number('SECRET_READS_MAX', null, 1, MAX_READS, MAX_READS);
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
  return {
    default: Math.min(fallback || max, max),
    max,
  };
}
