import { parseArgs } from 'node:util';

/** An option as `util.parseArgs` understands it, with a line of help. */
export interface Option {
  readonly type: 'string' | 'boolean';
  readonly value?: string;
  readonly required?: true;
  readonly help: string;
}

export interface Arguments {
  readonly text: (name: string) => string | undefined;
  readonly flag: (name: string) => boolean;
  readonly positionals: readonly string[];
}

export interface Terminal {
  readonly print: (line: string) => void;
  /** Standard error: for people, where standard output may be read by a program. */
  readonly note: (line: string) => void;
  /** Whether standard output still has a reader. */
  readonly isRead: () => boolean;
  /** Whether standard output is a terminal, which obeys control characters. */
  readonly isShown: boolean;
}

export interface Command {
  /** `user create` */
  readonly name: string;
  readonly summary: string;
  /** As shown behind the name, such as `ID` or `[SERVICE…]`. */
  readonly positionals?: {
    readonly shown: string;
    readonly least: number;
    readonly most: number;
    /** The words that are accepted; any word if left out. */
    readonly among?: readonly string[];
  };
  readonly options: Readonly<Record<string, Option>>;
  run(given: Arguments, terminal: Terminal): Promise<void>;
}

/** The words of the command are wrong: exit 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** The command was understood and could not be done: exit 1. */
export class OperationFailed extends Error {
  override readonly name = 'OperationFailed';
}

/** By the shells' custom, 2 is wrong use. */
const EXIT = { done: 0, failed: 1, usage: 2 } as const;

/** Runs the command that the words name. @returns the exit code */
export async function runCommand(
  commands: readonly Command[], words: readonly string[], terminal: Terminal,
): Promise<number> {
  let help = 'gatehouse --help';
  try {
    const command = findCommand(commands, words, terminal.print);
    if (!command) return EXIT.done;
    help = `gatehouse ${command.name} --help`;
    const given = parseCommand(command, words.slice(command.name.split(' ').length));
    if (given.flag('help')) printHelp(command, terminal.print);
    else await command.run(given, terminal);
    return EXIT.done;
  } catch (error) {
    if (!(error instanceof UsageError || error instanceof OperationFailed)) throw error;
    const isUsage = error instanceof UsageError;
    terminal.note(`gatehouse: ${error.message}${isUsage ? `. See: ${help}` : ''}`);
    return isUsage ? EXIT.usage : EXIT.failed;
  }
}

/** @returns null if the general help was asked for and has been printed. @throws UsageError */
function findCommand(
  commands: readonly Command[], words: readonly string[], print: Terminal['print'],
): Command | null {
  const [first = '', second = ''] = words;
  const found = commands.find(({ name }) => name === first || name === `${first} ${second}`);
  if (found) return found;
  const wantsHelp = words.includes('--help') || words.includes('-h');
  const group = commands.filter(({ name }) => name.startsWith(`${first} `));
  if (!wantsHelp && group.length > 0) {
    throw new UsageError(`"${first}" goes on with ${group.map(({ name }) => name.slice(first.length + 1)).join(', ')}`);
  }
  if (!wantsHelp || (group.length === 0 && !first.startsWith('-'))) {
    const given = [first, second].filter(Boolean).join(' ');
    throw new UsageError(given === '' ? 'name a command' : `there is no command "${given}"`);
  }
  print('Usage: gatehouse COMMAND [OPTION…]\n');
  for (const { name, summary } of group.length > 0 ? group : commands) print(`  ${name.padEnd(17)} ${summary}`);
  print('\nRun a command with --help for details. Settings are environment variables; see docs/configuration.md.');
  return null;
}

/** Parses the words behind a command's name. @throws UsageError */
function parseCommand(command: Command, words: readonly string[]): Arguments {
  const options = { ...command.options, help: { type: 'boolean', help: 'print this help', short: 'h' } } as const;
  const { values, positionals } = parseWords();
  const { least, most, shown, among } = command.positionals ?? { least: 0, most: 0, shown: '' };
  const given = new Map<string, unknown>(Object.entries(values));
  if (given.get('help') !== true) {
    if (positionals.length < least || positionals.length > most) throw new UsageError(`${command.name} takes ${shown}`);
    const unknown = positionals.find((word) => among && !among.includes(word));
    if (unknown !== undefined) throw new UsageError(`"${unknown}" is not one of ${among?.join(', ')}`);
    const missing = Object.keys(command.options).find((name) => command.options[name]?.required && !given.has(name));
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
      return parseArgs({ args: [...words], options, allowPositionals: command.positionals !== undefined });
    } catch (error) {
      // The first sentence of parseArgs says which option is wrong; the rest explains how to pass odd values.
      const sentence = error instanceof Error ? (error.message.split(/\.\s/)[0] ?? '') : '';
      throw new UsageError(`${command.name}: ${sentence}`);
    }
  }
}

function printHelp({ name, summary, positionals, options }: Command, print: Terminal['print']): void {
  print(`Usage: gatehouse ${[name, positionals?.shown, '[OPTION…]'].filter(Boolean).join(' ')}\n\n${summary}.\n`);
  for (const [option, { value, required, help }] of Object.entries(options)) {
    print(`  ${`--${option}${value ? ` ${value}` : ''}`.padEnd(26)} ${help}${required ? ' (required)' : ''}`);
  }
  print(`  ${'--help'.padEnd(26)} print this help`);
}
