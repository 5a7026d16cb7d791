import {
  DATABASE_LIMITS,
  type DatabaseAddress,
  type DatabaseUrl,
  hostList,
  isThisHost,
  NO_DATABASE,
} from './db/address.ts';
import { networks } from './http/address.ts';
import type { ResponseStyle } from './http/server.ts';
import { LOG_LEVELS, type LogLevel } from './runtime/log.ts';
import {
  type Environment,
  Expected,
  Findings,
  matching,
  number,
  numberOrNull,
  oneOf,
  readVariables,
  SECRET_ADVICE,
  type SettingsInput,
  text,
  toggle,
  type Values,
  type Variable,
  type Variables,
} from './runtime/variables.ts';

/** What `<service>/settings.ts` exports. */
export interface ServiceSettings<V extends Variables, S> {
  readonly PORT: number;
  readonly STYLE: ResponseStyle;
  readonly VARIABLES: V;
  /** How names of this service begin: an unknown variable that begins so is an error. */
  readonly PREFIXES: readonly string[];
  /** HOST and PORT name this service's listener even if other services run beside it. */
  readonly OWNS_HOST_AND_PORT?: boolean;
  readonly needsDatabase?: (values: Values<V>) => boolean; // a service without this function always needs one
  readonly logFields?: (settings: S) => Readonly<Record<string, string>>; // of each of the service's log lines
  read(input: SettingsInput<V, DatabaseAddress>): S;
}

/** A service with the type of its settings folded in, so that different services fit one list. */
type ServiceReader<Use> = ReturnType<typeof serviceReader<Variables, unknown, Use>>;
export type ConfiguredService<Use> = ReturnType<ServiceReader<Use>['read']>;

/** All problems of the environment, one sentence each. */
export class ConfigurationError extends Error {
  override readonly name = 'ConfigurationError';
  readonly problems: readonly string[];
  constructor(problems: readonly string[]) {
    super(problems.join('\n'));
    // A variable that several services read is reported once.
    this.problems = [...new Set(problems)];
  }
}

/** The environment of this process. No other file uses `process.env`. */
export const ENVIRONMENT: Environment = process.env;

const checkLine = matching(/^\P{C}{1,300}$/u, 'one line of at most 300 characters');

