import type { ServiceContext } from './platform/runtime/context.ts';
import type { Environment, Purpose } from './platform/runtime/env.ts';
import type { ConfiguredService, Service } from './platform/process/runner.ts';
import { readSettings, type ServiceSettings, settingsReader } from './platform/process/settings.ts';

/**
 * Only the modules of served services are loaded, but the settings of all, so that their names are
 * known.
 */
export const SERVICES = {
  identity: service(
    () => import('./identity/settings.ts'),
    () => import('./identity/start.ts'),
  ),
  secrets: service(
    () => import('./secrets/settings.ts'),
    () => import('./secrets/start.ts'),
  ),
  webhook: service(
    () => import('./webhook/settings.ts'),
    () => import('./webhook/start.ts'),
  ),
} as const;

export type ServiceName = keyof typeof SERVICES;
export const SERVICE_NAMES: readonly string[] = Object.keys(SERVICES);

type Start<Settings> = (settings: Settings, context: ServiceContext) => Promise<Service>;

function service<Settings>(
  loadSettings: () => Promise<ServiceSettings<Settings>>,
  loadModules: () => Promise<{ start: Start<Settings> }>,
) {
  return async (name: string) =>
    settingsReader(name, await loadSettings(), ({ settings, ...listener }): ConfiguredService => ({
      ...listener,
      async start(context) {
        const { start } = await loadModules();
        return start(settings, context);
      },
    }));
}

/** Loads what reads the settings of each service. */
export const loadReaders = () =>
  Promise.all(Object.entries(SERVICES).map(([name, load]) => load(name)));

/**
 * Reads the settings of the named services, or of all if none is named.
 * @throws ConfigurationError
 */
export const configure = async (
  names: readonly string[],
  purpose: Purpose,
  environment: Environment,
) => readSettings(await loadReaders(), names, purpose, environment);
