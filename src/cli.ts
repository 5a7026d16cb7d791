#!/usr/bin/env node
import {
  type Command, findCommand, OperationFailed, parseCommand, printHelp, type Terminal, UsageError,
} from './commands/command.ts';
import { describeError, StartupError, Unavailable } from './runtime/errors.ts';
import { configure, migrateAll, serve, SERVICE_NAMES } from './serve.ts';
import { ConfigurationError } from './settings.ts';

/** By the shells' custom 2 is wrong use; sysexits(3) has 78 for wrong configuration. */
const EXIT = { done: 0, failed: 1, usage: 2, configuration: 78 } as const;

/** How long a reader may take for the last log lines. */
const LAST_LINES_MS = 1_000;

const output = { stdout: process.stdout, stderr: process.stderr };
const services = { shown: '[SERVICE…]', least: 0, most: SERVICE_NAMES.length };

const SERVE: Command = {
  name: 'serve',
  summary: `Serve ${SERVICE_NAMES.join(', ')}: those named, or all, in one process`,
  positionals: services,
  options: {},
  async run({ positionals }) {
    const configuration = await configure(serviceNames(positionals), 'serve');
    const stop = new AbortController();
    // A second signal ends the process at once.
    const onSignal = () => (stop.signal.aborted ? process.exit(EXIT.failed) : stop.abort());
    process.on('SIGTERM', onSignal).on('SIGINT', onSignal);
    // A reader of the log that has stopped does not delay the end.
    const endSoon = () => void setTimeout(() => process.exit(), LAST_LINES_MS).unref();
    await serve(configuration, output, stop.signal).finally(endSoon);
  },
};

const MIGRATE: Command = {
  name: 'migrate',
  summary: 'Bring the database schemas of the named services, or of all, up to date',
  positionals: services,
  options: {},
  async run({ positionals }, { print }) {
    const applied = await migrateAll(await configure(serviceNames(positionals), 'administer'), output);
    for (const [name, steps] of applied) {
      print(`${name}: ${steps === 0 ? 'is up to date' : `applied ${steps} step${steps === 1 ? '' : 's'}`}`);
    }
  },
};

/** The commands of each service by their first word, loaded on demand. */
const GROUPS = {
  identity: [/^(user|key|audit)$/, () => [import('./commands/identity.ts')]],
  secrets: [/^secret$/, () => [import('./commands/secrets.ts')]],
  webhook: [/^(token|event)$/, () => [import('./commands/webhook.ts'), import('./commands/events.ts')]],
} as const;

async function commandsFor(word: string): Promise<readonly Command[]> {
  const own = [SERVE, MIGRATE].filter(({ name }) => name === word);
  if (own.length > 0) return own;
  const groups = Object.values(GROUPS);
  const named = groups.filter(([first]) => first.test(word));
  const modules = await Promise.all((named.length > 0 ? named : groups).flatMap(([, load]) => load()));
  return [SERVE, MIGRATE, ...modules.flatMap((module) => module.COMMANDS)];
}

function serviceNames(words: readonly string[]): readonly string[] {
  const unknown = words.find((word) => !SERVICE_NAMES.includes(word));
  if (unknown !== undefined) {
    throw new UsageError(`there is no service "${unknown}"; the services are ${SERVICE_NAMES.join(', ')}`);
  }
  return words.length === 0 ? SERVICE_NAMES : words;
}

let isRead = true;
const terminal: Terminal = {
  print: (line) => void process.stdout.write(`${line}\n`),
  note: (line) => void process.stderr.write(`${line}\n`),
  isRead: () => isRead,
  isShown: process.stdout.isTTY,
};

/** @returns the exit code; what went wrong is one line on standard error, never a stack */
async function main(words: readonly string[]): Promise<number> {
  let help = 'gatehouse --help';
  try {
    const command = findCommand(await commandsFor(words[0] ?? ''), words, terminal.print);
    if (!command) return EXIT.done;
    help = `gatehouse ${command.name} --help`;
    const given = parseCommand(command, words.slice(command.name.split(' ').length));
    if (given.flag('help')) printHelp(command, terminal.print);
    else await command.run(given, terminal);
    return EXIT.done;
  } catch (error) {
    if (error instanceof UsageError) return fail(EXIT.usage, `${error.message}. See: ${help}`);
    if (error instanceof ConfigurationError) return fail(EXIT.configuration, error.problems.join('\ngatehouse: '));
    if (error instanceof StartupError || error instanceof Unavailable || error instanceof OperationFailed) {
      return fail(EXIT.failed, error.message);
    }
    const { error: reason, stack = '' } = describeError(error);
    return fail(EXIT.failed, `internal error: ${reason} ${stack}`);
  }
}

function fail(code: number, message: string): number {
  terminal.note(`gatehouse: ${message}`);
  return code;
}

// A reader that leaves, such as `head`, must not end the process with a stack, nor stop a service. Any other failure is
// reported: what was printed may have been the only copy of a key.
let isLost = false;
for (const stream of [process.stdout, process.stderr]) {
  stream.on('error', (error: NodeJS.ErrnoException) => {
    isRead &&= stream !== process.stdout;
    if (error.code === 'EPIPE' || isLost) return;
    isLost = true;
    process.exitCode = fail(EXIT.failed, `the output could not be written (${error.code})`);
  });
}
const code = await main(process.argv.slice(2));
process.exitCode = isLost ? EXIT.failed : code;
