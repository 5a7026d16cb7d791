import { type DatabaseAddress, databaseUrl, isThisHost, NO_DATABASE } from './db/connection.ts';
import { networks } from './http/address.ts';
import type { ResponseStyle } from './http/server.ts';
import { LOG_LEVELS, type LogLevel } from './runtime/log.ts';
import {
  type Environment, Expected, Findings, number, numberOrNull, oneOf, readVariables, SECRET_ADVICE, type SettingsInput,
  text, toggle, type Values, type Variable, type Variables,
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
  /** A service without this function always needs a database. */
  readonly needsDatabase?: (values: Values<V>) => boolean;
  /** Members of each of the service's log lines. */
  readonly logFields?: (settings: S) => Readonly<Record<string, string>>;
  read(input: SettingsInput<V, DatabaseAddress>): S;
}

export interface Address {
  readonly host: string;
  readonly port: number;
}

/** A service whose settings have been read. */
export interface ConfiguredService<Use> extends Address {
  readonly name: string;
  readonly style: ResponseStyle;
  readonly logFields: Readonly<Record<string, string>>;
  /** What `bind` of `serviceReader` has made of the settings. */
  readonly use: Use;
}

/** A service with the type of its settings folded in, so that different services fit one list. */
export interface ServiceReader<Use> {
  readonly name: string;
  readonly prefixes: readonly string[];
  /** Its own variables, with those of its listener and its database. */
  readonly variables: Variables;
  read(environment: Environment, common: CommonInput): ConfiguredService<Use>;
}

/** What all services of a process have in common. */
export type ProcessSettings = ReturnType<typeof readSettings>['process'];

/** All that is wrong with the environment, one sentence each. */
export class ConfigurationError extends Error {
  override readonly name = 'ConfigurationError';
  readonly problems: readonly string[];
  constructor(problems: readonly string[]) {
    super(problems.join('\n'));
    // A variable that several services read is reported once.
    this.problems = [...new Set(problems)];
  }
}

/** Variables that belong to no single service. */
export const SHARED_VARIABLES = {
  DATABASE_URL: databaseUrl(),
  MIGRATE: toggle('on'),
  HOST: text('0.0.0.0'),
  PORT: numberOrNull(null, 0, 65_535),
  METRICS_HOST: text('127.0.0.1'),
  METRICS_PORT: numberOrNull(null, 0, 65_535),
  LOG_LEVEL: oneOf<LogLevel>('info', LOG_LEVELS),
  TRUSTED_PROXIES: networks(),
  MAX_BODY_BYTES: number(65_536, 1_024, 16_777_216),
  SHUTDOWN_GRACE: number(10, 0, 600),
  IGNORE_VARIABLES: text(null),
  FIRST_CREDENTIALS_DIR: text(null),
  PASSWORD_HASHES: number(2, 1, 64),
  ALLOW_WEAK_SECRETS: toggle('off'),
} as const;

/** Variables of earlier versions, with what to do instead. */
const REMOVED: Readonly<Record<string, string>> = { WORKERS: 'run one process per container and add replicas' };

interface CommonInput extends Omit<SettingsInput<Variables, DatabaseAddress>, 'values' | 'database'> {
  readonly shared: Values<typeof SHARED_VARIABLES>;
  /** The only service of the process. */
  readonly isAlone: boolean;
}

/** For a service named "identity", Kubernetes sets IDENTITY_PORT=tcp://… in every container of the namespace. */
function listenerPort(fallback: number): Variable<number | null> {
  const port = numberOrNull(fallback, 0, 65_535);
  const form = 'a port number, not a Kubernetes service link; set enableServiceLinks: false in the pod';
  return { ...port, parse: (text) => (text.startsWith('tcp://') ? new Expected(form) : port.parse(text)) };
}

