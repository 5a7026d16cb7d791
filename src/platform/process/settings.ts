import { BlockList } from 'node:net';
import { hostname } from 'node:os';
import { isAbsolute } from 'node:path';
import { readUserSource } from '../http/credentials/user-source.ts';
import type { ResponseStyle } from '../http/route/route.ts';
import { readLogo } from '../http/site/pages.ts';
import { parseNetworks } from '../http/wire/address.ts';
import { LOG_REQUESTS } from '../http/wire/exchange.ts';
import {
  Env,
  type Environment,
  Expected,
  list,
  matching,
  oneOf,
  type Purpose,
  satisfying,
  wholeNumber,
} from '../runtime/env.ts';
import { LOG_LEVELS } from '../runtime/log.ts';
import type { ConfiguredService } from './service.ts';
import { checkNames, foreignVariables, type VariableNames } from './variable-names.ts';

type ServiceDefaults = Omit<VariableNames, 'name'> &
  Readonly<{
    PORT: number;
    STYLE: ResponseStyle;
    /** HOST and PORT name this service's listener even if other services run beside it. */
    OWNS_HOST_AND_PORT?: boolean;
  }>;

/** What `<service>/settings.ts` exports. */
export type SettingsModule<Settings> = ServiceDefaults &
  Readonly<{
    /** In each of the service's log lines. */
    logFields?: (settings: Settings) => Readonly<Record<string, string>>;
    /** Asks for every variable of the service. An invalid value is reported in `env`. */
    read: (env: Env, purpose: Purpose) => Settings;
  }>;

/** A service before its settings are read. These are bound to what they start. */
export type ConfigurableService = ServiceDefaults &
  Readonly<{
    name: string;
    read: (env: Env, purpose: Purpose) => Pick<ConfiguredService, 'logFields' | 'start'>;
  }>;

/** All problems of the environment, one sentence each. */
export class ConfigurationError extends Error {
  override readonly name = 'ConfigurationError';
  readonly problems: readonly string[];
  constructor(problems: readonly string[]) {
    super(problems.join('\n'));
    this.problems = problems;
  }
}

/** @throws ConfigurationError with every problem at once */
export function requireValid({ problems }: Env) {
  if (problems.size > 0) throw new ConfigurationError([...problems.values()]);
}

/** For a service named "identity", Kubernetes sets IDENTITY_PORT=tcp://… in every container. */
function port(text: string) {
  if (!text.startsWith('tcp://')) return wholeNumber(0, 65_535)(text);
  throw new Expected(
    'a port number, not a Kubernetes service link; set enableServiceLinks: false in the pod',
  );
}

