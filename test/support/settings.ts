/**
 * The settings of several services as one object, for tests that look at them or call a service's
 * own functions.
 */
import * as identity from '../../src/identity/settings.ts';
import * as secrets from '../../src/secrets/settings.ts';
import type { Variables } from '../../src/runtime/variables.ts';
import type { ServiceName } from '../../src/serve.ts';
import {
  allVariables,
  type ProcessSettings,
  readSettings,
  serviceReader,
} from '../../src/settings.ts';
import * as webhook from '../../src/webhook/settings.ts';

export const SERVICES = [
  'identity',
  'secrets',
  'webhook',
] as const satisfies readonly ServiceName[];
export type Config = ReturnType<typeof readConfig>;

/** The tables of the variables of all services. */
export const VARIABLES = allVariables([
  serviceReader('identity', identity),
  serviceReader('secrets', secrets),
  serviceReader('webhook', webhook),
]);

/** @throws ConfigurationError */
export function readConfig(
  names: readonly string[],
  purpose: 'serve' | 'administer',
  environment: Readonly<Record<string, string | undefined>>,
) {
  const seen: {
    identity?: identity.IdentitySettings;
    secrets?: secrets.SecretsSettings;
    webhook?: webhook.WebhookSettings;
  } = {};
  const readers = [
    observed(serviceReader('identity', identity), (settings) => {
      seen.identity = settings;
    }),
    observed(serviceReader('secrets', secrets), (settings) => {
      seen.secrets = settings;
    }),
    observed(serviceReader('webhook', webhook), (settings) => {
      seen.webhook = settings;
    }),
  ];
  const { services, shared, ...process } = readSettings(readers, names, purpose, environment);
  const placed = <S>(name: ServiceName, settings: S | undefined) => {
    const found = services.find((one) => one.name === name);
    return found && settings ? { host: found.host, port: found.port, ...settings } : null;
  };
  return {
    ...shared,
    ...process,
    identity: placed('identity', seen.identity),
    secrets: placed('secrets', seen.secrets),
    webhook: placed('webhook', seen.webhook),
  };
}

/** The reader of a service, which shows the settings that it has read. */
const observed = <S>(
  reader: ReturnType<typeof serviceReader<Variables, S>>,
  observe: (settings: S) => void,
) => ({
  ...reader,
  read(process: ProcessSettings) {
    const { settings, ...listener } = reader.read(process);
    observe(settings);
    return listener;
  },
});
