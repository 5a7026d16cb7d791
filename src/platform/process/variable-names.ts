import type { Env, Environment } from '../runtime/env.ts';

/** What is known of the names of the variables of a service. */
export type VariableNames = Readonly<{
  name: string;
  /** How names of this service begin: an unknown variable that begins so is an error. */
  PREFIXES: readonly string[];
  /** Removed variables, with what to do instead. */
  REMOVED?: Readonly<Record<string, string>>;
}>;

/** What must not be set for any service. The database client would read the second one. */
const REMOVED = {
  WORKERS: 'was removed: run one process per container and add replicas',
  PGTARGETSESSIONATTRS: 'must not be set: use target_session_attrs in DATABASE_URL',
};

const withoutFile = (name: string): string => name.replace(/_FILE$/, '');

/** The environment without Gatehouse's variables. */
export function foreignVariables(environment: Environment, known: readonly string[]) {
  const isForeign = (name: string) => !known.includes(name) && !known.includes(withoutFile(name));
  return Object.fromEntries(Object.entries(environment).filter(([name]) => isForeign(name)));
}

/**
 * Rejects unknown names, because a misspelled variable would silently keep its default.
 * @param ignored names of other programs
 */
export function checkNames(
  env: Env,
  known: readonly string[],
  services: readonly VariableNames[],
  ignored: readonly string[],
) {
  const exempt = ['SESSION_MANAGER', ...ignored];
  const prefixes = services.flatMap(({ name, PREFIXES }) => [
    `${name.toUpperCase()}_`,
    ...PREFIXES,
  ]);
  const serviceNames = services.map(({ name }) => name.toUpperCase()).join('|');
  const kubernetesLink = new RegExp(`^(${serviceNames})_(SERVICE|PORT)_`);
  const removed = new Map(
    [REMOVED, ...services.map((service) => service.REMOVED ?? {})].flatMap(Object.entries<string>),
  );
  for (const [name, value] of Object.entries(env.foreign)) {
    if (!value || exempt.includes(name) || kubernetesLink.test(name)) continue;
    const bare = withoutFile(name);
    const similar = known.find((one) => isMisspelled(bare, one));
    const isOurs = similar || prefixes.some((prefix) => name.startsWith(prefix));
    const advice = similar ? `Did you mean ${similar}? If not, remove it` : 'Remove it';
    const unknown = `is not a variable of Gatehouse. ${advice}, or add it to IGNORE_VARIABLES`;
    const problem = removed.get(bare) ?? (isOurs && unknown);
    if (problem) env.problem(name, `${problem}.`);
  }
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