export function serviceReader<V extends Variables, S, Use>(
  name: string, module: ServiceSettings<V, S>, bind: (settings: S) => Use,
): ServiceReader<Use> {
  const prefix = `${name.toUpperCase()}_`;
  const host = { ...text(null), fallback: '0.0.0.0' };
  const address = { HOST: host, PORT: listenerPort(module.PORT), DATABASE_URL: databaseUrl() };
  const prefixed = Object.entries(address).map(([variable, one]) => [prefix + variable, one]);
  return {
    name,
    prefixes: [prefix, ...module.PREFIXES],
    variables: { ...Object.fromEntries(prefixed), ...module.VARIABLES },
    read(environment, { shared, purpose, isAlone, foreign, findings }) {
      const own = readVariables(address, environment, findings, prefix);
      const values = readVariables(module.VARIABLES, environment, findings);
      checkSecrets(module.VARIABLES, values, shared.ALLOW_WEAK_SECRETS, findings);
      const database = own.DATABASE_URL ?? shared.DATABASE_URL;
      if (purpose === 'administer' || (module.needsDatabase?.(values) ?? true)) {
        if (database) warnIfUnencrypted(database, findings.warnings);
        else if (!findings.reports(`${prefix}DATABASE_URL`)) findings.missingDatabases.push(`${prefix}DATABASE_URL`);
      }
      const settings = module.read({ values, database: database ?? NO_DATABASE, purpose, foreign, findings });
      const hasShortNames = isAlone || module.OWNS_HOST_AND_PORT === true;
      return {
        name,
        host: own.HOST ?? (hasShortNames ? shared.HOST : null) ?? '0.0.0.0',
        port: own.PORT ?? (hasShortNames ? shared.PORT : null) ?? module.PORT,
        style: module.STYLE,
        logFields: module.logFields?.(settings) ?? {},
        use: bind(settings),
      };
    },
  };
}

const ADVISED_LENGTH = 32;

/** Nothing slows down a guess at a secret: it is compared, or keys are derived from it, without a slow hash. */
function checkSecrets(
  variables: Variables, values: Readonly<Record<string, unknown>>, allowsWeak: boolean, findings: Findings,
): void {
  for (const [name, { minLength }] of Object.entries(variables)) {
    if (minLength === undefined) continue;
    const length = Math.min(...[values[name] ?? []].flat().map((one) => String(one).length));
    const isTooShort = length < minLength && !allowsWeak;
    const fact = `${name} has fewer than ${isTooShort ? minLength : ADVISED_LENGTH} characters; ${SECRET_ADVICE}`;
    if (isTooShort) findings.problems.push(`${fact}. Only for tests, ALLOW_WEAK_SECRETS=on accepts it.`);
    else if (length < ADVISED_LENGTH) findings.warnings.push(fact);
  }
}

function warnIfUnencrypted({ host, sslmode }: DatabaseAddress, warnings: string[]): void {
  if (isThisHost(host) || !['disable', 'prefer'].includes(sslmode)) return;
  warnings.push(`The connection to the database at ${host} may be unencrypted; add ?sslmode=verify-full to its URL.`);
}

/** Every variable of the process and of these services. The documentation is checked against it, both ways. */
export const allVariables = (readers: ReadonlyArray<Pick<ServiceReader<unknown>, 'variables'>>): Variables =>
  Object.assign({}, SHARED_VARIABLES, ...readers.map(({ variables }) => variables));

/**
 * Reads the settings of a process from its environment.
 * @param all every service there is, because variables of services that do not run here are known, too
 * @param names the services to read
 * @throws ConfigurationError with every problem at once
 */
export function readSettings<Use>(
  all: ReadonlyArray<ServiceReader<Use>>,
  names: readonly string[],
  purpose: 'serve' | 'administer',
  environment: Environment = process.env,
) {
  const findings = new Findings();
  const known = allVariables(all);
  const shared = readVariables(SHARED_VARIABLES, environment, findings);
  checkNames(environment, known, all, shared.IGNORE_VARIABLES, findings.problems);
  const foreign: Record<string, string> = {};
  for (const [name, value] of Object.entries(environment)) {
    if (value !== undefined && !isKnown(name, known)) foreign[name] = value;
  }
  if (shared.ALLOW_WEAK_SECRETS) findings.warnings.push('ALLOW_WEAK_SECRETS is on: use it only for tests.');
  const readers = all.filter(({ name }) => names.includes(name));
  const common = { shared, purpose, isAlone: readers.length === 1, foreign, findings };
  const services = readers.map((reader) => reader.read(environment, common));
  const metricsPort = shared.METRICS_PORT;
  const metrics = metricsPort === null ? null : { host: shared.METRICS_HOST ?? '127.0.0.1', port: metricsPort };
  const listeners = [...services, ...(metrics ? [{ name: 'metrics', ...metrics }] : [])];
  if (purpose === 'serve') checkPorts(listeners, findings.problems);
  throwProblems(findings);
  return {
    process: {
      logLevel: shared.LOG_LEVEL,
      /** Where metrics are served; null: nowhere. */
      metrics,
      migrate: shared.MIGRATE,
      shutdownGraceMs: shared.SHUTDOWN_GRACE * 1000,
      trustedProxies: shared.TRUSTED_PROXIES,
      maxBodyBytes: shared.MAX_BODY_BYTES,
      /** Where generated credentials are written; null: they are printed. */
      firstCredentialsDir: shared.FIRST_CREDENTIALS_DIR,
      /** How many passwords are hashed at once, whichever service asks. */
      passwordHashes: shared.PASSWORD_HASHES,
      /** What is allowed, but should be known to an operator. */
      warnings: [...new Set(findings.warnings)],
    },
    services,
  } as const;
}

