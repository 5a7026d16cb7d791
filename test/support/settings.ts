/**
 * The settings of several services as one object, for tests that look at them or call a service's
 * own functions.
 */
import { defaultsOf } from '../../scripts/variables.ts';
import * as identity from '../../src/identity/settings.ts';
import { ConfigurationError, readSettings } from '../../src/platform/process/settings.ts';
import { foreignVariables } from '../../src/platform/process/variable-names.ts';
import { Env, type Environment, type Purpose } from '../../src/platform/runtime/env.ts';
import * as secrets from '../../src/secrets/settings.ts';
import { loadServices, type ServiceName } from '../../src/serve.ts';
import * as webhook from '../../src/webhook/settings.ts';

export const SERVICES = [
  'identity',
  'secrets',
  'webhook',
] as const satisfies readonly ServiceName[];
export type Config = ReturnType<typeof readConfig>;

/** The variables of all services, with their defaults. */
export const VARIABLES: Readonly<Record<string, string>> = Object.fromEntries(await defaultsOf());
const CONFIGURABLE = await loadServices();

/** @throws ConfigurationError */
export function readConfig(names: readonly string[], purpose: Purpose, environment: Environment) {
  const { shared, services, ...others } = readSettings(CONFIGURABLE, names, purpose, environment);
  const foreign = foreignVariables(environment, Object.keys(VARIABLES));
  const read = <S>(name: ServiceName, settings: { read(env: Env, purpose: Purpose): S }) => {
    const service = services.find((one) => one.name === name);
    if (!service) return null;
    const { host, port } = service;
    return { host, port, ...settings.read(new Env(environment, foreign), purpose) };
  };
  return {
    ...shared,
    ...others,
    identity: read('identity', identity),
    secrets: read('secrets', secrets),
    webhook: read('webhook', webhook),
  };
}

/** What is long enough for every secret. */
export const LONG = 'a-long-random-text-0123456789-abcdefgh';
/** All that has no default. */
export const NEEDED = {
  DATABASE_URL: 'postgres://user:word@localhost:5432/gatehouse',
  SERVER_SECRET: LONG,
  AUTH_TOKEN: LONG,
};
export type Given = Readonly<Record<string, string | undefined>>;

/** With what is needed. */
export const readGiven = (
  given: Given,
  services: readonly ServiceName[] = SERVICES,
  purpose: Purpose = 'serve',
): Config => readConfig(services, purpose, { ...NEEDED, ...given });

/** @returns what is wrong with the settings */
export function problems(...args: Parameters<typeof readGiven>): readonly string[] {
  try {
    readGiven(...args);
  } catch (error) {
    if (error instanceof ConfigurationError) return error.problems;
    throw error;
  }
  return [];
}