const line = matching(/^\P{C}{1,300}$/u, 'one line of at most 300 characters');
const link = matching(/^[^=]+=https?:\/\/\S+$/, 'a name, = and an http or https address');
/** The kernel allows 107 bytes. */
export const socketPath = matching(
  /^\/[ -~]{1,100}$/,
  'an absolute path of at most 101 ASCII characters',
);
const color = matching(/^#[0-9a-f]{6}$/i, 'a color such as #0a7d4b');

const SMALL_CONTAINER_BYTES = 256 * 2 ** 20;

/**
 * How many hashes run at once. Each takes 32 MiB by default: in a small container, two leave too
 * little memory for the rest of the process, which the kernel would end.
 * @param limit bytes that the kernel allows this process; 0 if that is not known
 */
export function readHashes(env: Env, limit = 0) {
  const isSmall = limit > 0 && limit < SMALL_CONTAINER_BYTES;
  return env.number('PASSWORD_HASHES', isSmall ? 1 : 2, 1, 64, 2);
}

/** What the lines of the log look like, also those about settings that are wrong. */
export const readLogForm = (env: Env) => ({
  LOG_FORMAT: env.get('LOG_FORMAT', 'auto', oneOf(['auto', 'json', 'text'])),
  INSTANCE_NAME: env.get('INSTANCE_NAME', hostname(), line, 'the host name'),
});

/** One target, so that it is clear where a message is. @returns null: nothing is sent */
function readNotify(env: Env) {
  const url = env.get('NOTIFY_URL', null, chatAddress);
  const command = env.get('NOTIFY_COMMAND', null, program);
  const allowPrivate = env.isOn('NOTIFY_ALLOW_PRIVATE');
  const target = url === null ? command : new URL(url);
  if (url !== null && command !== null)
    env.problem('NOTIFY_URL', 'and NOTIFY_COMMAND are set together; set only one of them.');
  return target === null
    ? null
    : {
        target,
        allowPrivate,
        environment: env.foreign,
      };
}
const chatAddress = satisfying(
  (text) => /^https?:\/\/[^\s/?#]/.test(text) && URL.canParse(text),
  'an http or https URL',
);
const program = satisfying(isAbsolute, 'the absolute path of a program');
export type Notify = NonNullable<ReturnType<typeof readNotify>>;

export type Shared = ReturnType<typeof readShared>;

/** The variables of the process, most of them under their own names. */
export function readShared(env: Env) {
  if (env.isOn('ALLOW_WEAK_SECRETS'))
    env.warnings.add('ALLOW_WEAK_SECRETS is on: use it only for tests.');
  // Services ask for it again. A wrong header is reported even if none of these runs.
  readUserSource(env);
  return {
    MIGRATE: env.isOn('MIGRATE', true),
    METRICS_HOST: env.text('METRICS_HOST', '127.0.0.1'),
    METRICS_PORT: env.get('METRICS_PORT', null, port),
    CONTROL_SOCKET: env.get('CONTROL_SOCKET', null, socketPath),
    LOG_LEVEL: env.get('LOG_LEVEL', 'info', oneOf(LOG_LEVELS)),
    LOG_PROBES: env.isOn('LOG_PROBES'),
    LOG_REQUESTS: env.get('LOG_REQUESTS', 'all', oneOf(LOG_REQUESTS)),
    ...readLogForm(env),
    TRUSTED_PROXIES: env.get('TRUSTED_PROXIES', new BlockList(), parseNetworks),
    MAX_BODY_BYTES: env.number('MAX_BODY_BYTES', 65_536, 1_024, 16_777_216),
    SHUTDOWN_DELAY: env.number('SHUTDOWN_DELAY', 5, 0, 600),
    SHUTDOWN_GRACE: env.number('SHUTDOWN_GRACE', 10, 0, 600),
    IGNORE_VARIABLES: env.get('IGNORE_VARIABLES', [], list()),
    FIRST_CREDENTIALS_DIR: env.text('FIRST_CREDENTIALS_DIR', null),
    PASSWORD_HASHES: readHashes(env, process.constrainedMemory()),
    NOTIFY: readNotify(env),
    SITE_NAME: env.get('SITE_NAME', 'Gatehouse', line),
    SITE_FOOTER: env.get('SITE_FOOTER', null, line),
    SITE_LINKS: env.get('SITE_LINKS', [], list(link)),
    SITE_COLOR: env.get('SITE_COLOR', null, color),
    SITE_LOGO_FILE: env.get('SITE_LOGO_FILE', null, readLogo),
  } as const;
}

/** @param isAlone whether it is the only service of the process */
function readService(
  env: Env,
  { name, PORT, STYLE, OWNS_HOST_AND_PORT, read }: ConfigurableService,
  purpose: Purpose,
  isAlone: boolean,
) {
  const prefix = `${name.toUpperCase()}_`;
  // The prefixed name wins. HOST and PORT are for the only service, or the one that owns them.
  const sharedHost = env.text('HOST', '0.0.0.0');
  const sharedPort = env.get('PORT', null, port);
  const usesShared = isAlone || OWNS_HOST_AND_PORT;
  return {
    name,
    host: env.text(`${prefix}HOST`, usesShared ? sharedHost : '0.0.0.0'),
    port: env.get(`${prefix}PORT`, (usesShared ? sharedPort : null) ?? PORT, port),
    style: STYLE,
    ...read(env, purpose),
  };
}

/** Each name that the process and these services ask for, with its default. */
export function variablesOf(services: readonly ConfigurableService[]) {
  const env = new Env({});
  readShared(env);
  for (const service of services) readService(env, service, 'serve', false);
  return env.asked;
}

export type Configuration = ReturnType<typeof readSettings>;

/**
 * Reads the settings of a process.
 * @param all every service there is: the variables of those that do not run here are known, too
 * @param names of the services that run here; none for all
 * @throws ConfigurationError with every problem at once
 */
export function readSettings(
  all: readonly ConfigurableService[],
  names: readonly string[],
  purpose: Purpose,
  environment: Environment,
) {
  const known = [...variablesOf(all).keys()];
  const env = new Env(environment, foreignVariables(environment, known));
  const shared = readShared(env);
  checkNames(env, known, all, shared.IGNORE_VARIABLES);
  const chosen = all.filter(({ name }) => names.length === 0 || names.includes(name));
  const services = chosen.map((one) => readService(env, one, purpose, chosen.length === 1));
  requireValid(env);
  const { METRICS_HOST: host, METRICS_PORT: metricsPort } = shared;
  return {
    shared,
    services,
    /** Null if they are not served. */
    metrics: metricsPort === null ? null : { host, port: metricsPort },
    /** About allowed settings that an operator should know. */
    warnings: [...env.warnings],
  };
}
