/**
 * The settings of several services as one object, for tests that look at them or call a service's
 * own functions.
 */
import { defaultsOf } from '../../scripts/variables.ts';
import * as identity from '../../src/identity/settings.ts';
import { readSettings } from '../../src/platform/process/settings.ts';
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
