import type { BlockList } from 'node:net';
import type { ScryptCost } from './crypto/password.ts';
import type { DatabaseAddress } from './db/pool.ts';
import type { LogLevel } from './runtime/log.ts';
import { type Environment, isThisHost, readVariables, type Settings } from './variables.ts';
import { webhookSettings } from './config-webhook.ts';
import type { WebhookSettings } from './webhook/start.ts';

export const SERVICES = ['identity', 'secrets', 'webhook'] as const;
export type ServiceName = (typeof SERVICES)[number];

interface Place {
  readonly host: string;
  readonly port: number;
}

export interface IdentityConfig extends Place {
  readonly database: DatabaseAddress;
  readonly admin: { readonly username: string; readonly password: string | null; readonly email: string };
  readonly passwords: { readonly minLength: number; readonly cost: ScryptCost };
  readonly sessionSeconds: number;
  readonly idleSeconds: number;
  readonly retentionSeconds: number;
  readonly auditSeconds: number;
}

export interface SecretsConfig extends Place {
  readonly database: DatabaseAddress;
  readonly serverSecret: string;
  /** Read-only, in any order. */
  readonly previousSecrets: readonly string[];
  readonly authToken: string;
  readonly limits: {
    /** How long a secret lives unless its maker says otherwise; 0 for ever. */
    readonly seconds: number;
    readonly mostSeconds: number;
    /** How often it may be read unless its maker says otherwise; 0 for any number. */
    readonly reads: number;
    readonly mostReads: number;
  };
  readonly passphraseCost: ScryptCost;
  readonly receiptSeconds: number;
  readonly sharePages: boolean;
}

export type WebhookConfig = Place & WebhookSettings;

/** One typed object per service; `null` for those that are not asked for. */
export interface Config {
  readonly logLevel: LogLevel;
  readonly metrics: Place | null;
  readonly migrate: boolean;
  readonly shutdownGraceMs: number;
  /** Processes that share the ports. */
  readonly workers: number;
  readonly trustedProxies: BlockList;
  readonly maxBodyBytes: number;
  /** How many passwords are hashed at once, whichever service asks. */
  readonly hashesAtOnce: number;
  readonly identity: IdentityConfig | null;
  readonly secrets: SecretsConfig | null;
  readonly webhook: WebhookConfig | null;
  /** What an operator should know though it is allowed. */
  readonly warnings: readonly string[];
}

/** All that is wrong with the environment, one sentence each. */
export class ConfigurationError extends Error {
  override readonly name = 'ConfigurationError';
  readonly problems: readonly string[];
  constructor(problems: readonly string[]) {
    super(problems.join('\n'));
    this.problems = problems;
  }
}

/** Fewer characters than this in a secret or token is allowed with a warning. */
const ADVISED_LENGTH = 32;

/**
 * The only reader of the process's environment.
 * @param purpose `administer` needs the database and nothing else of a service
 * @throws ConfigurationError with every problem at once
 */
