import { readFileSync } from 'node:fs';
import { BlockList } from 'node:net';
import { userInfo } from 'node:os';
import { isAbsolute } from 'node:path';
import { DEFAULT_COST, isAffordable, type ScryptCost } from './crypto/password.ts';
import { fromBase64 } from './crypto/text.ts';
import type { DatabaseAddress } from './db/pool.ts';
import { parseNetworks } from './http/address.ts';
import { LOG_LEVELS, type LogLevel } from './runtime/log.ts';

export type Environment = Readonly<Record<string, string | undefined>>;

/** How the text of a variable is read: a value, or what it accepts. */
class Wrong {
  readonly accepts: string;
  constructor(accepts: string) {
    this.accepts = accepts;
  }
}
interface Variable<T> {
  /** As the README gives it; `–` where there is none. */
  readonly byDefault: string;
  readonly missing: T;
  readonly parse: (text: string) => T | Wrong;
}

function number(byDefault: number, min: number, max: number): Variable<number> {
  const parse = (text: string) => {
    const value = /^[0-9]{1,10}$/.test(text) ? Number(text) : Number.NaN;
    return value >= min && value <= max ? value : new Wrong(`a whole number from ${min} to ${max}`);
  };
  return { byDefault: String(byDefault), missing: byDefault, parse };
}

/** 0 for no such limit. */
function numberOrOff(min: number, max: number): Variable<number> {
  const { parse } = number(0, min, max);
  return { byDefault: '0', missing: 0, parse: (text) => (text === '0' ? 0 : parse(text) instanceof Wrong ? new Wrong(`0, or a whole number from ${min} to ${max}`) : parse(text)) };
}

/** @param byDefault only shown here: one that is set bounds more than this does */
function bound(byDefault: number, min: number, max: number): Variable<number | null> {
  return { ...number(byDefault, min, max), missing: null };
}

/** @param byDefault only shown here: which default holds depends on what else is set */
function port(byDefault: string): Variable<number | null> {
  return { byDefault, missing: null, parse: number(0, 0, 65_535).parse };
}

function host(byDefault: string): Variable<string | null> {
  return { byDefault, missing: null, parse: (value) => value };
}

function text(byDefault: string | null, check: (value: string) => string | null = () => null): Variable<string | null> {
  const parse = (value: string) => {
    const accepts = check(value);
    return accepts === null ? value : new Wrong(accepts);
  };
  return { byDefault: byDefault ?? '–', missing: byDefault, parse };
}

function oneOf<T extends string>(byDefault: T, choices: readonly T[]): Variable<T> {
  return {
    byDefault,
    missing: byDefault,
    parse: (value) => choices.find((choice) => choice === value) ?? new Wrong(`one of ${choices.join(', ')}`),
  };
}

const day = 86_400;

