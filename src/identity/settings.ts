import { costWarnings, scryptCost } from '../crypto/scrypt.ts';
import type { DatabaseAddress } from '../db/url.ts';
import { nullable, object, text as textSchema } from '../http/schema.ts';
import {
  earlierSecrets,
  list,
  matching,
  number,
  numberOrOff,
  oneOf,
  secret,
  secretValues,
  type SettingsInput,
  text,
  toggle,
} from '../runtime/variables.ts';
import { nameSchemas, passwordError } from './rules.ts';
import { DAY_SECONDS } from '../runtime/duration.ts';

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
function checkOrigin(text: string) {
  const url = URL.canParse(text) ? new URL(text) : null;
  const isProtected = url?.protocol === 'https:' || /^(.+\.)?localhost$/.test(url?.hostname ?? '');
  if (url?.origin === text && isProtected) return null;
  return 'an origin such as https://login.example.org, with https unless the host is localhost';
}

export const VARIABLES = {
  PASSWORD_SCRYPT: scryptCost(),
  ADMIN_USERNAME: text('admin'),
  ADMIN_PASSWORD: text(null),
  ADMIN_EMAIL: text('admin@localhost'),
  // The sign-in pages generate passwords of 29 characters.
  PASSWORD_MIN_LENGTH: number(8, 8, 29),
  PASSWORD_WORDS: list(),
  SESSION_TTL: number(DAY_SECONDS, 60, 366 * DAY_SECONDS),
  SESSION_IDLE_TTL: numberOrOff(300, 366 * DAY_SECONDS),
  SESSION_RETENTION: number(30 * DAY_SECONDS, 0, 3_660 * DAY_SECONDS),
  AUDIT_RETENTION: number(365 * DAY_SECONDS, DAY_SECONDS, 3_660 * DAY_SECONDS),
  SIGNIN_PAGES: toggle('off'),
  SIGNIN_ORIGIN: text('http://localhost:3000', checkOrigin),
  RETURN_ORIGINS: list(checkOrigin),
  IDENTITY_SECRET: secret(),
  IDENTITY_SECRET_PREVIOUS: earlierSecrets(0),
  REQUIRE_SECOND_FACTOR: oneOf('off', ['off', 'super_admin', 'all']),
  LINK_TTL: number(3 * DAY_SECONDS, 3_600, 30 * DAY_SECONDS),
  COOKIE_DOMAIN: text(null, matching(/^([a-z0-9-]+\.)+[a-z0-9-]+$/, 'a domain with a dot')),
} as const;

export type IdentitySettings = ReturnType<typeof read>;
/** The addresses of the sign-in pages, and of the programs whose proxies ask them. */
export type Portal = NonNullable<IdentitySettings['portal']>;

export function read({
  values,
  requireDatabase,
  findings,
}: SettingsInput<typeof VARIABLES, DatabaseAddress>) {
  const admin = {
    username: values.ADMIN_USERNAME,
    email: values.ADMIN_EMAIL,
    password: values.ADMIN_PASSWORD,
  };
  const rules = { minLength: values.PASSWORD_MIN_LENGTH, words: values.PASSWORD_WORDS };
  const password = nullable(textSchema({ check: (value) => passwordError(value, rules, admin) }));
  const { username, email } = nameSchemas;
  object({ username, email, password }).read(admin, '', (path, message) => {
    findings.problems.push(`ADMIN_${path.slice(1).toUpperCase()} ${message}.`);
  });
  findings.warnings.push(...costWarnings(values.PASSWORD_SCRYPT));
  const {
    COOKIE_DOMAIN: cookieDomain,
    REQUIRE_SECOND_FACTOR: requireSecondFactor,
    SIGNIN_ORIGIN: origin,
  } = values;
  // Those of TOTP are sealed under the first and open under all.
  const secrets = secretValues(
    'IDENTITY_SECRET',
    values.IDENTITY_SECRET,
    values.IDENTITY_SECRET_PREVIOUS,
    findings,
  );
  const host = new URL(origin).hostname;
  if (cookieDomain !== null && !`.${host}`.endsWith(`.${cookieDomain}`)) {
    findings.problems.push(
      `COOKIE_DOMAIN must be the host of SIGNIN_ORIGIN, ${host}, or a domain above it.`,
    );
  }
  if (requireSecondFactor !== 'off' && !(values.SIGNIN_PAGES && values.IDENTITY_SECRET)) {
    findings.problems.push('REQUIRE_SECOND_FACTOR needs SIGNIN_PAGES=on and IDENTITY_SECRET.');
  }
  const portal = {
    origin,
    host,
    returnOrigins: values.RETURN_ORIGINS,
    cookieDomain,
    secrets,
    requireSecondFactor,
    linkSeconds: values.LINK_TTL,
  } as const;
  return {
    database: requireDatabase(),
    portal: values.SIGNIN_PAGES ? portal : null,
    admin,
    passwords: { ...rules, cost: values.PASSWORD_SCRYPT },
    sessionSeconds: values.SESSION_TTL, // from the login
    idleSeconds: values.SESSION_IDLE_TTL, // from the last use; 0: no idle limit
    retentionSeconds: values.SESSION_RETENTION, // for which an ended session stays in lists
    auditSeconds: values.AUDIT_RETENTION,
  };
}
