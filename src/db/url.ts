import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import { createSecureContext } from 'node:tls';
import { codeOf } from '../runtime/errors.ts';
import {
  Expected,
  Findings,
  matching,
  number,
  oneOf,
  readVariables,
  text,
  type Values,
} from '../runtime/variables.ts';

// Settings are read before the driver is loaded, so this file does not import it.

/** A name that begins with "/" is the directory of a Unix socket. */
export type Host = Readonly<{ name: string; port: number }>;

export const isThisHost = (host: string) =>
  host.startsWith('/') || ['localhost', '127.0.0.1', '::1'].includes(host);

export const hostList = (hosts: readonly Host[]) =>
  hosts.map(({ name, port }) => `${name}:${port}`).join();

export type DatabaseUrl = Readonly<ReturnType<typeof parse>>;

export type DatabaseAddress = DatabaseUrl &
  Readonly<{
    limits: Values<typeof DATABASE_LIMITS>;
    /** Throws if a file is missing or invalid. */
    reload: () => DatabaseUrl;
  }>;

/** In seconds. */
export const DATABASE_LIMITS = {
  /** The server ends a statement, and an idle transaction. */
  DATABASE_STATEMENT_TIMEOUT: number(10, 1, 300),
  /** A call that waits for a lock fails. */
  DATABASE_LOCK_TIMEOUT: number(10, 1, 300),
  /** A connection is closed if nothing arrives while a reply is due. */
  DATABASE_DEAD_AFTER: number(15, 2, 600),
};

/**
 * As in libpq: `prefer` encrypts if the server can, `require` insists, `verify-*` also check the
 * certificate.
 */
const SSL_MODES = ['disable', 'prefer', 'require', 'verify-ca', 'verify-full'] as const;

/** Parameters of a URL, as in libpq. `options` is known only to say what to do instead. */
const PARAMETERS = {
  sslmode: { ...oneOf('prefer', SSL_MODES), unset: null },
  sslrootcert: text(null),
  sslcert: text(null),
  sslkey: text(null),
  host: text(null),
  target_session_attrs: {
    ...oneOf('any', ['any', 'read-write', 'primary']),
    unset: null,
  },
  connect_timeout: number(5, 1, 99),
  application_name: text('gatehouse', matching(/^[ -~]{1,40}$/, 'at most 40 ASCII characters')),
  channel_binding: text(
    'prefer',
    matching(
      /^(disable|prefer)$/,
      '"prefer" or "disable": the database client has no channel binding. sslmode=verify-full prevents such attacks',
    ),
  ),
  options: text(
    null,
    () => 'absent, because poolers drop it; set what you need for the role: ALTER ROLE … SET …',
  ),
};