/** Every variable there is. The README's table of them is checked against this one, both ways. */
export const VARIABLES = {
  DATABASE_URL: database(),
  IDENTITY_DATABASE_URL: database(),
  SECRETS_DATABASE_URL: database(),
  WEBHOOK_DATABASE_URL: database(),
  MIGRATE: oneOf('on', ['on', 'off']),
  HOST: host('0.0.0.0'),
  PORT: port('–'),
  IDENTITY_HOST: host('0.0.0.0'),
  IDENTITY_PORT: port('3000'),
  SECRETS_HOST: host('0.0.0.0'),
  SECRETS_PORT: port('8080'),
  WEBHOOK_HOST: host('0.0.0.0'),
  WEBHOOK_PORT: port('8000'),
  METRICS_HOST: host('127.0.0.1'),
  METRICS_PORT: port('–'),
  LOG_LEVEL: oneOf<LogLevel>('info', LOG_LEVELS),
  TRUSTED_PROXIES: networks(),
  MAX_BODY_BYTES: number(65_536, 1_024, 16_777_216),
  SHUTDOWN_GRACE: number(10, 0, 600),
  WORKERS: number(1, 1, 64),
  ADMIN_USERNAME: text('admin'),
  ADMIN_PASSWORD: text(null),
  ADMIN_EMAIL: text('admin@localhost'),
  PASSWORD_MIN_LENGTH: number(8, 8, 64),
  PASSWORD_HASHES: number(2, 1, 64),
  PASSWORD_SCRYPT: scryptCost(),
  SESSION_TTL: number(day, 60, 366 * day),
  SESSION_IDLE_TTL: numberOrOff(300, 366 * day),
  SESSION_RETENTION: number(30 * day, 0, 3_660 * day),
  AUDIT_RETENTION: number(365 * day, day, 3_660 * day),
  SERVER_SECRET: text(null, listable),
  SERVER_SECRET_PREVIOUS: text(null),
  AUTH_TOKEN: text(null, headerCharacters),
  SECRET_TTL: number(7 * day, 0, 366 * day),
  SECRET_TTL_MAX: bound(30 * day, 1, 366 * day),
  SECRET_READS: numberOrOff(1, 1_000),
  SECRET_READS_MAX: bound(1_000, 1, 1_000),
  RECEIPT_RETENTION: number(30 * day, 0, 3_660 * day),
  SHARE_PAGES: oneOf('off', ['off', 'on']),
  GATEHOUSE_URL: text('http://localhost:8080', baseUrl),
  WEBHOOK_VARIANT: oneOf('extended', ['extended', 'plain']),
  WEBHOOK_SECRET: text(null),
  WEBHOOK_TOKEN: text(null, tokenCharacters),
  APP_NAME: text('gatehouse-webhook'),
  WEBHOOK_FORWARD_URL: text(null, forwardUrl),
  WEBHOOK_FORWARD_SECRET: text(null, forwardSecret),
  WEBHOOK_FORWARD_ALLOW_PRIVATE: oneOf('off', ['off', 'on']),
  WEBHOOK_COMMAND: command(),
  WEBHOOK_HANDLER: text(null, absolutePath),
  WEBHOOK_EVENTS: text(null),
  WEBHOOK_ORDER: oneOf('none', ['none', 'page_id']),
  WEBHOOK_CONCURRENCY: number(10, 1, 256),
  WEBHOOK_TIMEOUT: number(30, 1, 3_600),
  WEBHOOK_MAX_ATTEMPTS: number(12, 1, 100),
  WEBHOOK_BACKOFF_BASE_MS: number(1_000, 1, 3_600_000),
  WEBHOOK_RATE: number(20_000, 1, 1_000_000),
  // Not shorter, because senders try again for days, and a removed event is no longer known.
  EVENT_RETENTION: number(30 * day, 7 * day, 3_660 * day),
  DEAD_RETENTION: number(90 * day, 7 * day, 3_660 * day),
  INBOX_PAGE: oneOf('off', ['off', 'on']),
} as const;

export type Settings = { readonly [K in keyof typeof VARIABLES]: (typeof VARIABLES)[K] extends Variable<infer T> ? T : never };

/**
 * Reads every variable. One that is set but empty counts as not set, since that is how container files leave one out.
 * @param problems gets one sentence for each that cannot be read; the settings must not be used when it got any
 */
export function readVariables(environment: Environment, problems: string[]): Settings {
  const entries = Object.entries<Variable<unknown>>(VARIABLES).map(([name, variable]) => {
    const given = readText(environment, name, problems);
    const value = given === null ? variable.missing : variable.parse(given);
    if (value instanceof Wrong) problems.push(`${name} must be ${value.accepts}.`);
    return [name, value];
  });
  // Each value was read by the variable of its name; where one was not, a problem is noted.
  return Object.fromEntries(entries) as Settings;
}

/** Strict: read leniently, unlike bytes of a key would become the same character. */
const utf8 = new TextDecoder('utf-8', { fatal: true });

/** `X_FILE` names a file that holds `X`. One trailing newline is removed, because editors and `echo` put one there. */
function readText(environment: Environment, name: string, problems: string[]): string | null {
  const value = environment[name] || null;
  const file = environment[`${name}_FILE`] || null;
  if (file === null) return value;
  if (value !== null) {
    problems.push(`${name} and ${name}_FILE are both set; remove one of them.`);
    return null;
  }
  try {
    return utf8.decode(readFileSync(file)).replace(/\r?\n$/, '') || null;
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
    problems.push(`${name}_FILE names a file that cannot be read (${code}).`);
    return null;
  }
}

function database(): Variable<DatabaseAddress | null> {
  return {
    byDefault: '–',
    missing: null,
    parse(value) {
      try {
        return parseDatabaseUrl(new URL(value));
      } catch {
        return new Wrong(DATABASE_URL_FORM); // not a URL at all, or malformed percent escapes in it
      }
    },
  };
}

const SSL_MODES = ['disable', 'prefer', 'require', 'verify-ca', 'verify-full'] as const;

const DATABASE_URL_FORM = 'postgres://user:password@host:5432/database, with "sslmode" as its only parameter';

