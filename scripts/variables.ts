/** The variables that services ask for, with their defaults. */
import { variablesOf } from '../src/platform/process/settings.ts';
import { SERVICES } from '../src/serve.ts';

/** @returns names and defaults, as the documentation shows them, of the process and a service */
export async function defaultsOf(name?: string): Promise<ReadonlyMap<string, string>> {
  const loads = Object.entries(SERVICES).filter(([one]) => name === undefined || one === name);
  const asked = variablesOf(await Promise.all(loads.map(([one, load]) => load(one))));
  return new Map([...asked].map(([variable, fallback]) => [variable, shown(fallback)]));
}

const shown = (fallback: unknown) =>
  fallback === null || typeof fallback === 'object' ? '–' : String(fallback);
