import { parseArgs } from 'node:util';
import { isWithin } from '../settings.ts';

/** An option as `util.parseArgs` understands it, with a line of help. */
export interface Option {
  readonly type: 'string' | 'boolean';
  readonly value?: string;
  readonly required?: true;
  readonly help: string;
}

export const option = (value: string, help: string): Option => ({ type: 'string', value, help });
export const flag = (help: string): Option => ({ type: 'boolean', help });
export const json = flag('print JSON');

/** @returns the choice that the option of this name has. @throws UsageError */
export function choice<T extends string>(
  { text }: Arguments,
  name: string,
  choices: readonly T[],
): T | undefined {
  const found = choices.find((one) => one === text(name));
  if (text(name) === undefined || found) return found;
  throw new UsageError(`--${name} must be one of ${choices.join(', ')}`);
}

export interface Arguments {
  readonly text: (name: string) => string | undefined;
  readonly flag: (name: string) => boolean;
  readonly positionals: readonly string[];
}

export interface Terminal {
  readonly print: (line: string) => void;
  /** Writes a message for the user to standard error, because a program may read standard output. */
  readonly note: (line: string) => void;
  /** Whether standard output still has a reader. */
  readonly isRead: () => boolean;
  readonly isShown: boolean; // whether standard output is a terminal, which interprets control characters
}

export interface Command {
  readonly name: string; // `user create`
  readonly summary: string;
  /** As shown behind the name: `ID` is required, `[ID…]` may be left out or repeated. */
  readonly positionals?: string;
  readonly among?: readonly string[]; // the positionals that are accepted, once each; any if left out
  readonly options: Readonly<Record<string, Option>>;
  /** @param commands all there are, where the word is in no group of main.ts */
  run(given: Arguments, terminal: Terminal, commands: readonly Command[]): Promise<void>;
}

/** The words of the command are wrong: exit 2. What `run` throws is reported with the command's name. */
export class UsageError extends Error {}

/** The command was understood and could not be done: exit 1. */
export class OperationFailed extends Error {}

/** Translates usual words for help and version. Without any word, the list of commands is printed. */
function translate(words: readonly string[]): readonly string[] {
  const [first, ...rest] = words;
  if (first === undefined || first === 'help') return [...rest, '--help'];
  return first === '--version' || first === '-v' ? ['version', ...rest] : words;
}

/** Runs the command that the words name. @returns the exit code: by the shells' custom, 2 is wrong use */
export async function runCommand(
  commands: readonly Command[],
  given: readonly string[],
  terminal: Terminal,
): Promise<number> {
  const words = translate(given);
  let [prefix, help] = ['', 'gatehouse --help'];
  try {
    const command = findCommand(commands, words, terminal.print);
    if (!command) return 0;
    help = `gatehouse ${command.name} --help`;
    const parsed = parseCommand(command, words.slice(command.name.split(' ').length));
    prefix = `${command.name}: `;
    if (parsed.flag('help')) printHelp(command, terminal.print);
    else await command.run(parsed, terminal, commands);
    return 0;
  } catch (error) {
    if (!(error instanceof UsageError || error instanceof OperationFailed)) throw error;
    const isUsage = error instanceof UsageError;
    terminal.note(
      `gatehouse: ${isUsage ? `${prefix}${error.message}. See: ${help}` : error.message}`,
    );
    return isUsage ? 2 : 1;
  }
}