/** `postgres` would send parameters it does not know to the server; here a misspelt one is refused. */
function parseDatabaseUrl(url: URL): DatabaseAddress | Wrong {
  const [database = '', user, password = ''] = [url.pathname.slice(1), url.username, url.password].map(decodeURIComponent);
  const host = decodeURIComponent(url.hostname).replace(/^\[(.*)\]$/, '$1') || 'localhost';
  const parameters = [...url.searchParams.keys()].join();
  const isOne = /^postgres(ql)?:$/.test(url.protocol) && database !== '' && !host.includes(',');
  if (!isOne || !['', 'sslmode'].includes(parameters)) return new Wrong(DATABASE_URL_FORM);
  const given = url.searchParams.get('sslmode');
  const sslmode = given === null ? (isThisHost(host) ? 'disable' : 'prefer') : SSL_MODES.find((mode) => mode === given);
  if (!sslmode) return new Wrong(`a URL whose sslmode is one of ${SSL_MODES.join(', ')}`);
  // U+0000 ends a text in PostgreSQL's protocol: what follows it would be read as another field.
  if (`${database}${user}${password}`.includes('\0')) return new Wrong(DATABASE_URL_FORM);
  return { host, port: Number(url.port || 5432), database, user: user || userInfo().username, password, sslmode };
}

export const isThisHost = (host: string): boolean => host.startsWith('/') || ['localhost', '127.0.0.1', '::1'].includes(host);

function networks(): Variable<BlockList> {
  return {
    byDefault: '–',
    missing: new BlockList(),
    parse(value) {
      const list = parseNetworks(value);
      return 'wrong' in list ? new Wrong('a comma-separated list of addresses and CIDR ranges, such as 10.0.0.0/8,::1') : list;
    },
  };
}

function scryptCost(): Variable<ScryptCost> {
  return {
    byDefault: 'ln=15,r=8,p=3',
    missing: DEFAULT_COST,
    parse(value) {
      const found = /^ln=([0-9]{1,2}),r=([0-9]{1,2}),p=([0-9]{1,2})$/.exec(value);
      const cost = { logN: Number(found?.[1]), r: Number(found?.[2]), p: Number(found?.[3]) };
      return isAffordable(cost) ? cost : new Wrong('a cost such as ln=15,r=8,p=3 that needs at most 256 MiB');
    },
  };
}

/** A token must survive a query string and a header as it is. */
function tokenCharacters(value: string): string | null {
  return /^[A-Za-z0-9._~-]{16,512}$/.test(value) ? null : '16 to 512 characters of A-Z a-z 0-9 . _ ~ -';
}

/** A token that a header can carry. */
function headerCharacters(value: string): string | null {
  return /^[\x21-\x7e]+$/.test(value) ? null : 'visible ASCII characters without spaces';
}

function baseUrl(value: string): string | null {
  return /^https?:\/\/[^\s/?#@]+\/?$/.test(value) && URL.canParse(value) ? null : 'the address of the secrets service, such as https://secrets.example.org';
}

function forwardUrl(value: string): string | null {
  const url = URL.canParse(value) ? new URL(value) : null;
  return url && /^https?:$/.test(url.protocol) && url.username === '' && url.hash === '' ? null : 'an http or https URL without a user name';
}

function forwardSecret(value: string): string | null {
  const bytes = fromBase64(value.replace(/^whsec_/, ''))?.length ?? 0;
  return bytes >= 24 && bytes <= 64 ? null : '24 to 64 bytes in Base64, with or without whsec_ before them';
}

function absolutePath(value: string): string | null {
  return isAbsolute(value) ? null : 'the absolute path of a module';
}

function command(): Variable<readonly [string, ...string[]] | null> {
  return {
    byDefault: '–',
    missing: null,
    parse(value) {
      try {
        const words: unknown = JSON.parse(value);
        if (Array.isArray(words) && words.every((word) => typeof word === 'string' && !word.includes('\0'))) {
          const [program, ...rest]: string[] = words;
          if (program) return [program, ...rest];
        }
      } catch {
        // Said below.
      }
      return new Wrong('a JSON array of a program and its arguments, such as ["/usr/local/bin/handle", "--fast"]');
    },
  };
}

/** A server secret must fit SERVER_SECRET_PREVIOUS once it is replaced, which is a list with commas. */
function listable(value: string): string | null {
  return value.includes(',') || value !== value.trim() ? 'a text without commas, and without spaces around it' : null;
}
