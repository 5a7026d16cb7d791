import { readCost } from '../platform/crypto/scrypt.ts';
import { nullable, object, text } from '../platform/http/route/schema.ts';
import { readDatabase } from '../platform/db/url.ts';
import {
  type Env,
  Expected,
  list,
  matching,
  oneOf,
  type Parser,
  satisfying,
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
 */
function isOrigin(text: string) {
  const url = URL.canParse(text) ? new URL(text) : null;
  const isProtected = url?.protocol === 'https:' || /^(.+\.)?localhost$/.test(url?.hostname ?? '');
  return url?.origin === text && isProtected;
}

const webOrigin = satisfying(
  isOrigin,
  'an origin such as https://login.example.org, with https unless the host is localhost',
);
const domain = matching(/^([a-z0-9-]+\.)+[a-z0-9-]+$/, 'a domain with a dot');

const MAX_IDLE = 366 * DAY_SECONDS;
const idleSeconds: Parser<number> = (text) => {
  const seconds = /^(0|[1-9][0-9]{2,9})$/.test(text) ? Number(text) : Number.NaN;
  if (seconds === 0 || (seconds >= 300 && seconds <= MAX_IDLE)) return seconds;
  throw new Expected(`0, or a whole number from 300 to ${MAX_IDLE}`);
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
  const portal = readPortal(env, hasPages);
  return {
    portal: hasPages ? portal : null,
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
    database: readDatabase(env, 'IDENTITY_DATABASE_URL'),
  };
}

/** The first administrator, whose names and password must be valid for a user. */
function readAdministrator(env: Env, rules: Parameters<typeof passwordError>[1]) {
  const admin = {
    username: env.text('ADMIN_USERNAME', 'admin'),
    email: env.text('ADMIN_EMAIL', 'admin@localhost'),
    password: env.text('ADMIN_PASSWORD', null),
  };
  const { username, email } = nameSchemas;
  const password = nullable(text({ check: (value) => passwordError(value, rules, admin) }));
  object({ username, email, password }).read(admin, '', (path, message) => {
    env.problem(`ADMIN_${path.slice(1).toUpperCase()}`, `${message}.`);
  });
  return admin;
}

function readPortal(env: Env, hasPages: boolean) {
  const origin = env.get('SIGNIN_ORIGIN', 'http://localhost:3000', webOrigin);
  const cookieDomain = env.get('COOKIE_DOMAIN', null, domain);
  const host = new URL(origin).hostname;
  if (cookieDomain !== null && !`.${host}`.endsWith(`.${cookieDomain}`)) {
    env.problem(
      'COOKIE_DOMAIN',
      `must be the host of SIGNIN_ORIGIN, ${host}, or a domain above it.`,
      'SIGNIN_ORIGIN',
    );
  }
  const choices = ['off', 'super_admin', 'all'] as const;
  const requireSecondFactor = env.get('REQUIRE_SECOND_FACTOR', 'off', oneOf(choices));
  // Those of TOTP are sealed under the first and open under all.
  const secrets = env.secrets('IDENTITY_SECRET');
  if (requireSecondFactor !== 'off' && !(hasPages && secrets.length > 0)) {
    env.problem(
      'REQUIRE_SECOND_FACTOR',
      'needs SIGNIN_PAGES=on and IDENTITY_SECRET.',
      'SIGNIN_PAGES',
      'IDENTITY_SECRET',
    );
  }
  return {
    origin,
    host,
    returnOrigins: env.get('RETURN_ORIGINS', [], list(webOrigin)),
    cookieDomain,
    secrets,
    requireSecondFactor,
    linkSeconds: env.number('LINK_TTL', 3 * DAY_SECONDS, 3_600, 30 * DAY_SECONDS),
  };
}
