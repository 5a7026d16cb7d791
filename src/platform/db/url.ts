import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import { createSecureContext } from 'node:tls';
import { codeOf, Unavailable } from '../runtime/errors.ts';
import {
  anyText,
  Env,
  Expected,
  formIn,
  matching,
  oneOf,
  type Parser,
  wholeNumber,
} from '../runtime/env.ts';

// Settings are read before the driver is loaded, so this file does not import it.

/** A name that begins with "/" is the directory of a Unix socket. */
export type Host = Readonly<{ name: string; port: number }>;

export const isThisHost = (host: string) =>
  host.startsWith('/') || ['localhost', '127.0.0.1', '::1'].includes(host);

export const hostList = (hosts: readonly Host[]) =>
  hosts.map(({ name, port }) => `${name}:${port}`).join();

type DatabaseUrl = Readonly<ReturnType<typeof parse>>;
export type DatabaseAddress = ReturnType<typeof readDatabase>;

/** The database of a service: its own, or that of all. @param own the variable of its own URL */
export function readDatabase(env: Env, own: string) {
  const limits = readLimits(env);
  const common = env.get('DATABASE_URL', null, parseUrl);
  const given = env.get(own, null, parseUrl);
  if (!given && !common)
    env.problem(own, `or DATABASE_URL must be set, as ${FORM_TEXT}.`, 'DATABASE_URL');
  // The placeholder without hosts is for the other settings, which are read too.
  const url: DatabaseUrl = given ?? common ?? { ...parse(FORM_TEXT), hosts: [] };
  const remote = url.hosts.filter((host) => !isThisHost(host.name));
  if (remote.length > 0 && ['disable', 'prefer'].includes(url.sslmode)) {
    const state = url.sslmode === 'disable' ? 'is not encrypted' : 'may be unencrypted';
    env.warnings.add(
      `The connection to the database at ${hostList(remote)} ${state}; set sslmode=verify-full in its URL.`,
    );
  }
  return {
    ...url,
    limits,
    /** Reads the URL and its files again. @throws Unavailable if one is missing or invalid */
    reload() {
      const again = new Env(env.environment);
      const read = again.get(given ? own : 'DATABASE_URL', null, parseUrl);
      if (!read) throw new Unavailable([...again.problems.values()].join(' '));
      return read;
    },
  } as const;
}

/** In seconds. */
function readLimits(env: Env) {
  const limits = {
    /** The server ends a statement, and an idle transaction. */
    DATABASE_STATEMENT_TIMEOUT: env.number('DATABASE_STATEMENT_TIMEOUT', 10, 1, 300),
    /** A call that waits for a lock fails. */
    DATABASE_LOCK_TIMEOUT: env.number('DATABASE_LOCK_TIMEOUT', 10, 1, 300),
    /** A connection is closed if nothing arrives while a reply is due. */
    DATABASE_DEAD_AFTER: env.number('DATABASE_DEAD_AFTER', 15, 2, 600),
  };
  if (limits.DATABASE_DEAD_AFTER <= limits.DATABASE_STATEMENT_TIMEOUT) {
    env.problem(
      'DATABASE_DEAD_AFTER',
      'must be more than DATABASE_STATEMENT_TIMEOUT.',
      'DATABASE_STATEMENT_TIMEOUT',
    );
  }
  return limits;
}

/**
 * As in libpq: `prefer` encrypts if the server can, `require` insists, `verify-*` also check the
 * certificate.
 */
const SSL_MODES = ['disable', 'prefer', 'require', 'verify-ca', 'verify-full'] as const;

const NO_CHANNEL_BINDING =
  '"prefer" or "disable": the database client has no channel binding. sslmode=verify-full prevents such attacks';
const NO_OPTIONS =
  'a URL whose options is absent, because poolers drop it; set what you need for the role: ALTER ROLE … SET …';

/** The parameters of a URL, as in libpq, and what each must be. */
const PARAMETERS: Readonly<Record<string, Parser<unknown>>> = {
  sslmode: oneOf(SSL_MODES),
  sslrootcert: anyText,
  sslcert: anyText,
  sslkey: anyText,
  host: anyText,
  target_session_attrs: oneOf(['any', 'read-write', 'primary']),
  connect_timeout: wholeNumber(1, 99),
  application_name: matching(/^[ -~]{1,40}$/, 'at most 40 ASCII characters'),
  channel_binding: matching(/^(disable|prefer)$/, NO_CHANNEL_BINDING),
};
const NAMES = Object.keys(PARAMETERS).join(', ');