/** @returns null if the general help was asked for and has been printed. @throws UsageError */
function findCommand(
  commands: readonly Command[],
  words: readonly string[],
  print: Terminal['print'],
) {
  const [first = '', second = ''] = words;
  const found = commands.find(({ name }) =>
    name.split(' ').every((word, at) => word === words[at]),
  );
  if (found) return found;
  const wantsHelp = words.includes('--help') || words.includes('-h');
  const group = commands.filter(({ name }) => name.startsWith(`${first} `));
  const next = group.map(({ name }) => name.slice(first.length + 1));
  if (!wantsHelp && group.length > 0) {
    throw new UsageError(
      `"${first}" needs a subcommand: ${next.join(', ')}${didYouMean(second, next)}`,
    );
  }
  if (!wantsHelp || (group.length === 0 && !first.startsWith('-'))) {
    const guess = didYouMean(
      first,
      commands.map(({ name }) => name.split(' ')[0] ?? ''),
    );
    throw new UsageError(
      `there is no command "${first}${/^(-|$)/.test(second) ? '' : ` ${second}`}"${guess}`,
    );
  }
  print('Usage: gatehouse COMMAND [OPTION…]\n');
  for (const { name, summary } of group.length > 0 ? group : commands)
    print(`  ${name.padEnd(19)} ${summary}`);
  print(
    '\nRun "gatehouse help COMMAND" for details. Settings are environment variables; see docs/configuration.md.',
  );
  return null;
}

/** Suggests a choice that differs from the word by one letter, or by two if the word is long enough. */
function didYouMean(word: string, choices: readonly string[]): string {
  const edits = word.length < 4 ? [1] : [1, 2];
  const found = edits.flatMap(
    (count) => choices.find((choice) => isWithin(count, word, choice)) ?? [],
  );
  return found[0] === undefined ? '' : ` (did you mean "${found[0]}"?)`;
}

/** Parses the words behind a command's name. @throws UsageError */
function parseCommand(command: Command, words: readonly string[]): Arguments {
  const options = {
    ...command.options,
    help: { type: 'boolean', help: 'print this help', short: 'h' },
  } as const;
  const { values, positionals } = parseWords();
  const { positionals: shown = '[]', among } = command;
  const most = among?.length ?? (shown.includes('…') ? Infinity : 1);
  const given = new Map<string, unknown>(Object.entries(values));
  if (given.get('help') !== true) {
    const isMissing = positionals.length === 0 && !shown.startsWith('[');
    if (isMissing || positionals.length > most)
      throw new UsageError(`${command.name} takes ${shown}`);
    const unknown = positionals.find((word) => among && !among.includes(word));
    if (unknown !== undefined) {
      throw new UsageError(
        `"${unknown}" is not one of ${among?.join(', ')}${didYouMean(unknown, among ?? [])}`,
      );
    }
    const missing = Object.keys(command.options).find(
      (name) => command.options[name]?.required && !given.has(name),
    );
    if (missing !== undefined) throw new UsageError(`${command.name} needs --${missing}`);
  }
  return {
    positionals,
    flag: (name) => given.get(name) === true,
    text(name) {
      const value = given.get(name);
      return typeof value === 'string' ? value : undefined;
    },
  };

  function parseWords() {
    try {
      return parseArgs({
        args: [...words],
        options,
        allowPositionals: command.positionals !== undefined,
      });
    } catch (error) {
      // The first sentence of parseArgs says which option is wrong; the rest explains how to pass odd values.
      const sentence = error instanceof Error ? (error.message.split(/\.\s/)[0] ?? '') : '';
      const [, unknown] = /^Unknown option '--([^']*)'/.exec(sentence) ?? [];
      const known = Object.keys(options).map((name) => `--${name}`);
      const guess = unknown === undefined ? '' : didYouMean(`--${unknown}`, known);
      throw new UsageError(`${command.name}: ${sentence}${guess}`);
    }
  }
}

function printHelp(
  { name, summary, positionals, options }: Command,
  print: Terminal['print'],
): void {
  print(
    `Usage: gatehouse ${[name, positionals, '[OPTION…]'].filter(Boolean).join(' ')}\n\n${summary}.\n`,
  );
  for (const [option, { value, required, help }] of Object.entries(options)) {
    print(
      `  ${`--${option}${value ? ` ${value}` : ''}`.padEnd(26)} ${help}${required ? ' (required)' : ''}`,
    );
  }
  print(`  ${'--help'.padEnd(26)} print this help`);
}
