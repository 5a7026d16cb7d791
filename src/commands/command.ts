import { parseArgs } from 'node:util';
import type { Environment } from '../platform/runtime/env.ts';
import { codeOf, StartupError } from '../platform/runtime/errors.ts';
import { toOneLine } from '../platform/runtime/text.ts';
import type { Output } from '../platform/process/runner.ts';
import { isWithin } from '../platform/process/variable-names.ts';

/** An option as `util.parseArgs` understands it, with a line of help. */
export interface Option {
  readonly type: 'string' | 'boolean';
  readonly value?: string;
  readonly required?: true;
  readonly help: string;
}

export const option = (value: string, help: string): Option => ({
  type: 'string',
  value,
  help,
});
export const requiredOption = (value: string, help: string): Option => ({
  ...option(value, help),
  required: true,
});
export const flag = (help: string): Option => ({ type: 'boolean', help });
export const json = flag('print JSON');

/**
 * @returns the choice that the option of this name has, or undefined without the option
 * @throws UsageError
 */
export function choice<T extends string>({ text }: Arguments, name: string, choices: readonly T[]) {
  const value = text(name);
  const found = choices.find((one) => one === value);
  if (found || value === undefined) return found;
  throw new UsageError(`--${name} must be one of ${choices.join(', ')}`);
}

/** Standard input, output and error. */
interface Streams extends Output {
  readonly stdin: NodeJS.ReadableStream & { readonly isTTY?: boolean };
  readonly stdout: Output['stdout'] & { readonly isTTY?: boolean };
}

export type Terminal = Readonly<ReturnType<typeof createTerminal>>;

/**
 * @param environment the variables of the command, by name
 * @param isRead whether standard output still has a reader
 */
export function createTerminal(streams: Streams, environment: Environment, isRead: () => boolean) {
  const { stdout, stderr } = streams;
  return {
    /** Called only to read: the first access makes a pipe nonblocking for all who share it. */
    stdin: () => streams.stdin,
    stdout,
    stderr,
    environment,
    isRead,
    /** Writes one line to standard output. A text of another party in it cannot add a line. */
    print(line: string) {
      stdout.write(`${toOneLine(line)}\n`);
    },
    /** Writes a text, on a terminal without characters that control it (CWE-150). */
    printText(text: string) {
      stdout.write(`${stdout.isTTY ? stripControlChars(text) : text}\n`);
    },
    /** Writes one line for the user to standard error: a program may read standard output. */
    note(line: string) {
      stderr.write(`${toOneLine(line)}\n`);
    },
  };
}

/** What a command works with. */
export type Invocation = Arguments & Terminal;

export interface Command {
  readonly name: string; // `user create`
  readonly summary: string;
  /** As shown behind the name: `ID` is required, `[ID…]` may be left out or repeated. */
  readonly positionals?: string;
  /** The only accepted positionals, at most as many in all; any if left out. */
  readonly acceptedPositionals?: readonly string[];
  readonly options?: Readonly<Record<string, Option>>;
  /** @returns what was done, for a note to the user */
  run(call: Invocation): Promise<string | void>;
}

/** The words of a command are wrong: exit 2. */
export class UsageError extends Error {}

/** The command was understood and could not be done: exit 1. */
export class OperationFailed extends StartupError {}

/**
 * Runs the command that the words name, prints its help, or lists the commands.
 * @returns the exit code: by the shells' custom, 2 is wrong use
 */
export async function runCommand(
  commands: readonly Command[],
  given: readonly string[],
  terminal: Terminal,
) {
  const words = translate(given);
  const command = commands.find(({ name }) =>
    name.split(' ').every((word, at) => word === words[at]),
  );
  try {
    if (command) await runFound(command, words, terminal);
    else printCommands(commandsToList(commands, words), terminal);
    return 0;
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    const name = command ? [command.name] : [];
    const message = [...name, error.message].join(': ').replace(/(?<!\?)$/, '.');
    terminal.note(`gatehouse: ${message} See: ${['gatehouse', ...name, '--help'].join(' ')}`);
    return 2;
  }
}

/**
 * Translates usual words for help and version. Without any word, the list of commands is printed.
 */
function translate(words: readonly string[]) {
  const [first, ...rest] = words;
  if (first === undefined || first === 'help') return [...rest, '--help'];
  return first === '--version' || first === '-v' ? ['version', ...rest] : words;
}

/**
 * @returns for help, the commands to list: those of a group, or all
 * @throws UsageError for any other words
 */
function commandsToList(commands: readonly Command[], words: readonly string[]) {
  const [first = '', second = ''] = words;
  const group = commands.filter(({ name }) => name.startsWith(`${first} `));
  const wantsHelp = words.includes('--help') || words.includes('-h');
  if (wantsHelp && group.length > 0) return group;
  if (wantsHelp && first.startsWith('-')) return commands;
  const isAlone = /^(-|$)/.test(second);
  const next = group.map(({ name }) => name.slice(first.length + 1));
  if (isAlone && group.length > 0)
    throw new UsageError(`"${first}" needs a subcommand: ${next.join(', ')}`);
  const advice = group.length > 0 ? `. "${first}" has: ${next.join(', ')}` : '';
  const meant = commands.find(({ name }) => isWithin(2, beginOf(words, name), name));
  const shown = isAlone ? first : `${first} ${second}`;
  const end = meant ? `. Did you mean "${meant.name}"?` : advice;
  throw new UsageError(`there is no command "${shown}"${end}`);
}

