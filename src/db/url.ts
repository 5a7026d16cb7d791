import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import { createSecureContext, type SecureContext } from 'node:tls';
import { type DatabaseUrl, type Host, isThisHost, SSL_MODES, TARGETS } from './address.ts';
import { codeOf } from '../runtime/errors.ts';
import { Expected, Findings, number, oneOf, readVariables, text } from '../runtime/variables.ts';

/** Parameters of a URL, as in libpq. */
const PARAMETERS = {
  sslmode: { ...oneOf('prefer', SSL_MODES), unset: null },
  sslrootcert: text(null),
  sslcert: text(null),
  sslkey: text(null),
  host: text(null),
  target_session_attrs: { ...oneOf('any', TARGETS), unset: null },
  connect_timeout: number(5, 1, 99),
  application_name: text('gatehouse', (name) =>
    /^[ -~]{1,40}$/.test(name) ? null : 'at most 40 ASCII characters',
  ),
  channel_binding: text('prefer', (value) =>
    /^(disable|prefer)$/.test(value)
      ? null
      : '"prefer" or "disable": the database client has no channel binding. sslmode=verify-full prevents such attacks',
  ),
  options: text(
    null,
    () => 'absent, because poolers drop it; set what you need for the role: ALTER ROLE … SET …',
  ),
} as const;

const FORM =
  /^postgres(?:ql)?:\/\/(?:([^:@/?#]*)(?::([^@/?#]*))?@)?([^@/?#]*)\/([^@/?#]+)(?:\?([^#]*))?$/;
const FORM_TEXT = 'postgres://user:password@host:5432/database';
const ESCAPES =
  'in the user and the password, write @ as %40, / as %2F, ? as %3F, # as %23 and % as %25';

class Invalid extends Error {}
function check(isValid: boolean, form: string): void {
  if (!isValid) throw new Invalid(form);
}

/** Reads the value of DATABASE_URL. */
export function parseUrl(text: string): DatabaseUrl | Expected {
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

function parse(url: string): DatabaseUrl {
  const [isUrl, user = '', password = '', authority = '', database = '', query = ''] =
    FORM.exec(url) ?? [];
  // U+0000 ends a string in PostgreSQL's protocol: the rest would be read as another field.
  check(isUrl !== undefined && !/%00|\0/.test(url), FORM_TEXT);
  const given = new Map<string, string>();
  for (const [name = '', value = ''] of query
    .split('&')
    .filter(Boolean)
    .map((pair) => pair.split(/=(.*)/s))) {
    const isKnown = Object.hasOwn(PARAMETERS, name);
    check(
      isKnown,
      `a URL without the parameter "${name}"; the parameters are ${Object.keys(PARAMETERS).join(', ')}`,
    );
    check(value !== '' && !given.has(name), `a URL in which ${name} has one value`);
    given.set(name, decodeURIComponent(value));
  }
  const findings = new Findings();
  const values = readVariables(PARAMETERS, Object.fromEntries(given), findings);
  for (const problem of findings.problems)
    check(false, `a URL whose ${problem.replace('must be', 'is').slice(0, -1)}`);
  const hosts = hostsOf(authority, values.host?.split(','));
  const mode =
    values.sslmode ?? (hosts.every(({ name }) => isThisHost(name)) ? 'disable' : 'prefer');
  const least =
    values.sslrootcert === 'system'
      ? 'verify-full'
      : /&?ssl(root)?cert=/.test(query)
        ? 'require'
        : mode;
  const isEnough = SSL_MODES.indexOf(mode) >= SSL_MODES.indexOf(least);
  check(isEnough, 'a URL with sslmode=verify-full beside its sslrootcert or sslcert');
  return {
    hosts,
    database: decodeURIComponent(database),
    user: decodeURIComponent(user) || userInfo().username,
    password: decodeURIComponent(password),
    applicationName: values.application_name,
    connectSeconds: values.connect_timeout,
    sslmode: values.sslrootcert && mode === 'require' ? 'verify-ca' : mode,
    certificates: certificatesOf(values.sslrootcert, values.sslcert, values.sslkey),
    // Of several servers, only one can be written to.
    target: values.target_session_attrs ?? (hosts.length > 1 ? 'read-write' : 'any'),
  };
}

/** @param names of the parameter `host`. Their port is in the authority, as without that parameter. */
function hostsOf(authority: string, names: readonly string[] | undefined): readonly Host[] {
  check(
    !names || /^(:|$)/.test(authority),
    'a URL that names its hosts either before the database or in "host"',
  );
  const pairs =
    names?.map((name) => ['', name, authority.slice(1) || undefined]) ??
    authority.split(',').map((one) => /^(\[.*\]|[^:]*)(?::(.*))?$/.exec(one) ?? ['', one, '']);
  return pairs.map(([, name = '', port = '5432']) => {
    check(
      /^\d{1,5}$/.test(port) && Number(port) > 0 && Number(port) < 65_536,
      `${FORM_TEXT}, with a port up to 65535`,
    );
    return {
      name: decodeURIComponent(name).replace(/^\[(.*)\]$/, '$1') || 'localhost',
      port: Number(port),
    };
  });
}

/** Read once, so that a missing or wrong file is noticed at the start. */
function certificatesOf(
  root: string | null,
  certificate: string | null,
  key: string | null,
): SecureContext | null {
  check(!certificate === !key, 'a URL with both sslcert and sslkey, or neither');
  try {
    const ca = root && root !== 'system' ? readFileSync(root) : undefined;
    if (ca) new X509Certificate(ca); // `createSecureContext` ignores a file without a certificate
    const own =
      certificate && key ? { cert: readFileSync(certificate), key: readFileSync(key) } : undefined;
    return ca || own ? createSecureContext({ ...(ca && { ca }), ...own }) : null;
  } catch (error) {
    throw new Invalid(
      `a URL whose sslrootcert, sslcert and sslkey are PEM files that fit (${codeOf(error)})`,
    );
  }
}
