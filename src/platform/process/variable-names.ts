import type { Environment } from '../runtime/env.ts';

/** A service, and what is known of the names of its variables. */
export type ServiceNames = Readonly<{
  name: string;
  /** How its names begin: an unknown variable that begins so is an error. */
  prefixes: readonly string[];
  /** Removed variables, with what to do instead. */
  removed: Readonly<Record<string, string>>;
}>;

const withoutFile = (name: string): string => name.replace(/_FILE$/, '');

/** The environment without Gatehouse's variables. */
export function foreignVariables(environment: Environment, known: readonly string[]) {
  const isForeign = (name: string) => !known.includes(name) && !known.includes(withoutFile(name));
  return Object.fromEntries(Object.entries(environment).filter(([name]) => isForeign(name)));
}

/**
 * Rejects unknown names, because a misspelled variable would silently keep its default.
 * @param ignored names of other programs
 * @returns the problems
 */
export function checkNames(
  foreign: Environment,
  known: readonly string[],
  services: readonly ServiceNames[],
  ignored: readonly string[],
) {
  const exempt = ['SESSION_MANAGER', ...ignored];
  const serviceNames = services.map(({ name }) => name.toUpperCase()).join('|');
  const kubernetesLink = new RegExp(`^(${serviceNames})_(SERVICE|PORT)_`);
  const prefixes = services.flatMap((service) => service.prefixes);
  const removed: Readonly<Record<string, string>> = Object.assign(
    { WORKERS: 'run one process per container and add replicas' },
    ...services.map((service) => service.removed),
  );

  function problemOf(name: string) {
    if (!foreign[name] || exempt.includes(name) || kubernetesLink.test(name)) return [];
    if (name === 'PGTARGETSESSIONATTRS')
      return `${name} must not be set: use target_session_attrs in DATABASE_URL.`;
    const bare = withoutFile(name);
    if (Object.hasOwn(removed, bare)) return `${name} was removed: ${removed[bare]}.`;
    const similar = known.find((one) => isMisspelled(bare, one));
    const advice = similar ? `Did you mean ${similar}? If not, remove it` : 'Remove it';
    if (!similar && !prefixes.some((prefix) => name.startsWith(prefix))) return [];
    return `${name} is not a variable of Gatehouse. ${advice}, or add it to IGNORE_VARIABLES.`;
  }
  return Object.keys(foreign).flatMap(problemOf);
}

/** Short names are similar by chance: HOME is not a misspelled HOST. */
const isMisspelled = (name: string, known: string) =>
  Math.min(name.length, known.length) >= 6 && isWithin(2, name, known);

/** Whether at most so many inserted, removed or replaced letters turn one name into the other. */
function isWithin(edits: number, a: string, b: string): boolean {
  if (edits === 0 || Math.abs(a.length - b.length) > edits) return a === b;
  const restOfA = a.slice(1);
  const restOfB = b.slice(1);
  if (a && a[0] === b[0]) return isWithin(edits, restOfA, restOfB);
  return (
    isWithin(edits - 1, restOfA, restOfB) ||
    isWithin(edits - 1, restOfA, b) ||
    isWithin(edits - 1, a, restOfB)
  );
}