export function readConfig(services: readonly ServiceName[], purpose: 'serve' | 'administer', environment: Environment = process.env): Config {
  const problems: string[] = [];
  const warnings: string[] = [];
  const settings = readVariables(environment, problems);
  if (environment.PGTARGETSESSIONATTRS) problems.push('PGTARGETSESSIONATTRS must not be set: the database client would obey it.');
  const plain = settings.WEBHOOK_VARIANT === 'plain' && purpose === 'serve';
  checkDatabases(settings, services.filter((service) => service !== 'webhook' || !plain), problems);
  const identity = services.includes('identity') ? identityConfig(settings, services, problems) : null;
  const secrets = services.includes('secrets') ? secretsConfig(settings, services, purpose, problems, warnings) : null;
  const webhook = services.includes('webhook') ? { ...placeOf(settings, 'webhook', services), ...webhookSettings(settings, environment, plain ? null : (settings.WEBHOOK_DATABASE_URL ?? settings.DATABASE_URL ?? NOWHERE), problems, warnings) } : null;
  if (purpose === 'serve') {
    const metrics = settings.METRICS_PORT === null ? null : { host: '', port: settings.METRICS_PORT };
    checkPorts({ identity, secrets, webhook, metrics }, problems);
  }
  if (problems.length > 0) throw new ConfigurationError(problems);
  for (const address of new Set([identity, secrets, webhook].map((service) => service?.database ?? null))) {
    if (address && !isThisHost(address.host) && ['disable', 'prefer'].includes(address.sslmode)) {
      warnings.push(`The connection to the database at ${address.host} may be unencrypted; add ?sslmode=verify-full to its URL.`);
    }
  }
  return {
    logLevel: settings.LOG_LEVEL,
    metrics: settings.METRICS_PORT === null ? null : { host: settings.METRICS_HOST ?? '127.0.0.1', port: settings.METRICS_PORT },
    migrate: settings.MIGRATE === 'on',
    shutdownGraceMs: settings.SHUTDOWN_GRACE * 1000,
    workers: settings.WORKERS,
    trustedProxies: settings.TRUSTED_PROXIES,
    maxBodyBytes: settings.MAX_BODY_BYTES,
    hashesAtOnce: settings.PASSWORD_HASHES,
    identity,
    secrets,
    webhook,
    warnings,
  };
}

/**
 * What the commands need that ask the secrets service over HTTP, from wherever they run.
 * @throws ConfigurationError with every problem at once
 */
export function readClientConfig(environment: Environment = process.env): { readonly url: string; readonly token: string | null } {
  const problems: string[] = [];
  const own = Object.fromEntries(Object.entries(environment).filter(([name]) => /^(GATEHOUSE_URL|AUTH_TOKEN)(_FILE)?$/.test(name)));
  const { GATEHOUSE_URL: url, AUTH_TOKEN: token } = readVariables(own, problems);
  if (problems.length > 0) throw new ConfigurationError(problems);
  return { url: (url ?? '').replace(/\/$/, ''), token };
}

/** HOST and PORT are the webhook receiver's own names, and those of whichever service runs alone; the longer name wins. */
function placeOf(settings: Settings, service: ServiceName, services: readonly ServiceName[]): Place {
  const ownNames = service === 'webhook' || services.length === 1;
  const host = { identity: settings.IDENTITY_HOST, secrets: settings.SECRETS_HOST, webhook: settings.WEBHOOK_HOST }[service];
  const port = { identity: settings.IDENTITY_PORT, secrets: settings.SECRETS_PORT, webhook: settings.WEBHOOK_PORT }[service];
  const byDefault = { identity: 3000, secrets: 8080, webhook: 8000 }[service];
  return {
    host: host ?? (ownNames ? settings.HOST : null) ?? '0.0.0.0',
    port: port ?? (ownNames ? settings.PORT : null) ?? byDefault,
  };
}

/** Stands in where a problem is reported, so that the rest can still be checked. */
const NOWHERE: DatabaseAddress = { host: '', port: 0, database: '', user: '', password: '', sslmode: 'disable' };

/** Whether something is already said about this variable, so that it is not called missing besides. */
const isReported = (name: string, problems: readonly string[]): boolean =>
  problems.some((problem) => problem.startsWith(`${name} `) || problem.startsWith(`${name}_FILE `));

/** One sentence for all services that have no database. */
function checkDatabases(settings: Settings, services: readonly ServiceName[], problems: string[]): void {
  const own = { identity: 'IDENTITY_DATABASE_URL', secrets: 'SECRETS_DATABASE_URL', webhook: 'WEBHOOK_DATABASE_URL' } as const;
  const names = services.map((service) => own[service]).filter((name) => settings[name] === null && !isReported(name, problems));
  if (settings.DATABASE_URL !== null || isReported('DATABASE_URL', problems) || names.length === 0) return;
  problems.push(`DATABASE_URL (or ${names.join(' and ')}) must be set, as postgres://user:password@host:5432/database.`);
}