const SHARED_VARIABLES = {
  DATABASE_URL: text(null),
  ...DATABASE_LIMITS,
  MIGRATE: toggle('on'),
  HOST: text('0.0.0.0'),
  PORT: numberOrNull(null, 0, 65_535),
  METRICS_HOST: text('127.0.0.1'),
  METRICS_PORT: numberOrNull(null, 0, 65_535),
  LOG_LEVEL: oneOf<LogLevel>('info', LOG_LEVELS),
  LOG_PROBES: toggle('off'),
  LOG_FORMAT: oneOf('auto', ['auto', 'json', 'text']),
  TRUSTED_PROXIES: networks(),
  TRUSTED_USER_HEADER: text(null, matching(/^[A-Za-z0-9-]{1,64}$/, 'the name of a header')),
  MAX_BODY_BYTES: number(65_536, 1_024, 16_777_216),
  SHUTDOWN_GRACE: number(10, 0, 600),
  IGNORE_VARIABLES: text(null),
  FIRST_CREDENTIALS_DIR: text(null),
  PASSWORD_HASHES: number(2, 1, 64),
  ALLOW_WEAK_SECRETS: toggle('off'),
  SITE_NAME: text('Gatehouse', checkLine),
  SITE_FOOTER: text(null, checkLine),
  SITE_COLOR: text(null, matching(/^#[0-9a-f]{6}$/i, 'a color such as #0a7d4b')),
  SITE_LOGO_FILE: text(null),
} as const;

/** Reads a database URL. Its module is loaded if such a variable is set. */
type UrlParser = (text: string) => DatabaseUrl | Expected;
const withUrl = <V extends Variables>(variables: V, parse: UrlParser) => ({
  ...variables,
  DATABASE_URL: { fallback: '–', unset: null, parse } satisfies Variable<DatabaseUrl | null>,
});
export const readShared = (environment: Environment, parseUrl: UrlParser, findings: Findings) =>
  readVariables(withUrl(SHARED_VARIABLES, parseUrl), environment, findings);

type Given = Omit<SettingsInput<Variables, DatabaseAddress>, 'values' | 'database' | 'userHeader'>;
/** `isAlone`: the only service of the process. */
type CommonInput = Given &
  Readonly<{ shared: ReturnType<typeof readShared>; parseUrl: UrlParser; isAlone: boolean }>;

const LINK = new Expected(
  'a port number, not a Kubernetes service link; set enableServiceLinks: false in the pod',
);

/** @param bind receives the settings; what it returns is the `use` of the configured service */
export function serviceReader<V extends Variables, S, Use>(
  name: string,
  module: ServiceSettings<V, S>,
  bind: (settings: S) => Use,
) {
  const prefix = `${name.toUpperCase()}_`;
  const port = numberOrNull(module.PORT, 0, 65_535);
  const address = {
    HOST: { ...text(null), fallback: '0.0.0.0' },
    // For a service named "identity", Kubernetes sets IDENTITY_PORT=tcp://… in every container of the namespace.
    PORT: {
      ...port,
      parse: (text: string) => (text.startsWith('tcp://') ? LINK : port.parse(text)),
    },
    DATABASE_URL: text(null),
  };
  const prefixed = Object.entries(address).map(([variable, one]) => [prefix + variable, one]);
  const variables: Variables = { ...Object.fromEntries(prefixed), ...module.VARIABLES };
  return {
    name,
    prefixes: [prefix, ...module.PREFIXES],
    /** The variables of the service, its listener and its database. */
    variables,
    read(
      environment: Environment,
      { shared, parseUrl, purpose, isAlone, foreign, findings }: CommonInput,
    ) {
      const own = readVariables(withUrl(address, parseUrl), environment, findings, prefix);
      const values = readVariables(module.VARIABLES, environment, findings);
      checkSecrets(module.VARIABLES, values, shared.ALLOW_WEAK_SECRETS, findings);
      const database = own.DATABASE_URL ?? shared.DATABASE_URL;
      if (purpose === 'administer' || (module.needsDatabase?.(values) ?? true)) {
        checkDatabase(`${prefix}DATABASE_URL`, database, findings);
      }
      const limited = {
        ...(database ?? NO_DATABASE),
        limits: readVariables(DATABASE_LIMITS, environment, findings),
      };
      const { TRUSTED_USER_HEADER: userHeader } = shared;
      const settings = module.read({
        values,
        database: limited,
        userHeader,
        purpose,
        foreign,
        findings,
      });
      const short = isAlone || module.OWNS_HOST_AND_PORT ? shared : { HOST: null, PORT: null };
      return {
        name,
        host: own.HOST ?? short.HOST ?? '0.0.0.0',
        port: own.PORT ?? short.PORT ?? module.PORT,
        style: module.STYLE,
        logFields: module.logFields?.(settings) ?? {},
        use: bind(settings),
      };
    },
  };
}

const ADVISED_LENGTH = 32;

/** Guesses at a secret are fast: it is compared, or keys are derived from it, without a slow hash. */
function checkSecrets(
  variables: Variables,
  values: Readonly<Record<string, unknown>>,
  allowsWeak: boolean,
  findings: Findings,
): void {
  for (const [name, { minLength }] of Object.entries(variables)) {
    if (minLength === undefined) continue;
    const length = Math.min(...[values[name] ?? []].flat().map((one) => String(one).length));
    const isTooShort = length < minLength && !allowsWeak;
    const fact = `${name} has fewer than ${isTooShort ? minLength : ADVISED_LENGTH} characters; ${SECRET_ADVICE}`;
    if (isTooShort)
      findings.problems.push(`${fact}. Only for tests, ALLOW_WEAK_SECRETS=on accepts it.`);
    else if (length < ADVISED_LENGTH) findings.warnings.push(fact);
  }
}

function checkDatabase(name: string, database: DatabaseUrl | null, findings: Findings): void {
  const remote = database?.hosts.filter((host) => !isThisHost(host.name)) ?? [];
  if (database && remote.length > 0 && ['disable', 'prefer'].includes(database.sslmode)) {
    const fact = `The connection to the database at ${hostList(remote)} may be unencrypted`;
    findings.warnings.push(`${fact}; add ?sslmode=verify-full to its URL.`);
  }
  if (database || findings.reports('DATABASE_URL') || findings.reports(name)) return;
  findings.problems.push(
    `${name} or DATABASE_URL must be set, as postgres://user:password@host:5432/database.`,
  );
}

/** Every variable of the process and of these services. The documentation is checked against it, both ways. */
export const allVariables = (
  readers: ReadonlyArray<Pick<ServiceReader<unknown>, 'variables'>>,
): Variables => Object.assign({}, SHARED_VARIABLES, ...readers.map(({ variables }) => variables));

/**
 * Reads the settings of a process from its environment.
 * @param all every service there is, because variables of services that do not run here are known, too
 * @throws ConfigurationError with every problem at once
 */
export function readSettings<Use>(
  all: ReadonlyArray<ServiceReader<Use>>,
  names: readonly string[],
  purpose: 'serve' | 'administer',
  parseUrl: UrlParser,
  environment = ENVIRONMENT,
) {
  const findings = new Findings();
  const { problems, warnings } = findings;
  const shared = readShared(environment, parseUrl, findings);
  const known = allVariables(all);
  const isKnown = (name: string) =>
    Object.hasOwn(known, name) || Object.hasOwn(known, name.replace(/_FILE$/, ''));
  const foreign = Object.fromEntries(
    Object.entries(environment).filter(([name]) => !isKnown(name)),
  );
  checkNames(foreign, Object.keys(known), all, shared.IGNORE_VARIABLES, problems);
  const unused = Object.keys(foreign).filter((name) => /^PG(?!DATA$)(CONNECT_)?[A-Z]+$/.test(name));
  if (unused.length > 0) warnings.push(`${unused.join(', ')}: not used. Set DATABASE_URL instead.`);
  if (shared.ALLOW_WEAK_SECRETS) warnings.push('ALLOW_WEAK_SECRETS is on: use it only for tests.');
  const readers = all.filter(({ name }) => names.includes(name));
  const common = { shared, parseUrl, purpose, isAlone: readers.length === 1, foreign, findings };
  const { DATABASE_STATEMENT_TIMEOUT: statement, DATABASE_DEAD_AFTER: dead } = shared;
  if (dead <= statement)
    problems.push('DATABASE_DEAD_AFTER must be more than DATABASE_STATEMENT_TIMEOUT.');
  const isUserBelieved =
    shared.TRUSTED_USER_HEADER === null || shared.TRUSTED_PROXIES.rules.length > 0;
  if (!isUserBelieved)
    problems.push('TRUSTED_USER_HEADER requires TRUSTED_PROXIES: no other sender is believed.');
  const services = readers.map((reader) => reader.read(environment, common));
  const { METRICS_HOST: host, METRICS_PORT: port } = shared;
  const metrics = port === null ? null : { name: 'metrics', host, port };
  const listeners = [...services, ...(metrics ? [metrics] : [])];
  for (const [index, { name, port }] of purpose === 'serve' ? listeners.entries() : []) {
    // Port 0 is any free port.
    const other = listeners.slice(0, index).find((one) => one.port === port && port !== 0);
    if (other)
      problems.push(
        `${other.name} and ${name} cannot both listen on port ${port}. Change one of them.`,
      );
  }
  if (problems.length > 0) throw new ConfigurationError(problems);
  /** `metrics` is null if they are not served; `warnings` are about allowed settings that an operator should know. */
  return { shared, metrics, services, warnings: [...new Set(warnings)] };
}

/** Rejects unknown names, because a misspelled variable would silently keep its default. */
function checkNames(
  foreign: Environment,
  known: readonly string[],
  readers: ReadonlyArray<ServiceReader<unknown>>,
  ignored: string | null,
  problems: string[],
): void {
  const { PGTARGETSESSIONATTRS: targets } = foreign;
  if (targets)
    problems.push(
      'PGTARGETSESSIONATTRS must not be set: use target_session_attrs in DATABASE_URL.',
    );
  const exempt = ['SESSION_MANAGER', ...(ignored ?? '').split(',').map((name) => name.trim())];
  const isServiceLink = new RegExp(
    `^(${readers.map(({ name }) => name.toUpperCase()).join('|')})_(SERVICE|PORT)_`,
  );
  const prefixes = readers.flatMap((reader) => reader.prefixes);
  for (const [name, value] of Object.entries(foreign)) {
    if (!value || exempt.includes(name) || isServiceLink.test(name)) continue;
    const bare = name.replace(/_FILE$/, '');
    // Short names are similar by chance: HOME is not a misspelled HOST.
    const similar = known.find(
      (one) => Math.min(bare.length, one.length) >= 6 && isWithin(2, bare, one),
    );
    const advice =
      similar === undefined ? 'Remove it' : `Did you mean ${similar}? If not, remove it`;
    if (name === 'WORKERS')
      problems.push('WORKERS was removed: run one process per container and add replicas.');
    else if (similar !== undefined || prefixes.some((prefix) => name.startsWith(prefix))) {
      problems.push(
        `${name} is not a variable of Gatehouse. ${advice}, or add it to IGNORE_VARIABLES.`,
      );
    }
  }
}

/** Whether at most so many inserted, removed or replaced letters turn one name into the other. */
export function isWithin(edits: number, a: string, b: string): boolean {
  if (a === b || Math.abs(a.length - b.length) > edits || edits === 0) return a === b;
  const [restA, restB] = [a.slice(1), b.slice(1)];
  if (a[0] === b[0]) return isWithin(edits, restA, restB);
  return (
    isWithin(edits - 1, restA, restB) ||
    isWithin(edits - 1, restA, b) ||
    isWithin(edits - 1, a, restB)
  );
}
