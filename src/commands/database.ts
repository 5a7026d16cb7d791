import { statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import {
  type Command,
  flag,
  type Invocation,
  OperationFailed,
  type Terminal,
  UsageError,
} from './command.ts';
import { isUuid } from '../platform/runtime/text.ts';
import { type DatabaseSchema, requireCurrent } from '../platform/db/schema.ts';
import {
  createDatabase,
  type Database,
  type DatabaseAddress,
  type Sql,
} from '../platform/db/pool.ts';
import { Failure } from '../platform/http/route/errors.ts';
import { createLog } from '../platform/runtime/log.ts';
import { createMetrics } from '../platform/runtime/metrics.ts';
import { Env, type Environment, type Purpose } from '../platform/runtime/env.ts';
import { SERVICE_NAMES } from '../serve.ts';
import { readShared, requireValid } from '../platform/process/settings.ts';

/** Where `make start` and `gatehouse start` keep their values while they run. */
const DIRECTORY = '.data';
/** Further variables that a command may read from it. */
const LOCAL_VARIABLES = [
  'IDENTITY_SECRET',
  'SERVER_SECRET',
  'WEBHOOK_SECRET',
  'SIGNIN_PAGES',
  'SIGNIN_ORIGIN',
  'WEBHOOK_FORWARD_ALLOW_PRIVATE',
];

/**
 * @returns a function that works on a service's database, with its settings. It throws
 * ConfigurationError with every problem at once, and Unavailable if the schema is not current
 */
export const databaseOf =
  <S extends { readonly database: DatabaseAddress | null }>(
    { read }: Readonly<{ read: (env: Env, purpose: Purpose) => S }>,
    schema: DatabaseSchema,
  ) =>
  async <T>(
    terminal: Terminal,
    work: (database: Database, settings: S) => Promise<T>,
  ): Promise<T> => {
    const env = new Env(withLocalDatabase(terminal));
    readShared(env);
    const settings = read(env, 'administer');
    requireValid(env);
    if (!settings.database) throw new Error('internal error: administration needs a database');
    const database = createDatabase(
      settings.database,
      `${schema.name}-admin`,
      createLog('silent', () => {}),
      createMetrics(),
    );
    try {
      await requireCurrent(database, schema);
      return await work(database, settings);
    } finally {
      await database.close();
    }
  };

/**
 * The variables of a command. Without a database URL, those of the `make start` that runs in the
 * current directory, and a note that says so.
 */
function withLocalDatabase({ environment, note }: Terminal): Environment {
  const isSet = (name: string) => environment[name] || environment[`${name}_FILE`];
  const prefixes = ['', ...SERVICE_NAMES.map((name) => `${name.toUpperCase()}_`)];
  if (prefixes.some((prefix) => isSet(`${prefix}DATABASE_URL`))) return environment;
  const urlFile = fileOf('DATABASE_URL');
  if (!isOwnFile(urlFile)) return environment;
  note(`gatehouse: using the database of "make start" (${join(DIRECTORY, 'database-url')})`);
  const local = LOCAL_VARIABLES.filter((name) => !isSet(name) && isOwnFile(fileOf(name))).map(
    (name) => [`${name}_FILE`, fileOf(name)],
  );
  return {
    ...environment,
    DATABASE_URL_FILE: urlFile,
    ...Object.fromEntries(local),
  };
}

const fileOf = (name: string) => resolve(DIRECTORY, name.toLowerCase().replaceAll('_', '-'));

/** The file of another user could name a database that collects passwords. */
function isOwnFile(path: string) {
  const file = statSync(path, { throwIfNoEntry: false });
  return file !== undefined && file.uid === process.getuid?.();
}

/** Asks for the variables of a command that uses no database. @throws ConfigurationError */
export function readClientVariables<T>({ environment }: Terminal, read: (env: Env) => T) {
  const env = new Env(environment);
  const values = read(env);
  requireValid(env);
  return values;
}

/** Works on the database of a service, as `databaseOf` returns it. */
export type InService = ReturnType<typeof databaseOf>;

/** Rolls a transaction back. */
class NotConfirmed extends Error {}

/**
 * A command for after a restore. It makes a change in one transaction, however long it takes.
 * Without --confirm, it is rolled back.
 * @param change returns what it did, such as "12 sessions ended"
 * @param advice follows what was done, or in a dry run what would be done
 */
export const restoredCommand = (
  inService: InService,
  command: Omit<Command, 'run'>,
  change: (sql: Sql, call: Invocation) => Promise<string>,
  advice = '',
): Command => ({
  ...command,
  options: {
    ...command.options,
    confirm: flag('do it; otherwise only say what would end'),
  },
  async run(call) {
    const changeIfConfirmed = async (sql: Sql) => {
      const done = await change(sql, call);
      if (call.flag('confirm')) return `${done}.${advice}`;
      throw new NotConfirmed(`Dry run, nothing was changed. With --confirm: ${done}.${advice}`);
    };
    try {
      return await inService(call, (database) =>
        database.maintain((_sql, transaction) => transaction(changeIfConfirmed)),
      );
    } catch (error) {
      if (error instanceof NotConfirmed) return error.message;
      throw error;
    }
  },
});

/** `3 secrets` */
export const counted = (count: number, what: string) => `${count} ${what}${count === 1 ? '' : 's'}`;

/** @param where follows the sentence, such as " from gatehouse key list" */
export function requireUuid(id: string, where: string) {
  if (!isUuid(id)) throw new UsageError(`ID must be a UUID${where}`);
  return id;
}

/** @throws for a Failure: UsageError for invalid input (exit 2), else OperationFailed (exit 1) */
export function orThrow<T>(result: T | Failure): T {
  if (!(result instanceof Failure)) return result;
  const { message, fields } = result.details;
  const problems = fields
    ?.map((field) => `${field.path.slice(1).replaceAll('_', '-')} ${field.message}`)
    .join('; ');
  if (result.code === 'invalid_body') throw new UsageError(String(problems));
  throw new OperationFailed(problems ?? message ?? result.code);
}
