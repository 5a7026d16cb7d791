import { isIP } from 'node:net';
import { readCost } from '../platform/crypto/scrypt.ts';
import { nullable, object, text } from '../platform/http/route/schema.ts';
import { readDatabase } from '../platform/db/url.ts';
import {
  type Env,
  exactText,
  Expected,
  list,
  oneOf,
  type Parser,
} from '../platform/runtime/env.ts';
import { nameSchemas, passwordError } from './rules.ts';
import { DAY_SECONDS } from '../platform/runtime/duration.ts';

export const PORT = 3000;
/**
 * The specification wraps replies in `data`, and requires 500 from identity when its database
 * fails.
 */
export const STYLE = { wrapping: 'data', unavailable: 'service_failed' } as const;
export const PREFIXES = ['SESSION_', 'PASSWORD_', 'AUDIT_', 'LINK_'];

/**
 * Scheme, host and port, as browsers send them. Without TLS, cookies would be readable on the way.
 * @throws Expected
 */
function readOrigin(text: string, examples = 'https://login.example.org') {
  const url = /^\S+$/.test(text) && URL.canParse(text) ? new URL(text) : null;
  const host = url?.hostname ?? '';
  const isProtected = url?.protocol === 'https:' || /^(.+\.)?localhost$/.test(host);
  // A host with a dot at its end is another one for cookies.
  const isPlain = url?.href === `${url?.origin}/` && !/[*]|\.$/.test(host);
  if (url && isProtected && isPlain) return url.origin;
  throw new Expected(
    `an origin such as ${examples}, without a path, and with https unless the host is localhost`,
  );
}

/** In `https://*.example.org`, `*` stands for one label. @throws Expected */
function readReturnOrigin(text: string) {
  const examples = 'https://app.example.org or https://*.example.org';
  // Not for all names of a top-level domain.
  const isWildcard = URL.canParse(text) && /^https?:\/\/\*\.([^.]+\.|localhost\b)/i.test(text);
  const origin = readOrigin(isWildcard ? text.replace('*.', '') : text, examples);
  return isWildcard ? origin.replace('//', '//*.') : origin;
}

/** Whether the host gets the cookie that `verify` reads. */
export const getsCookie = (hostname: string, { host, cookieDomain }: CookieHosts) =>
  hostname === host || (cookieDomain !== null && `.${hostname}`.endsWith(`.${cookieDomain}`));
type CookieHosts = Readonly<{ host: string; cookieDomain: string | null }>;

const domain: Parser<string> = (text) => {
  // Browsers ignore a dot before it (RFC 6265, 5.2.3).
  const name = text.toLowerCase().replace(/^\./, '');
  if (!/^([a-z0-9-]+\.)+[a-z][a-z0-9-]*$/.test(name)) throw new Expected('a domain with a dot');
  return name;
};

const MAX_IDLE = 366 * DAY_SECONDS;
const idleSeconds: Parser<number> = (text) => {
  const seconds = /^(0|[1-9][0-9]{2,9})$/.test(text) ? Number(text) : Number.NaN;
  if (seconds === 0 || (seconds >= 300 && seconds <= MAX_IDLE)) return seconds;
  throw new Expected(`0, or a whole number from 300 to ${MAX_IDLE}`);
};

const MIN_STAY = 7 * DAY_SECONDS;
const staySeconds: Parser<number> = (text) => {
  const seconds = /^[0-9]{1,9}$/.test(text) ? Number(text) : Number.NaN;
  if (seconds === 0 || (seconds >= MIN_STAY && seconds <= MAX_IDLE)) return seconds;
  throw new Expected(`0, or a whole number from ${MIN_STAY} to ${MAX_IDLE}`);
};

export type IdentitySettings = ReturnType<typeof read>;
/** The addresses of the sign-in pages, and of the programs whose proxies ask them. */
export type Portal = ReturnType<typeof readPortal>;