/** Reads the settings of one service for a command. @throws ConfigurationError with every problem at once */
export function readServiceSettings<V extends Variables, S>(name: string, module: ServiceSettings<V, S>): S {
  const findings = new Findings();
  const shared = readVariables(SHARED_VARIABLES, process.env, findings);
  const common = { shared, purpose: 'administer', isAlone: true, foreign: {}, findings } as const;
  const { use } = serviceReader(name, module, (settings) => settings).read(process.env, common);
  throwProblems(findings);
  return use;
}

/** Reads these variables alone. @throws ConfigurationError */
export function readTable<V extends Variables>(variables: V): Values<V> {
  const findings = new Findings();
  const values = readVariables(variables, process.env, findings);
  throwProblems(findings);
  return values;
}

function throwProblems(findings: Findings): void {
  const { problems, missingDatabases } = findings;
  if (missingDatabases.length > 0 && !findings.reports('DATABASE_URL')) {
    const names = missingDatabases.join(' and ');
    problems.push(`DATABASE_URL (or ${names}) must be set, as postgres://user:password@host:5432/database.`);
  }
  if (problems.length > 0) throw new ConfigurationError(problems);
}

/** Reported by name before anything listens. Port 0 is any free port. */
function checkPorts(listeners: ReadonlyArray<Address & { readonly name: string }>, problems: string[]): void {
  const byPort = new Map<number, string>();
  for (const { name, port } of listeners.filter((listener) => listener.port !== 0)) {
    const other = byPort.get(port);
    const problem = `${other} and ${name} cannot both listen on port ${port}. Change one of them.`;
    if (other !== undefined) problems.push(problem);
    byPort.set(port, name);
  }
}

const isKnown = (name: string, known: Variables): boolean =>
  Object.hasOwn(known, name) || Object.hasOwn(known, name.replace(/_FILE$/, ''));

/** A misspelled variable would silently leave its default in force. */
function checkNames(
  environment: Environment,
  known: Variables,
  readers: ReadonlyArray<Pick<ServiceReader<unknown>, 'name' | 'prefixes'>>,
  ignored: string | null,
  problems: string[],
): void {
  if (environment.PGTARGETSESSIONATTRS) {
    problems.push('PGTARGETSESSIONATTRS must not be set: the database client obeys it.');
  }
  const exempt = ['SESSION_MANAGER', ...(ignored ?? '').split(',').map((name) => name.trim())];
  const isServiceLink = new RegExp(`^(${readers.map(({ name }) => name.toUpperCase()).join('|')})_(SERVICE|PORT)_`);
  for (const [name, value] of Object.entries(environment)) {
    if (!value || isKnown(name, known) || exempt.includes(name) || isServiceLink.test(name)) continue;
    const similar = Object.keys(known).find((one) => isMisspelled(name.replace(/_FILE$/, ''), one));
    const isOurs = readers.some(({ prefixes }) => prefixes.some((prefix) => name.startsWith(prefix)));
    const advice = similar === undefined ? 'Remove it' : `Did you mean ${similar}? If not, remove it`;
    if (REMOVED[name] !== undefined) problems.push(`${name} was removed: ${REMOVED[name]}.`);
    else if (similar !== undefined || isOurs) {
      problems.push(`${name} is not a variable of Gatehouse. ${advice}, or add it to IGNORE_VARIABLES.`);
    }
  }
}

/** At most two edits apart. Short names are similar by chance: HOME is not a misspelled HOST. */
function isMisspelled(name: string, known: string): boolean {
  if (Math.min(name.length, known.length) < 6 || Math.abs(name.length - known.length) > 2) return false;
  let distances = Array.from({ length: known.length + 1 }, (_, index) => index);
  for (const [row, letter] of [...name].entries()) {
    const next = [row + 1];
    for (const [column, other] of [...known].entries()) {
      const replaced = (distances[column] ?? 0) + (letter === other ? 0 : 1);
      next.push(Math.min(replaced, (distances[column + 1] ?? 0) + 1, (next[column] ?? 0) + 1));
    }
    distances = next;
  }
  return (distances[known.length] ?? 0) <= 2;
}