const FORM =
  /^postgres(?:ql)?:\/\/(?:([^:@/?#]*)(?::([^@/?#]*))?@)?([^@/?#]*)\/([^@/?#]+)(?:\?([^#]*))?$/;
const FORM_TEXT = 'postgres://user:password@host:5432/database';
const ESCAPES =
  'in the user and the password, write @ as %40, / as %2F, ? as %3F, # as %23 and % as %25';

/** What the value must be. */
class Invalid extends Error {}

/** Reads the value of DATABASE_URL. */
export function parseUrl(text: string) {
  try {
    return parse(text);
  } catch (error) {
    const credentials = text.slice(text.indexOf('//') + 2, Math.max(text.lastIndexOf('@'), 0));
    // Any other message could quote a part of the password.
    if (/[@/?#]/.test(credentials) || error instanceof URIError)
      return new Expected(`${FORM_TEXT}; ${ESCAPES}`);
    return new Expected(error instanceof Invalid ? error.message : FORM_TEXT);
  }
}

function parse(url: string) {
  const form = FORM.exec(url);
  // U+0000 ends a string in PostgreSQL's protocol: the rest would be read as another field.
  if (!form || /%00|\0/.test(url)) throw new Invalid(FORM_TEXT);
  const [, user = '', password = '', authority = '', database = '', query = ''] = form;
  const values = readQuery(query);
  const hosts = hostsOf(authority, values.host);
  return {
    hosts,
    database: decodeURIComponent(database),
    user: decodeURIComponent(user) || userInfo().username,
    password: decodeURIComponent(password),
    applicationName: values.application_name,
    connectSeconds: values.connect_timeout, // for each host
    sslmode: sslmodeOf(values, hosts),
    /** Null: Node's certificate authorities, and no certificate of the client. */
    certificates: certificatesOf(values),
    // Only one of several servers can be written to.
    target: values.target_session_attrs ?? (hosts.length > 1 ? 'read-write' : 'any'),
  };
}

type Parameters = Values<typeof PARAMETERS>;

function readQuery(query: string) {
  const given = new Map<string, string>();
  for (const pair of query.split('&').filter(Boolean)) {
    const [name = '', value = ''] = pair.split(/=(.*)/s);
    if (!Object.hasOwn(PARAMETERS, name)) {
      const accepted = Object.keys(PARAMETERS).filter((key) => key !== 'options');
      throw new Invalid(
        `a URL without the parameter "${name}"; the parameters are ${accepted.join(', ')}`,
      );
    }
    if (value === '' || given.has(name)) throw new Invalid(`a URL in which ${name} has one value`);
    given.set(name, decodeURIComponent(value));
  }
  const findings = new Findings();
  const values = readVariables(PARAMETERS, Object.fromEntries(given), findings);
  const [problem] = findings.problems;
  if (problem) throw new Invalid(`a URL whose ${problem.replace(/ must be (.*)\.$/s, ' is $1')}`);
  return values;
}

function sslmodeOf({ sslmode, sslrootcert, sslcert }: Parameters, hosts: readonly Host[]) {
  const mode = sslmode ?? (hosts.every(({ name }) => isThisHost(name)) ? 'disable' : 'prefer');
  const least = sslrootcert === 'system' ? 'verify-full' : 'require';
  const isWeaker = SSL_MODES.indexOf(mode) < SSL_MODES.indexOf(least);
  // Certificates would be ignored.
  if ((sslrootcert || sslcert) && isWeaker) {
    throw new Invalid('a URL with sslmode=verify-full beside its sslrootcert or sslcert');
  }
  return sslrootcert && mode === 'require' ? 'verify-ca' : mode;
}

/** @param names of the parameter `host`; their port is in the authority, as without it */
function hostsOf(authority: string, names: string | null) {
  if (names === null) return authority.split(',').map(hostOf);
  if (!/^(:|$)/.test(authority)) {
    throw new Invalid('a URL that names its hosts either before the database or in "host"');
  }
  const port = portOf(authority.slice(1) || undefined);
  return names.split(',').map((name) => ({ name: nameOf(name), port }));
}

/** @param text `name`, `name:port`, `[address]` or `[address]:port` */
function hostOf(text: string) {
  const [, name = '', port] = /^(\[.*\]|[^:]*)(?::(.*))?$/.exec(text) ?? ['', text, ''];
  return { name: nameOf(name), port: portOf(port) };
}

const nameOf = (text: string) =>
  decodeURIComponent(text).replace(/^\[(.*)\]$/, '$1') || 'localhost';

function portOf(text = '5432') {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  if (port === 0 || port > 65_535) throw new Invalid(`${FORM_TEXT}, with a port up to 65535`);
  return port;
}

/** Read once, so that a missing or wrong file is noticed at the start. */
function certificatesOf({ sslrootcert, sslcert, sslkey }: Parameters) {
  if (!sslcert !== !sslkey) throw new Invalid('a URL with both sslcert and sslkey, or neither');
  try {
    const ca = sslrootcert && sslrootcert !== 'system' ? readFileSync(sslrootcert) : undefined;
    const cert = sslcert ? readFileSync(sslcert) : undefined;
    const key = sslkey ? readFileSync(sslkey) : undefined;
    const ends = [ca, cert].flatMap((pem) =>
      pem ? Date.parse(new X509Certificate(pem).validTo) : [],
    );
    if (ends.length === 0) return null;
    const context = createSecureContext({ ca, cert, key });
    // A secure context accepts an RSA key beside an EC certificate, and would send neither.
    if (cert && key && !new X509Certificate(cert).checkPrivateKey(createPrivateKey(key))) {
      throw Object.assign(new Error(), { code: 'ERR_OSSL_X509_KEY_TYPE_MISMATCH' });
    }
    return {
      context,
      endSeconds: Math.min(...ends) / 1000,
    };
  } catch (error) {
    throw new Invalid(
      `a URL whose sslrootcert, sslcert and sslkey are PEM files that fit (${codeOf(error)})`,
    );
  }
}

/** A placeholder without hosts, so that the other settings are checked too. */
export const placeholderDatabase: DatabaseUrl = { ...parse(FORM_TEXT), hosts: [] };
