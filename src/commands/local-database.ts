import { statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { SERVICE_NAMES } from '../serve.ts';
import type { Environment } from '../runtime/variables.ts';
import type { Terminal } from './command.ts';

/** Where `make start` and `gatehouse start` keep their values while they run. */
const DIRECTORY = '.data';
const SECRETS = ['IDENTITY_SECRET', 'SERVER_SECRET', 'WEBHOOK_SECRET'];

/**
 * The variables of a command. Without a database URL, those of the `make start` that runs in the
 * current directory, and a note that says so.
 */
export function withLocalDatabase({ environment, note }: Terminal): Environment {
  const urls = ['', ...SERVICE_NAMES.map((name) => `${name.toUpperCase()}_`)];
  if (urls.some((prefix) => isSet(environment, `${prefix}DATABASE_URL`))) return environment;
  const url = fileOf('DATABASE_URL');
  if (!isOwnFile(url)) return environment;
  note(`gatehouse: using the database of "make start" (${join(DIRECTORY, 'database-url')})`);
  const secrets = SECRETS.filter(
    (name) => !isSet(environment, name) && isOwnFile(fileOf(name)),
  ).map((name) => [`${name}_FILE`, fileOf(name)]);
  return { ...environment, DATABASE_URL_FILE: url, ...Object.fromEntries(secrets) };
}

const isSet = (environment: Environment, name: string) =>
  Boolean(environment[name] || environment[`${name}_FILE`]);

const fileOf = (name: string) => resolve(DIRECTORY, name.toLowerCase().replaceAll('_', '-'));

/** In a directory of another user, the database could be one that collects passwords. */
function isOwnFile(path: string) {
  const file = statSync(path, { throwIfNoEntry: false });
  return file !== undefined && file.uid === process.getuid?.();
}