function identityConfig(settings: Settings, services: readonly ServiceName[], problems: string[]): IdentityConfig {
  if (settings.ADMIN_PASSWORD !== null && [...settings.ADMIN_PASSWORD].length < settings.PASSWORD_MIN_LENGTH) {
    problems.push(`ADMIN_PASSWORD must have at least ${settings.PASSWORD_MIN_LENGTH} characters.`);
  }
  return {
    ...placeOf(settings, 'identity', services),
    database: settings.IDENTITY_DATABASE_URL ?? settings.DATABASE_URL ?? NOWHERE,
    admin: {
      username: settings.ADMIN_USERNAME ?? 'admin',
      password: settings.ADMIN_PASSWORD,
      email: settings.ADMIN_EMAIL ?? 'admin@localhost',
    },
    passwords: { minLength: settings.PASSWORD_MIN_LENGTH, cost: settings.PASSWORD_SCRYPT },
    sessionSeconds: settings.SESSION_TTL,
    idleSeconds: settings.SESSION_IDLE_TTL,
    retentionSeconds: settings.SESSION_RETENTION,
    auditSeconds: settings.AUDIT_RETENTION,
  };
}

/** A maximum that is set holds for what nobody asks for, too: 0, for no limit, becomes the maximum. */
const within = (byDefault: number, most: number | null): number => (most === null ? byDefault : Math.min(byDefault || most, most));

function secretsConfig(
  settings: Settings,
  services: readonly ServiceName[],
  purpose: 'serve' | 'administer',
  problems: string[],
  warnings: string[],
): SecretsConfig {
  const required = (name: 'SERVER_SECRET' | 'AUTH_TOKEN') => {
    const value = settings[name];
    if (value === null && purpose === 'serve' && !isReported(name, problems)) {
      problems.push(`${name} must be set, to a long random text; make one with: openssl rand -base64 32`);
    }
    if (value !== null && value.length < ADVISED_LENGTH) {
      warnings.push(`${name} has fewer than ${ADVISED_LENGTH} characters; make a long random one with: openssl rand -base64 32`);
    }
    return value ?? '';
  };
  const previousSecrets = (settings.SERVER_SECRET_PREVIOUS ?? '').split(',').map((one) => one.trim()).filter((one) => one !== '');
  if (previousSecrets.some((one) => one.length < ADVISED_LENGTH)) warnings.push(`SERVER_SECRET_PREVIOUS has an entry of fewer than ${ADVISED_LENGTH} characters; is it whole?`);
  return {
    ...placeOf(settings, 'secrets', services),
    database: settings.SECRETS_DATABASE_URL ?? settings.DATABASE_URL ?? NOWHERE,
    serverSecret: required('SERVER_SECRET'),
    previousSecrets,
    authToken: required('AUTH_TOKEN'),
    limits: {
      seconds: within(settings.SECRET_TTL, settings.SECRET_TTL_MAX),
      mostSeconds: settings.SECRET_TTL_MAX ?? Math.max(30 * 86_400, settings.SECRET_TTL),
      reads: within(settings.SECRET_READS, settings.SECRET_READS_MAX),
      mostReads: settings.SECRET_READS_MAX ?? 1_000,
    },
    passphraseCost: settings.PASSWORD_SCRYPT,
    receiptSeconds: settings.RECEIPT_RETENTION,
    sharePages: settings.SHARE_PAGES === 'on',
  };
}

/** Said at once and by name, rather than as the second listener's "address in use". Port 0 is any free port. */
function checkPorts(places: Readonly<Record<string, Place | null>>, problems: string[]): void {
  const byPort = new Map<number, string>();
  for (const [name, place] of Object.entries(places)) {
    if (!place || place.port === 0) continue;
    const other = byPort.get(place.port);
    if (other !== undefined) problems.push(`${other} and ${name} cannot both listen on port ${place.port}; change one of them.`);
    byPort.set(place.port, name);
  }
}