const FORM =
  /^postgres(?:ql)?:\/\/(?:([^:@/?#]*)(?::([^@/?#]*))?@)?([^@/?#]*)\/([^@/?#]+)(?:\?([^#]*))?$/;
const FORM_TEXT = 'postgres://user:password@host:5432/database';
const ESCAPES =
  'in the user and the password, write @ as %40, / as %2F, ? as %3F, # as %23 and % as %25';

/** Reads the value of DATABASE_URL. @throws Expected */
export function parseUrl(text: string) {
  try {
    return parse(text);
  } catch (error) {
    const credentials = text.slice(text.indexOf('//') + 2, Math.max(text.lastIndexOf('@'), 0));
    // Any other message could quote a part of the password.
    if (/[@/?#]/.test(credentials) || error instanceof URIError)
      throw new Expected(`${FORM_TEXT}; ${ESCAPES}`);
    throw error instanceof Expected ? error : new Expected(FORM_TEXT);
  }
}

function parse(url: string) {
  const form = FORM.exec(url);
  // U+0000 ends a string in PostgreSQL's protocol: the rest would be read as another field.
  if (!form || /%00|\0/.test(url)) throw new Expected(FORM_TEXT);
  const [, user = '', password = '', authority = '', database = '', query = ''] = form;
  const values = readQuery(query);
  const hosts = hostsOf(authority, values.get('host'));
  return {
    hosts,
    database: decodeURIComponent(database),
    user: decodeURIComponent(user) || userInfo().username,
    password: decodeURIComponent(password),
    applicationName: values.get('application_name') ?? 'gatehouse',
    connectSeconds: Number(values.get('connect_timeout') ?? 5), // for each host
    sslmode: sslmodeOf(values, hosts),
    /** Null: Node's certificate authorities, and no certificate of the client. */
    certificates: certificatesOf(values),
    // Only one of several servers can be written to.
    target: values.get('target_session_attrs') ?? (hosts.length > 1 ? 'read-write' : 'any'),
  };
}

type Parameters = ReadonlyMap<string, string>;

/** @returns the parameters that are given, as text that is valid */
function readQuery(query: string) {
  const given = new Map<string, string>();
  for (const pair of query.split('&').filter(Boolean)) {
    const [name = '', value = ''] = pair.split(/=(.*)/s);
    const parse = Object.hasOwn(PARAMETERS, name) ? PARAMETERS[name] : null;
    if (name === 'options') throw new Expected(NO_OPTIONS);
    if (!parse)
      throw new Expected(`a URL without the parameter "${name}"; the parameters are ${NAMES}`);
    if (value === '' || given.has(name)) throw new Expected(`a URL in which ${name} has one value`);
    const text = decodeURIComponent(value);
    try {
      parse(text);
    } catch (error) {
      throw new Expected(`a URL whose ${name} is ${formIn(error)}`);
    }
    given.set(name, text);
  }
  return given;
}

function sslmodeOf(values: Parameters, hosts: readonly Host[]) {
  const sslrootcert = values.get('sslrootcert');
  const usual = hosts.every(({ name }) => isThisHost(name)) ? 'disable' : 'prefer';
  const mode = SSL_MODES.find((one) => one === values.get('sslmode')) ?? usual;
  const least = sslrootcert === 'system' ? 'verify-full' : 'require';
  const isWeaker = SSL_MODES.indexOf(mode) < SSL_MODES.indexOf(least);
  // Certificates would be ignored.
  if ((sslrootcert || values.has('sslcert')) && isWeaker) {
    throw new Expected('a URL with sslmode=verify-full beside its sslrootcert or sslcert');
  }
  return sslrootcert && mode === 'require' ? 'verify-ca' : mode;
}

/** @param names of the parameter `host`; their port is in the authority, as without it */
function hostsOf(authority: string, names: string | undefined): readonly Host[] {
  if (names === undefined) return authority.split(',').map(hostOf);
  if (!/^(:|$)/.test(authority)) {
    throw new Expected('a URL that names its hosts either before the database or in "host"');
  }
  return names.split(',').map((name) => hostOf(`[${name}]${authority}`));
}

/** @param text `name`, `name:port`, `[address]` or `[address]:port` */
function hostOf(text: string) {
  const [, name = '', digits = '5432'] = /^(\[.*\]|[^:]*)(?::(.*))?$/s.exec(text) ?? [];
  const port = /^\d{1,5}$/.test(digits) ? Number(digits) : 0;
  if (port === 0 || port > 65_535) throw new Expected(`${FORM_TEXT}, with a port up to 65535`);
  const bare = decodeURIComponent(name).replace(/^\[+|\]+$/g, '');
  return { name: bare || 'localhost', port };
}

/** Read once, so that a missing or wrong file is noticed at the start. */
function certificatesOf(values: Parameters) {
  const sslrootcert = values.get('sslrootcert');
  const sslcert = values.get('sslcert');
  const sslkey = values.get('sslkey');
  if (!sslcert !== !sslkey) throw new Expected('a URL with both sslcert and sslkey, or neither');
  try {
    const ca = sslrootcert && sslrootcert !== 'system' ? readFileSync(sslrootcert) : undefined;
    const cert = sslcert ? readFileSync(sslcert) : undefined;
    const key = sslkey ? readFileSync(sslkey) : undefined;
    const ends = [ca, cert].flatMap((pem) =>
      pem ? Date.parse(new X509Certificate(pem).validTo) : [],
    );
    if (ends.length === 0) return null;
    const context = createSecureContext({
      ca,
      cert,
      key,
    });
    // A secure context accepts an RSA key beside an EC certificate, and would send neither.
    if (cert && key && !new X509Certificate(cert).checkPrivateKey(createPrivateKey(key))) {
      throw Object.assign(new Error(), { code: 'ERR_OSSL_X509_KEY_TYPE_MISMATCH' });
    }
    return {
      context,
      endSeconds: Math.min(...ends) / 1000,
    };
  } catch (error) {
    throw new Expected(
      `a URL whose sslrootcert, sslcert and sslkey are PEM files that fit (${codeOf(error)})`,
    );
  }
}
