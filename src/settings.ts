import type { BlockList } from 'node:net';
import { HASHING_VARIABLES } from './crypto/password.ts';
import { type DatabaseAddress, databaseUrl, isThisHost, NO_DATABASE } from './db/connection.ts';
import { networks } from './http/address.ts';
import type { ResponseStyle } from './http/server.ts';
import { LOG_LEVELS, type LogLevel } from './runtime/log.ts';
import {
  type Environment, Findings, number, numberOrNull, oneOf, readVariables, type SettingsInput, text, toggle, type Values,
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
  /** A service without this always needs a database. */
  readonly needsDatabase?: (values: Values<V>) => boolean;
  /** Members of each of the service's log lines. */
  readonly logFields?: (settings: S) => Readonly<Record<string, string>>;
  read(input: SettingsInput<V, DatabaseAddress>): S;
}

/** Where a listener is. */
export interface Place {
  readonly host: string;
  readonly port: number;
}

/** A service whose settings are read. @typeParam Use what `serve` makes of them */
export interface ConfiguredService<Use> extends Place {
  readonly name: string;
  readonly style: ResponseStyle;
  readonly logFields: Readonly<Record<string, string>>;
  readonly use: Use;
}

/** A service with the types of its settings folded in, so that different services fit one list. */
export interface ServiceReader<Use> {
  readonly name: string;
  readonly prefixes: readonly string[];
  /** Its own variables, those of its listener and database included. */
  readonly variables: Variables;
  read(environment: Environment, process: ReadInput): ConfiguredService<Use>;
}

/** What all services of a process have in common. */
export interface ProcessSettings {
  readonly logLevel: LogLevel;
  /** Where metrics are served; null: nowhere. */
  readonly metrics: Place | null;
  readonly migrate: boolean;
  readonly shutdownGraceMs: number;
  readonly trustedProxies: BlockList;
  readonly maxBodyBytes: number;
  /** How many passwords are hashed at once, whichever service asks. */
  readonly passwordHashes: number;
  /** What is allowed, but should be known to an operator. */
  readonly warnings: readonly string[];
}

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
  ...HASHING_VARIABLES,
} as const;

/** Variables of earlier versions, with what to do instead. */
const REMOVED: Readonly<Record<string, string>> = {
  WORKERS: 'run one process per container and add replicas',
};

interface ReadInput {
  readonly shared: Values<typeof SHARED_VARIABLES>;
  readonly purpose: 'serve' | 'administer';
  /** The only service of the process. */
  readonly isAlone: boolean;
  readonly foreign: Readonly<Record<string, string>>;
  readonly findings: Findings;
  /** Gets the name of the variable that each service without a database lacks. */
  readonly missingDatabases: string[];
}

/** The variables that every service has behind its name, such as `IDENTITY_HOST`. */
const placeVariables = (port: number) =>
  ({
    HOST: { ...text(null), fallback: '0.0.0.0' },
    PORT: numberOrNull(port, 0, 65_535),
    DATABASE_URL: databaseUrl(),
  }) as const;