/** As many words as the name of the command has. */
const beginOf = (words: readonly string[], name: string) =>
  words.slice(0, name.split(' ').length).join(' ');

function printCommands(commands: readonly Command[], { print, printText }: Terminal) {
  printText('Usage: gatehouse COMMAND [OPTION…]\n');
  for (const { name, summary } of commands) print(`  ${name.padEnd(19)} ${summary}`);
  printText(
    '\nRun "gatehouse help COMMAND" for details. Settings are environment variables; see docs/configuration.md.',
  );
}

async function runFound(command: Command, words: readonly string[], terminal: Terminal) {
  if (words.some(holdsKey)) throw new UsageError(NOT_AS_ARGUMENT);
  const given = parseWords(command, words);
  if (given.flag('help')) return printHelp(command, terminal);
  checkWords(command, given);
  const done = await command.run({ ...terminal, ...given });
  for (const line of (done ?? '').split('\n')) if (line !== '') terminal.note(line);
}

/** A link with its key, or a credential of a service. */
const holdsKey = (word: string) =>
  /(#|%(25)*23)\S*[\w-]{43}|(^|=)(key|session|share):[\w-]{22}/.test(word);

const NOT_AS_ARGUMENT =
  'an argument holds a key, which other users of this machine can see. Pass links and keys on standard input, and name tokens by id';

export type Arguments = Readonly<ReturnType<typeof parseWords>>;

/** Parses the words behind a command's name. @throws UsageError */
function parseWords(command: Command, words: readonly string[]) {
  try {
    const { values, positionals } = parseArgs({
      args: words.slice(command.name.split(' ').length),
      options: { ...command.options, help: { type: 'boolean', short: 'h' } },
      allowPositionals: command.positionals !== undefined,
    });
    const given: Readonly<Record<string, unknown>> = values;
    return {
      positionals,
      /** The first positional; the empty text without one. */
      first: positionals[0] ?? '',
      flag: (name: string) => given[name] === true,
      text(name: string) {
        const value = given[name];
        return typeof value === 'string' ? value : undefined;
      },
    };
  } catch (error) {
    // The first sentence of parseArgs says which option is wrong; the rest explains how to pass odd
    // values.
    const sentence = error instanceof Error ? error.message.split(/\.\s/)[0] : '';
    // The word may be a secret, so it is not repeated.
    const isWord = codeOf(error) === 'ERR_PARSE_ARGS_UNEXPECTED_POSITIONAL';
    const problem = isWord ? `takes no argument; ${FROM_STDIN}` : sentence;
    const [, given = ''] = /^Unknown option '--([^']+)'/.exec(sentence ?? '') ?? [];
    const meant = Object.keys(command.options ?? {}).find((name) => isWithin(2, given, name));
    const advice = given !== '' && meant ? `. Did you mean --${meant}?` : '';
    throw new UsageError(`${problem}${advice}`);
  }
}

const FROM_STDIN = 'keys, passwords and texts are read from standard input';

/** @throws UsageError for too few or too many words, one that is not accepted, or no option */
function checkWords(
  { positionals: shown = '[]', acceptedPositionals: accepted, options = {} }: Command,
  { positionals, text }: Arguments,
) {
  const most = accepted?.length ?? (shown.includes('…') ? Infinity : 1);
  const isMissing = positionals.length === 0 && !shown.startsWith('[');
  if (isMissing) throw new UsageError(`takes ${shown}`);
  if (positionals.length > most) throw new UsageError(`takes ${shown}; ${FROM_STDIN}`);
  const unknown = positionals.find((word) => accepted && !accepted.includes(word));
  if (unknown !== undefined)
    throw new UsageError(`"${unknown}" is not one of ${accepted?.join(', ')}`);
  const missing = Object.keys(options).find(
    (option) => options[option]?.required && text(option) === undefined,
  );
  if (missing !== undefined) throw new UsageError(`needs --${missing}`);
}

function printHelp(
  { name, summary, positionals, options = {} }: Command,
  { print, printText }: Terminal,
) {
  const usage = [name, positionals, '[OPTION…]'].filter(Boolean).join(' ');
  printText(`Usage: gatehouse ${usage}\n\n${summary}.\n`);
  for (const [option, { value, required, help }] of Object.entries(options)) {
    const shown = value ? `--${option} ${value}` : `--${option}`;
    print(`  ${shown.padEnd(26)} ${help}${required ? ' (required)' : ''}`);
  }
  print(`  ${'--help'.padEnd(26)} print this help`);
}

/** Removes what could control a terminal; line breaks and tabs stay. */
export const stripControlChars = (text: string) =>
  text.replace(/(?![\n\t])[\p{Cc}\p{Bidi_Control}]/gu, '');
