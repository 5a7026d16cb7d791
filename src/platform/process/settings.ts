import { BlockList } from 'node:net';
import {
  type DatabaseAddress,
  type DatabaseLimits,
  type DatabaseUrl,
  hostList,
  isThisHost,
  parseUrl,
  placeholderDatabase,
  readLimits,
} from '../db/url.ts';
import { parseNetworks } from '../http/wire/address.ts';
import { readLogo } from '../http/site/pages.ts';
import type { ResponseStyle } from '../http/route/route.ts';
import {
  anyText,
  Env,
  type Environment,
  Expected,
  list,
  matching,
  oneOf,
  type Purpose,
  satisfying,
  type SettingsInput,
  toggle,
  wholeNumber,
} from '../runtime/env.ts';
import { Unavailable } from '../runtime/errors.ts';
import { LOG_LEVELS } from '../runtime/log.ts';
import { checkNames, foreignVariables, type ServiceNames } from './variable-names.ts';

/** What `<service>/settings.ts` exports. */
export type ServiceSettings<Settings> = Readonly<{
  PORT: number;
  STYLE: ResponseStyle;
  /** How names of this service begin: an unknown variable that begins so is an error. */
  PREFIXES: readonly string[];
  /** Removed variables, with what to do instead. */
  REMOVED?: Readonly<Record<string, string>>;
  /** HOST and PORT name this service's listener even if other services run beside it. */
  OWNS_HOST_AND_PORT?: boolean;
  /** In each of the service's log lines. */
  logFields?: (settings: Settings) => Readonly<Record<string, string>>;
  /** Asks for every variable of the service. An invalid value is reported in `env`. */
  read: (env: Env, input: SettingsInput<DatabaseAddress>) => Settings;
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

const port = wholeNumber(0, 65_535);

/** For a service named "identity", Kubernetes sets IDENTITY_PORT=tcp://… in every container. */
function ownPort(text: string) {
  if (!text.startsWith('tcp://')) return port(text);
  throw new Expected(
    'a port number, not a Kubernetes service link; set enableServiceLinks: false in the pod',
  );
}

const headerName = matching(/^[A-Za-z0-9-]{1,64}$/, 'the name of a header');
const line = matching(/^\P{C}{1,300}$/u, 'one line of at most 300 characters');
const link = matching(/^[^=]+=https?:\/\/\S+$/, 'a name, = and an http or https address');
const color = matching(/^#[0-9a-f]{6}$/i, 'a color such as #0a7d4b');
const verifyAddress = satisfying(
  (text) => /^https?:\/\/[^\s/?#@]+\/\S+$/.test(text) && URL.canParse(text),
  'the http or https address of the verify endpoint',
);

const SMALL_CONTAINER_BYTES = 256 * 2 ** 20;

/**
 * How many hashes run at once. Each takes 32 MiB by default: in a small container, two leave too
 * little memory for the rest of the process, which the kernel would end.
 * @param limit bytes that the kernel allows this process; 0 if that is not known
 */
export function readHashes(env: Env, limit = 0) {
  const isSmall = limit > 0 && limit < SMALL_CONTAINER_BYTES;
  return env.get('PASSWORD_HASHES', isSmall ? 1 : 2, wholeNumber(1, 64), '2');
}

export type Shared = ReturnType<typeof readShared>;

/** The variables of the process, most of them under their own names. */
export function readShared(env: Env) {
  const shared = {
    DATABASE_URL: env.get('DATABASE_URL', null, parseUrl),
    databaseLimits: readLimits(env),
    MIGRATE: env.get('MIGRATE', true, toggle),
    HOST: env.get('HOST', '0.0.0.0', anyText),
    PORT: env.get('PORT', null, port),
    METRICS_HOST: env.get('METRICS_HOST', '127.0.0.1', anyText),
    METRICS_PORT: env.get('METRICS_PORT', null, port),
    LOG_LEVEL: env.get('LOG_LEVEL', 'info', oneOf(LOG_LEVELS)),
    LOG_PROBES: env.get('LOG_PROBES', false, toggle),
    LOG_FORMAT: env.get('LOG_FORMAT', 'auto', oneOf(['auto', 'json', 'text'])),
    TRUSTED_PROXIES: env.get('TRUSTED_PROXIES', new BlockList(), parseNetworks),
    TRUSTED_USER_HEADER: env.get('TRUSTED_USER_HEADER', null, headerName),
    TRUSTED_GROUPS_HEADER: env.get('TRUSTED_GROUPS_HEADER', null, headerName),
    SIGNIN_VERIFY_URL: env.get('SIGNIN_VERIFY_URL', null, verifyAddress),
    MAX_BODY_BYTES: env.get('MAX_BODY_BYTES', 65_536, wholeNumber(1_024, 16_777_216)),
    SHUTDOWN_DELAY: env.get('SHUTDOWN_DELAY', 5, wholeNumber(0, 600)),
    SHUTDOWN_GRACE: env.get('SHUTDOWN_GRACE', 10, wholeNumber(0, 600)),
    IGNORE_VARIABLES: env.get('IGNORE_VARIABLES', [], list()),
    FIRST_CREDENTIALS_DIR: env.get('FIRST_CREDENTIALS_DIR', null, anyText),
    PASSWORD_HASHES: readHashes(env, process.constrainedMemory()),
    ALLOW_WEAK_SECRETS: env.get('ALLOW_WEAK_SECRETS', false, toggle),
    SITE_NAME: env.get('SITE_NAME', 'Gatehouse', line),
    SITE_FOOTER: env.get('SITE_FOOTER', null, line),
    SITE_LINKS: env.get('SITE_LINKS', [], list(link)),
    SITE_COLOR: env.get('SITE_COLOR', null, color),
    SITE_LOGO_FILE: env.get('SITE_LOGO_FILE', null, readLogo),
  } as const;
  if (shared.TRUSTED_USER_HEADER !== null && shared.TRUSTED_PROXIES.rules.length === 0)
    env.problem('TRUSTED_USER_HEADER', 'requires TRUSTED_PROXIES: no other sender is believed.');
  if (shared.TRUSTED_GROUPS_HEADER !== null && shared.TRUSTED_USER_HEADER === null)
    env.problem('TRUSTED_GROUPS_HEADER', 'requires TRUSTED_USER_HEADER.');
  if (shared.ALLOW_WEAK_SECRETS)
    env.warnings.push('ALLOW_WEAK_SECRETS is on: use it only for tests.');
  return shared;
}

/** `isAlone`: the only service of the process. */
type ServiceInput = Readonly<{
  shared: Shared;
  purpose: Purpose;
  isAlone: boolean;
  foreign: Environment;
}>;

/** Asks for the variables of a service, and for its own listener and database. */
export function readService<Settings>(
  name: string,
  module: ServiceSettings<Settings>,
  env: Env,
  { shared, purpose, isAlone, foreign }: ServiceInput,
) {
  const prefix = `${name.toUpperCase()}_`;
  const host = env.get(`${prefix}HOST`, null, anyText, '0.0.0.0');
  const port = env.get(`${prefix}PORT`, null, ownPort, String(module.PORT));
  const url = env.get(`${prefix}DATABASE_URL`, null, parseUrl);
  const settings = module.read(env, {
    requireDatabase() {
      const chosen = url ?? shared.DATABASE_URL;
      checkDatabase(env, `${prefix}DATABASE_URL`, chosen);
      return addressOf(
        env,
        chosen,
        url ? `${prefix}DATABASE_URL` : 'DATABASE_URL',
        shared.databaseLimits,
      );
    },
    userSource: shared,
    purpose,
    foreign,
  });
  // The prefixed name wins. HOST and PORT are for the only service, or the one that owns them.
  const usesShared = isAlone || module.OWNS_HOST_AND_PORT;
  const listener = usesShared ? shared : { HOST: '0.0.0.0', PORT: null };
  return {
    name,
    host: host ?? listener.HOST,
    port: port ?? listener.PORT ?? module.PORT,
    style: module.STYLE,
    logFields: module.logFields?.(settings),
    settings,
  };
}

/** @param name of the variable that holds the URL, which is read again for each new connection */
function addressOf(
  { environment }: Env,
  url: DatabaseUrl | null,
  name: string,
  limits: DatabaseLimits,
): DatabaseAddress {
  return {
    ...(url ?? placeholderDatabase()),
    limits,
    reload() {
      const again = new Env(environment);
      const read = again.get(name, null, parseUrl);
      if (!read) throw new Unavailable(again.problems.join(' '));
      return read;
    },
  };
}

function checkDatabase(env: Env, name: string, database: DatabaseUrl | null) {
  if (!database) {
    if (env.isWrong('DATABASE_URL') || env.isWrong(name)) return;
    env.problem(
      name,
      'or DATABASE_URL must be set, as postgres://user:password@host:5432/database.',
    );
    return;
  }
  const remote = database.hosts.filter((host) => !isThisHost(host.name));
  if (remote.length > 0 && ['disable', 'prefer'].includes(database.sslmode)) {
    env.warnings.push(
      `The connection to the database at ${hostList(remote)} may be unencrypted; add ?sslmode=verify-full to its URL.`,
    );
  }
}

/** Asks for the variables of a service, and makes something of the answers. */
export type SettingsReader<Configured> = ServiceNames &
  Readonly<{ read: (env: Env, input: ServiceInput) => Configured }>;

export type ReadService<Settings> = ReturnType<typeof readService<Settings>>;

/** @param use makes something of the settings, whose type differs from service to service */
export const settingsReader = <Settings, Configured>(
  name: string,
  module: ServiceSettings<Settings>,
  use: (service: ReadService<Settings>) => Configured,
): SettingsReader<Configured> => ({
  name,
  prefixes: [`${name.toUpperCase()}_`, ...module.PREFIXES],
  removed: module.REMOVED ?? {},
  read: (env, input) => use(readService(name, module, env, input)),
});

/** What the process and these services ask for: the default and the parser of each name. */
export function variablesOf(readers: ReadonlyArray<SettingsReader<unknown>>) {
  const env = new Env({});
  const shared = readShared(env);
  for (const { read } of readers) {
    read(env, { shared, purpose: 'serve', isAlone: false, foreign: {} });
  }
  return env.asked;
}

/**
 * Reads the settings of a process.
 * @param all every service there is: the variables of those that do not run here are known, too
 * @param names of the services that run here; none for all
 * @returns `metrics` is null if they are not served; `warnings` are about allowed settings that an
 * operator should know
 * @throws ConfigurationError with every problem at once
 */
export function readSettings<Configured>(
  all: ReadonlyArray<SettingsReader<Configured>>,
  names: readonly string[],
  purpose: Purpose,
  environment: Environment,
) {
  const env = new Env(environment);
  const shared = readShared(env);
  const known = [...variablesOf(all).keys()];
  const foreign = foreignVariables(environment, known);
  env.problems.push(...checkNames(foreign, known, all, shared.IGNORE_VARIABLES));
  const chosen = all.filter(({ name }) => names.length === 0 || names.includes(name));
  const isAlone = chosen.length === 1;
  const services = chosen.map(({ read }) => read(env, { shared, purpose, isAlone, foreign }));
  const { METRICS_HOST: host, METRICS_PORT } = shared;
  const metrics = METRICS_PORT === null ? null : { name: 'metrics', host, port: METRICS_PORT };
  if (env.problems.length > 0) throw new ConfigurationError(env.problems);
  return { shared, metrics, services, warnings: [...new Set(env.warnings)] };
}
