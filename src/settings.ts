import {
  DATABASE_LIMITS,
  type DatabaseAddress,
  type DatabaseUrl,
  hostList,
  isThisHost,
  parseUrl,
  placeholderDatabase,
} from './db/url.ts';
import { checkForeignNames, foreignVariables, type VariableNames } from './foreign-variables.ts';
import { networks } from './http/address.ts';
import { logoProblem } from './http/pages.ts';
import type { ResponseStyle } from './http/route.ts';
import { Unavailable } from './runtime/errors.ts';
import { LOG_LEVELS, type LogLevel } from './runtime/log.ts';
import {
  type Environment,
  Expected,
  Findings,
  list,
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
export type ServiceSettings<V extends Variables, S> = Readonly<{
  PORT: number;
  STYLE: ResponseStyle;
  VARIABLES: V;
  /** How names of this service begin: an unknown variable that begins so is an error. */
  PREFIXES: readonly string[];
  /** Removed variables, with what to do instead. */
  REMOVED?: Readonly<Record<string, string>>;
  /** HOST and PORT name this service's listener even if other services run beside it. */
  OWNS_HOST_AND_PORT?: boolean;
  /** In each of the service's log lines. */
  logFields?: (settings: S) => Readonly<Record<string, string>>;
  read: (input: SettingsInput<V, DatabaseAddress>) => S;
}>;

/** All problems of the environment, one sentence each. */
export class ConfigurationError extends Error {
  override readonly name = 'ConfigurationError';
  readonly problems: readonly string[];
  constructor(problems: readonly string[]) {
    // A variable that several services read is reported once.
    const distinct = [...new Set(problems)];
    super(distinct.join('\n'));
    this.problems = distinct;
  }
}

/** For main.ts, which passes it on. No other file uses `process.env`. */
export const processEnvironment: Environment = process.env;

const checkHeader = matching(/^[A-Za-z0-9-]{1,64}$/, 'the name of a header');
const checkLine = matching(/^\P{C}{1,300}$/u, 'one line of at most 300 characters');
const databaseUrl: Variable<DatabaseUrl | null> = {
  fallback: '–',
  unset: null,
  parse: parseUrl,
};

const SMALL_CONTAINER_BYTES = 256 * 2 ** 20;

/**
 * How many hashes run at once. Each takes 32 MiB by default: in a small container, two leave too
 * little memory for the rest of the process, which the kernel would end.
 * @param limit bytes that the kernel allows this process; 0 if that is not known
 */
export function hashes(limit = 0): Variable<number> {
  const usual = number(2, 1, 64);
  const isSmall = limit > 0 && limit < SMALL_CONTAINER_BYTES;
  return isSmall ? { ...usual, unset: 1 } : usual;
}

const port = (fallback: number | null) => numberOrNull(fallback, 0, 65_535);

const SHARED_VARIABLES = {
  DATABASE_URL: databaseUrl,
  ...DATABASE_LIMITS,
  MIGRATE: toggle('on'),
  HOST: text('0.0.0.0'),
  PORT: port(null),
  METRICS_HOST: text('127.0.0.1'),
  METRICS_PORT: port(null),
  LOG_LEVEL: oneOf<LogLevel>('info', LOG_LEVELS),
  LOG_PROBES: toggle('off'),
  LOG_FORMAT: oneOf('auto', ['auto', 'json', 'text']),
  TRUSTED_PROXIES: networks,
  TRUSTED_USER_HEADER: text(null, checkHeader),
  TRUSTED_GROUPS_HEADER: text(null, checkHeader),
  SIGNIN_VERIFY_URL: text(
    null,
    matching(/^https?:\/\/[^\s/?#@]+\/\S+$/, 'the http or https address of the verify endpoint'),
  ),
  MAX_BODY_BYTES: number(65_536, 1_024, 16_777_216),
  SHUTDOWN_DELAY: number(5, 0, 600),
  SHUTDOWN_GRACE: number(10, 0, 600),
  IGNORE_VARIABLES: list(),
  FIRST_CREDENTIALS_DIR: text(null),
  PASSWORD_HASHES: hashes(process.constrainedMemory()),
  ALLOW_WEAK_SECRETS: toggle('off'),
  SITE_NAME: text('Gatehouse', checkLine),
  SITE_FOOTER: text(null, checkLine),
  SITE_LINKS: list(matching(/^[^=]+=https?:\/\/\S+$/, 'a name, = and an http or https address')),
  SITE_COLOR: text(null, matching(/^#[0-9a-f]{6}$/i, 'a color such as #0a7d4b')),
  SITE_LOGO_FILE: text(null, logoProblem),
} as const;
export type Shared = Values<typeof SHARED_VARIABLES>;
export const readShared = (environment: Environment, findings: Findings) =>
  readVariables(SHARED_VARIABLES, environment, findings);

const LINK = new Expected(
  'a port number, not a Kubernetes service link; set enableServiceLinks: false in the pod',
);

type Purpose = 'serve' | 'administer';
/** `isAlone`: the only service of the process. `foreign`: variables that are not Gatehouse's. */
export type ProcessSettings = Readonly<{
  environment: Environment;
  shared: Shared;
  purpose: Purpose;
  isAlone: boolean;
  foreign: Environment;
  findings: Findings;
}>;

export function serviceReader<V extends Variables, S>(name: string, module: ServiceSettings<V, S>) {
  const prefix = `${name.toUpperCase()}_`;
  /** Read under the prefix. */
  const own = {
    HOST: { ...text(null), fallback: '0.0.0.0' },
    PORT: {
      ...port(module.PORT),
      // For a service named "identity", Kubernetes sets IDENTITY_PORT=tcp://… in every container.
      parse: (value: string) => (value.startsWith('tcp://') ? LINK : port(null).parse(value)),
    },
    DATABASE_URL: databaseUrl,
  };
  const prefixed = Object.entries(own).map(([variable, one]) => [prefix + variable, one]);
  const variables: Variables = { ...Object.fromEntries(prefixed), ...module.VARIABLES };
  return {
    name,
    prefixes: [prefix, ...module.PREFIXES],
    removed: module.REMOVED ?? {},
    variables,
    read({ environment, shared, purpose, isAlone, foreign, findings }: ProcessSettings) {
      const { HOST, PORT, DATABASE_URL } = readVariables(own, environment, findings, prefix);
      const values = readVariables(module.VARIABLES, environment, findings);
      checkSecrets(module.VARIABLES, values, shared.ALLOW_WEAK_SECRETS, findings);
      const settings = module.read({
        values,
        requireDatabase() {
          const url = DATABASE_URL ?? shared.DATABASE_URL;
          checkDatabase(`${prefix}DATABASE_URL`, url, findings);
          return {
            ...(url ?? placeholderDatabase),
            limits: readVariables(DATABASE_LIMITS, environment, findings),
            reload() {
              const again = new Findings();
              const read = readVariables(own, environment, again, DATABASE_URL ? prefix : '');
              if (!read.DATABASE_URL) throw new Unavailable(again.problems.join(' '));
              return read.DATABASE_URL;
            },
          };
        },
        userSource: shared,
        purpose,
        foreign,
        findings,
      });
      // The prefixed name wins. HOST and PORT are for the only service, or the one that owns them.
      const usesShared = isAlone || module.OWNS_HOST_AND_PORT;
      const listener = usesShared ? shared : { HOST: '0.0.0.0', PORT: null };
      return {
        name,
        host: HOST ?? listener.HOST,
        port: PORT ?? listener.PORT ?? module.PORT,
        style: module.STYLE,
        logFields: module.logFields?.(settings),
        settings,
      };
    },
  };
}

const ADVISED_LENGTH = 32;

/**
 * Guesses at a secret are fast: it is compared, or keys are derived from it, without a slow hash.
 */
function checkSecrets(
  variables: Variables,
  values: Readonly<Record<string, unknown>>,
  allowsWeak: boolean,
  findings: Findings,
) {
  for (const [name, { minLength }] of Object.entries(variables)) {
    if (minLength === undefined) continue;
    // One secret, several earlier ones, or none, whose least length is infinite.
    const given = [values[name] ?? []].flat();
    const length = Math.min(...given.map((value) => String(value).length));
    if (length < minLength && !allowsWeak) {
      findings.problems.push(
        `${name} has fewer than ${minLength} characters; ${SECRET_ADVICE}. Only for tests, ALLOW_WEAK_SECRETS=on accepts it.`,
      );
    } else if (length < ADVISED_LENGTH) {
      findings.warnings.push(
        `${name} has fewer than ${ADVISED_LENGTH} characters; ${SECRET_ADVICE}`,
      );
    }
  }
}

function checkDatabase(name: string, database: DatabaseUrl | null, findings: Findings) {
  if (!database) {
    if (findings.reports('DATABASE_URL') || findings.reports(name)) return;
    findings.problems.push(
      `${name} or DATABASE_URL must be set, as postgres://user:password@host:5432/database.`,
    );
    return;
  }
  const remote = database.hosts.filter((host) => !isThisHost(host.name));
  if (remote.length > 0 && ['disable', 'prefer'].includes(database.sslmode)) {
    findings.warnings.push(
      `The connection to the database at ${hostList(remote)} may be unencrypted; add ?sslmode=verify-full to its URL.`,
    );
  }
}

/**
 * Every variable of the process and of these services. The documentation is checked against it,
 * both ways.
 */
export const allVariables = (services: readonly VariableNames[]): Variables =>
  Object.assign({}, SHARED_VARIABLES, ...services.map(({ variables }) => variables));

/**
 * Reads the settings of a process.
 * @param all every service there is: the variables of those that do not run here are known, too
 * @param names of the services that run here; none for all
 * @returns `metrics` is null if they are not served; `warnings` are about allowed settings that an
 * operator should know
 * @throws ConfigurationError with every problem at once
 */
export function readSettings<Configured>(
  all: ReadonlyArray<VariableNames & Readonly<{ read: (settings: ProcessSettings) => Configured }>>,
  names: readonly string[],
  purpose: Purpose,
  environment: Environment,
) {
  const findings = new Findings();
  const shared = readShared(environment, findings);
  const known = allVariables(all);
  const foreign = foreignVariables(environment, known);
  findings.problems.push(...checkForeignNames(foreign, known, all, shared.IGNORE_VARIABLES));
  checkShared(shared, findings);
  const readers = all.filter(({ name }) => names.length === 0 || names.includes(name));
  const services = readers.map((reader) =>
    reader.read({
      environment,
      shared,
      purpose,
      isAlone: readers.length === 1,
      foreign,
      findings,
    }),
  );
  const { METRICS_HOST: host, METRICS_PORT } = shared;
  const metrics = METRICS_PORT === null ? null : { name: 'metrics', host, port: METRICS_PORT };
  if (findings.problems.length > 0) throw new ConfigurationError(findings.problems);
  return { shared, metrics, services, warnings: [...new Set(findings.warnings)] };
}

/** Rules that concern several variables of the process. */
function checkShared(shared: Shared, { problems, warnings }: Findings) {
  if (shared.DATABASE_DEAD_AFTER <= shared.DATABASE_STATEMENT_TIMEOUT)
    problems.push('DATABASE_DEAD_AFTER must be more than DATABASE_STATEMENT_TIMEOUT.');
  if (shared.TRUSTED_USER_HEADER !== null && shared.TRUSTED_PROXIES.rules.length === 0)
    problems.push('TRUSTED_USER_HEADER requires TRUSTED_PROXIES: no other sender is believed.');
  if (shared.TRUSTED_GROUPS_HEADER !== null && shared.TRUSTED_USER_HEADER === null)
    problems.push('TRUSTED_GROUPS_HEADER requires TRUSTED_USER_HEADER.');
  if (shared.ALLOW_WEAK_SECRETS) warnings.push('ALLOW_WEAK_SECRETS is on: use it only for tests.');
}