export function read(env: Env) {
  const rules = {
    // The sign-in pages generate passwords of 29 characters.
    minLength: env.number('PASSWORD_MIN_LENGTH', 8, 8, 29),
    words: env.get('PASSWORD_WORDS', [], list()),
  };
  const cost = readCost(env);
  const admin = readAdministrator(env, rules);
  const hasPages = env.isOn('SIGNIN_PAGES');
  // Those of TOTP are sealed under the first and open under all.
  const factorSecrets = env.secrets('IDENTITY_SECRET');
  const portal = readPortal(env, hasPages && factorSecrets.length > 0);
  if (hasPages) addWarnings(env, portal);
  return {
    portal: hasPages ? portal : null,
    factorSecrets,
    admin,
    passwords: { ...rules, cost },
    /** From the login. */
    sessionSeconds: env.number('SESSION_TTL', DAY_SECONDS, 60, 366 * DAY_SECONDS),
    /** From the last use; 0: no idle limit. */
    idleSeconds: env.get('SESSION_IDLE_TTL', 0, idleSeconds),
    /** For which an ended session stays in lists. */
    retentionSeconds: env.number('SESSION_RETENTION', 30 * DAY_SECONDS, 0, 3_660 * DAY_SECONDS),
    auditSeconds: env.number(
      'AUDIT_RETENTION',
      365 * DAY_SECONDS,
      DAY_SECONDS,
      3_660 * DAY_SECONDS,
    ),
    /** Whether people may delete their own accounts. */
    selfDeletion: env.isOn('SELF_DELETION'),
    database: readDatabase(env, 'IDENTITY_DATABASE_URL'),
  };
}

/** The first administrator, whose names and password must be valid for a user. */
function readAdministrator(env: Env, rules: Parameters<typeof passwordError>[1]) {
  const admin = {
    username: env.text('ADMIN_USERNAME', 'admin'),
    email: env.text('ADMIN_EMAIL', 'admin@localhost'),
    password: env.exact('ADMIN_PASSWORD', null, exactText),
  };
  const { username, email } = nameSchemas;
  const password = nullable(text({ check: (value) => passwordError(value, rules, admin) }));
  object({ username, email, password }).read(admin, '', (path, message) => {
    env.problem(`ADMIN_${path.slice(1).toUpperCase()}`, `${message}.`);
  });
  return admin;
}

/** About addresses that can never work. */
function addWarnings({ warnings }: Env, portal: Portal) {
  const { host, hasPasskeys, returnOrigins } = portal;
  if (!hasPasskeys) {
    warnings.add(
      `SIGNIN_ORIGIN has an IP address, ${host}: browsers allow passkeys only under a host name.`,
    );
  }
  for (const origin of returnOrigins) {
    if (getsCookie(new URL(origin).hostname, portal)) continue;
    warnings.add(
      `RETURN_ORIGINS has ${origin}, which gets no cookie of the sign-in: set COOKIE_DOMAIN to a domain above it and ${host}.`,
    );
  }
}

function readPortal(env: Env, hasFactors: boolean) {
  const origin = env.get('SIGNIN_ORIGIN', 'http://localhost:3000', readOrigin);
  const cookieDomain = env.get('COOKIE_DOMAIN', null, domain);
  const host = new URL(origin).hostname;
  if (cookieDomain !== null && !`.${host}`.endsWith(`.${cookieDomain}`)) {
    env.problem(
      'COOKIE_DOMAIN',
      `must be the host of SIGNIN_ORIGIN, ${host}, or a domain above it.`,
      'SIGNIN_ORIGIN',
    );
  }
  const returnOrigins = env.get('RETURN_ORIGINS', [], list(readReturnOrigin));
  const choices = ['off', 'super_admin', 'all'] as const;
  const requireSecondFactor = env.get('REQUIRE_SECOND_FACTOR', 'off', oneOf(choices));
  const hasOidc = env.isOn('OIDC');
  const demands = { REQUIRE_SECOND_FACTOR: requireSecondFactor !== 'off', OIDC: hasOidc };
  for (const [name, isSet] of Object.entries(demands)) {
    const needed = 'needs SIGNIN_PAGES=on and IDENTITY_SECRET.';
    if (isSet && !hasFactors) env.problem(name, needed, 'SIGNIN_PAGES', 'IDENTITY_SECRET');
  }
  return {
    origin,
    host,
    hasOidc,
    /** Whether browsers allow passkeys there: only under a domain (WebAuthn, 5.1.3). */
    hasPasskeys: isIP(host.replace(/^\[|\]$/g, '')) === 0,
    returnOrigins,
    cookieDomain,
    /** For a browser in which the person chose to stay signed in; 0: it is not offered. */
    staySeconds: env.get('SESSION_STAY_TTL', 0, staySeconds),
    requireSecondFactor,
    linkSeconds: env.number('LINK_TTL', 3 * DAY_SECONDS, 3_600, 30 * DAY_SECONDS),
  };
}
