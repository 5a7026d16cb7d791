import type { Env, Environment } from '../runtime/env.ts';
import { escapeUnsafe } from '../runtime/text.ts';

/** What is known of the names of the variables of a service. */
export type VariableNames = Readonly<{
  name: string;
  /** How names of this service begin: an unknown variable that begins so causes a warning. */
  PREFIXES: readonly string[];
  /** Removed variables, with what to do instead. */
  REMOVED?: Readonly<Record<string, string>>;
}>;

/** What must not be set for any service. The database client would read the second one. */
const REMOVED = {
  WORKERS: 'was removed: run one process per container and add replicas',
  PGTARGETSESSIONATTRS: 'must not be set: use target_session_attrs in DATABASE_URL',
};

/** Usual names in other programs, which look like misspelled ones of ours. */
const FOREIGN = [
  'APPNAME',
  'DATABASE_SSL',
  'DATABASE_URI',
  'LINK_URL',
  'LOGLEVEL',
  'PASSWORD_HASH',
  'WEBHOOK_PATH',
];

const withoutFile = (name: string) => name.replace(/_FILE$/, '');

/** The environment without Gatehouse's variables. */
export function foreignVariables(environment: Environment, known: readonly string[]) {
  const isForeign = (name: string) => !known.includes(name) && !known.includes(withoutFile(name));
  return Object.fromEntries(Object.entries(environment).filter(([name]) => isForeign(name)));
}

/**
 * Rejects misspelled names, because the variable would silently keep its default. Other programs
 * may share the environment, so a name that only begins like ours causes a warning.
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
    const shown = escapeUnsafe(name);
    const bare = withoutFile(name);
    const remedy = removed.get(bare);
    const similar = known.find((one) => isMisspelled(bare, one));
    if (remedy !== undefined) {
      env.problem(shown, `${remedy}.`);
    } else if (similar !== undefined && !FOREIGN.includes(bare)) {
      const advice = `Did you mean ${similar}? If not, remove it, or add it to IGNORE_VARIABLES`;
      env.problem(shown, `is not a variable of Gatehouse. ${advice}.`);
    } else if (similar !== undefined || prefixes.some((prefix) => name.startsWith(prefix))) {
      env.warnings.add(
        `${shown} is not a variable of Gatehouse and has no effect. If another program needs it, add it to IGNORE_VARIABLES.`,
      );
    }
  }
}

/** Short names are similar by chance: HOME is not a misspelled HOST. */
const isMisspelled = (name: string, known: string) =>
  Math.min(name.length, known.length) >= 6 &&
  (isWithin(2, name, known) || (known.includes('_') && wordsOf(name) === wordsOf(known)));

/** Other forms of words in our names. */
const OUR_WORDS: Readonly<Record<string, string>> = {
  DIRECTORY: 'DIR',
  MAXIMUM: 'MAX',
  MINIMUM: 'MIN',
  PREV: 'PREVIOUS',
  SIZE: 'BYTES',
};

/** The words of a name, whatever their case, number, order and abbreviation. */
function wordsOf(name: string) {
  const words = name.toUpperCase().split('_');
  const stems = words.map((word) =>
    (OUR_WORDS[word] ?? word).replace(/IES$/, 'Y').replace(/(ES|E|S)$/, ''),
  );
  return stems.sort().join('_');
}

/** Whether at most so many inserted, removed or replaced letters turn one name into the other. */
export function isWithin(edits: number, a: string, b: string): boolean {
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