export function serviceReader<V extends Variables, S, Use>(
  name: string,
  module: ServiceSettings<V, S>,
  bind: (settings: S) => Use,
): ServiceReader<Use> {
  const prefix = `${name.toUpperCase()}_`;
  const place = placeVariables(module.PORT);
  const named = Object.entries(place).map(([variable, one]) => [prefix + variable, one]);
  return {
    name,
    prefixes: [prefix, ...module.PREFIXES],
    variables: { ...Object.fromEntries(named), ...module.VARIABLES },
    read(environment, { shared, purpose, isAlone, foreign, findings, missingDatabases }) {
      const own = readVariables(place, environment, findings, prefix);
      const values = readVariables(module.VARIABLES, environment, findings);
      const database = own.DATABASE_URL ?? shared.DATABASE_URL;
      const needsDatabase = purpose === 'administer' || (module.needsDatabase?.(values) ?? true);
      if (!database && needsDatabase && !findings.reports(`${prefix}DATABASE_URL`)) {
        missingDatabases.push(`${prefix}DATABASE_URL`);
      }
      if (database && needsDatabase) warnIfUnencrypted(database, findings);
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

function warnIfUnencrypted({ host, sslmode }: DatabaseAddress, { warnings }: Findings): void {
  if (isThisHost(host) || !['disable', 'prefer'].includes(sslmode)) return;
  const warning = `The connection to the database at ${host} may be unencrypted; add ?sslmode=verify-full to its URL.`;
  if (!warnings.includes(warning)) warnings.push(warning);
}

/** Every variable of the process and of these services. The documentation's table is checked against it, both ways. */
export const allVariables = (readers: ReadonlyArray<Pick<ServiceReader<unknown>, 'variables'>>): Variables =>
  Object.assign({}, SHARED_VARIABLES, ...readers.map(({ variables }) => variables));

/**
 * Reads the settings of a process from its environment.
 * @param all every service there is: also variables of services that do not run here are known
 * @param names the services to read
 * @throws ConfigurationError with every problem at once
 */
export function readSettings<Use>(
  all: ReadonlyArray<ServiceReader<Use>>,
  names: readonly string[],
  purpose: 'serve' | 'administer',
  environment: Environment = process.env,
): { readonly process: ProcessSettings; readonly services: ReadonlyArray<ConfiguredService<Use>> } {
  const findings = new Findings();
  const { problems } = findings;
  const known = allVariables(all);
  const shared = readVariables(SHARED_VARIABLES, environment, findings);
  checkNames(environment, known, all, shared.IGNORE_VARIABLES, problems);
  const foreign = Object.fromEntries(
    Object.entries(environment).flatMap(([name, value]) => (value === undefined || isKnown(name, known) ? [] : [[name, value]])),
  );
  const missingDatabases: string[] = [];
  const input = { shared, purpose, isAlone: names.length === 1, foreign, findings, missingDatabases };
  const services = all.filter(({ name }) => names.includes(name)).map((reader) => reader.read(environment, input));
  requireDatabases(missingDatabases, findings);
  const metrics = shared.METRICS_PORT === null ? null : { host: shared.METRICS_HOST ?? '127.0.0.1', port: shared.METRICS_PORT };
  if (purpose === 'serve') checkPorts([...services, ...(metrics ? [{ name: 'metrics', ...metrics }] : [])], problems);
  if (problems.length > 0) throw new ConfigurationError(problems);
  return {
    process: {
      logLevel: shared.LOG_LEVEL,
      metrics,
      migrate: shared.MIGRATE,
      shutdownGraceMs: shared.SHUTDOWN_GRACE * 1000,
      trustedProxies: shared.TRUSTED_PROXIES,
      maxBodyBytes: shared.MAX_BODY_BYTES,
      passwordHashes: shared.PASSWORD_HASHES,
      warnings: findings.warnings,
    },
    services,
  };
}

/**
 * Reads what a command needs of one service: its settings, and where its database is.
 * @throws ConfigurationError with every problem at once
 */
export function readServiceSettings<V extends Variables, S>(
  name: string,
  module: ServiceSettings<V, S>,
  environment: Environment = process.env,
): S {
  const findings = new Findings();
  const shared = readVariables(SHARED_VARIABLES, environment, findings);
  const missingDatabases: string[] = [];
  const input = { shared, purpose: 'administer', isAlone: true, foreign: {}, findings, missingDatabases } as const;
  const { use } = serviceReader(name, module, (settings) => settings).read(environment, input);
  requireDatabases(missingDatabases, findings);
  if (findings.problems.length > 0) throw new ConfigurationError(findings.problems);
  return use;
}

/** Reads these variables alone. @throws ConfigurationError */
export function readTable<V extends Variables>(variables: V, environment: Environment = process.env): Values<V> {
  const findings = new Findings();
  const values = readVariables(variables, environment, findings);
  if (findings.problems.length > 0) throw new ConfigurationError(findings.problems);
  return values;
}

/** One sentence for all services that have no database. */
function requireDatabases(missing: readonly string[], findings: Findings): void {
  if (missing.length === 0 || findings.reports('DATABASE_URL')) return;
  findings.problems.push(`DATABASE_URL (or ${missing.join(' and ')}) must be set, as postgres://user:password@host:5432/database.`);
}

/** Reported by name before anything listens. Port 0 is any free port. */
function checkPorts(places: ReadonlyArray<Place & { readonly name: string }>, problems: string[]): void {
  const byPort = new Map<number, string>();
  for (const { name, port } of places.filter((place) => place.port !== 0)) {
    const other = byPort.get(port);
    if (other !== undefined) problems.push(`${other} and ${name} cannot both listen on port ${port}; change one of them.`);
    byPort.set(port, name);
  }
}

const isKnown = (name: string, known: Variables): boolean =>
  Object.hasOwn(known, name) || Object.hasOwn(known, name.replace(/_FILE$/, ''));

/** A misspelled variable would leave its default in force without a word. */
function checkNames(
  environment: Environment,
  known: Variables,
  readers: ReadonlyArray<Pick<ServiceReader<unknown>, 'name' | 'prefixes'>>,
  ignored: string | null,
  problems: string[],
): void {
  if (environment.PGTARGETSESSIONATTRS) problems.push('PGTARGETSESSIONATTRS must not be set: the database client would obey it.');
  const exempt = new Set(['SESSION_MANAGER', ...(ignored ?? '').split(',').map((name) => name.trim())]);
  const services = readers.map(({ name }) => name.toUpperCase()).join('|');
  const isServiceLink = new RegExp(`^(${services})_(SERVICE|PORT)_`);
  const prefixes = readers.flatMap((reader) => reader.prefixes);
  for (const [name, value] of Object.entries(environment)) {
    if (!value || exempt.has(name) || isServiceLink.test(name)) continue;
    if (Object.hasOwn(REMOVED, name)) problems.push(`${name} was removed: ${REMOVED[name]}.`);
    if (isKnown(name, known) || Object.hasOwn(REMOVED, name)) continue;
    const similar = Object.keys(known).find((one) => isMisspelled(name.replace(/_FILE$/, ''), one));
    if (similar === undefined && !prefixes.some((prefix) => name.startsWith(prefix))) continue;
    const advice = similar === undefined ? 'Remove it' : `Did you mean ${similar}? If not, remove it`;
    problems.push(`${name} is not a variable of Gatehouse. ${advice}, or add it to IGNORE_VARIABLES.`);
  }
}

/** Whether the names are at most two edits apart. Short names are too similar by chance: HOME is not a misspelled HOST. */
function isMisspelled(name: string, known: string): boolean {
  if (Math.min(name.length, known.length) < 6 || Math.abs(name.length - known.length) > 2) return false;
  let row = Array.from({ length: known.length + 1 }, (_, index) => index);
  for (const [index, letter] of [...name].entries()) {
    const next = [index + 1];
    for (let at = 1; at <= known.length; at += 1) {
      const replaced = (row[at - 1] ?? 0) + (letter === known[at - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[at] ?? 0) + 1, (next[at - 1] ?? 0) + 1));
    }
    row = next;
  }
  return (row[known.length] ?? 0) <= 2;
}
