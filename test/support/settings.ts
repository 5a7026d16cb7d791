/**
 * The settings of several services as one object, for tests that look at them or call a service's
 * own functions.
 */
import * as identity from '../../src/identity/settings.ts';
import * as secrets from '../../src/secrets/settings.ts';
import { loadReaders, type ServiceName } from '../../src/serve.ts';
import {
  type ReadService,
  readSettings,
  settingsReader,
  variablesOf,
} from '../../src/platform/process/settings.ts';
import * as webhook from '../../src/webhook/settings.ts';

export const SERVICES = [
  'identity',
  'secrets',
  'webhook',
] as const satisfies readonly ServiceName[];
export type Config = ReturnType<typeof readConfig>;

/** The variables of all services, with their defaults and parsers. */
export const VARIABLES = Object.fromEntries(variablesOf(await loadReaders()));

/** @throws ConfigurationError */
export function readConfig(
  names: readonly string[],
  purpose: 'serve' | 'administer',
  environment: Readonly<Record<string, string | undefined>>,
) {
  const seen: {
    identity?: ReadService<identity.IdentitySettings>;
    secrets?: ReadService<secrets.SecretsSettings>;
    webhook?: ReadService<webhook.WebhookSettings>;
  } = {};
  const readers = [
    settingsReader('identity', identity, (service) => {
      seen.identity = service;
    }),
    settingsReader('secrets', secrets, (service) => {
      seen.secrets = service;
    }),
    settingsReader('webhook', webhook, (service) => {
      seen.webhook = service;
    }),
  ];
  const { shared, metrics, warnings } = readSettings(readers, names, purpose, environment);
  const isChosen = (name: string) => names.length === 0 || names.includes(name);
  const placed = <S>(service: ReadService<S> | undefined) =>
    service && isChosen(service.name)
      ? { host: service.host, port: service.port, ...service.settings }
      : null;
  return {
    ...shared,
    metrics,
    warnings,
    identity: placed(seen.identity),
    secrets: placed(seen.secrets),
    webhook: placed(seen.webhook),
  };
}
