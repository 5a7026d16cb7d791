import type { ServiceContext } from './platform/runtime/context.ts';
import type { Environment, Purpose } from './platform/runtime/env.ts';
import type { Service } from './platform/process/service.ts';
import {
  type ConfigurableService,
  readSettings,
  type SettingsModule,
} from './platform/process/settings.ts';

/** The modules of a service are loaded if it is served, but the settings of all. */
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
  loadSettings: () => Promise<SettingsModule<Settings>>,
  loadModules: () => Promise<{ start: Start<Settings> }>,
) {
  return async (name: string): Promise<ConfigurableService> => {
    const module = await loadSettings();
    return {
      ...module,
      name,
      read(env, purpose) {
        const settings = module.read(env, purpose);
        return {
          logFields: module.logFields?.(settings),
          start: async (context) => (await loadModules()).start(settings, context),
        };
      },
    };
  };
}

/** Loads the modules that read settings. */
export const loadServices = () =>
  Promise.all(Object.entries(SERVICES).map(([name, load]) => load(name)));

/**
 * Reads the settings of the named services, or of all if none is named.
 * @throws ConfigurationError
 */
export const configure = async (
  names: readonly string[],
  purpose: Purpose,
  environment: Environment,
) => readSettings(await loadServices(), names, purpose, environment);
