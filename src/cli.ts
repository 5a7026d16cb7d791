#!/usr/bin/env node
import type { Worker } from 'node:cluster';
import { parseArgs } from 'node:util';
import { type Arguments, type Command, OperationFailed, type Terminal, UsageError } from './command.ts';
import { type Config, ConfigurationError, readConfig, SERVICES, type ServiceName } from './config.ts';
import { linesOf, readAll } from './input.ts';
import { describeTrouble, StartupError, Unavailable } from './runtime/trouble.ts';
import { migrateAll, serve } from './serve.ts';
import type { Answer, Order } from './workers.ts';

/** sysexits(3): wrong use is 2 by the shells' custom, wrong configuration EX_CONFIG. */
const EXIT = { done: 0, failed: 1, usage: 2, configuration: 78 } as const;

/** How long the last log lines may take to be read. */
const LAST_WORDS_MS = 1_000;

const output = { stdout: process.stdout, stderr: process.stderr };
const services = { shown: '[SERVICE…]', least: 0, most: SERVICES.length };

const SERVE: Command = {
  name: 'serve',
  summary: `Serve ${SERVICES.join(', ')}: those named, or all three, in one process`,
  positionals: services,
  options: {},
  async run({ positionals }) {
    const stop = new AbortController();
    const config = readConfig(serviceNames(positionals), 'serve');
    const worker = process.send && (await import('node:cluster')).default.worker;
    // Who ends a process waits for its end. What a reader that has stopped does not take by then is lost.
    const leave = () => void setTimeout(() => process.exit(), LAST_WORDS_MS).unref();
    if (worker) return serveAsWorker(config, worker).finally(leave);
    // A second signal of whoever is in a hurry ends the process at once.
    const onSignal = () => (stop.signal.aborted ? process.exit(EXIT.failed) : stop.abort());
    process.on('SIGTERM', onSignal).on('SIGINT', onSignal);
    const run = config.workers === 1 ? serve : (await import('./workers.ts')).superviseWorkers;
    await run(config, output, stop.signal).finally(leave);
  },
};

/** A worker. The process above says when it begins and ends: a terminal, or whoever ends a whole group, signals both. */
async function serveAsWorker(config: Config, worker: Worker): Promise<void> {
  const stop = new AbortController();
  for (const name of ['SIGTERM', 'SIGINT'] as const) process.on(name, () => {});
  const say = (answer: Answer) => void process.send?.(answer, () => {});
  let numbers = () => '';
  const begun = new Promise<Order>((resolve) =>
    process.on('message', (order: Order) => {
      if (order === 'numbers') return say({ kind: 'numbers', text: numbers() });
      if (order === 'stop') stop.abort();
      resolve(order);
    }),
  );
  say({ kind: 'here' });
  const order = await begun;
  try {
    await serve(config, output, stop.signal, { isFirst: order === 'begin as the first', onReady: () => say({ kind: 'ready' }), onNumbers: (text) => (numbers = text) });
  } finally {
    // The channel keeps the process alive. To cut it would have Node end the process, whatever is still to be written.
    worker.disconnect();
  }
}

const MIGRATE: Command = {
  name: 'migrate',
  summary: 'Bring the database schemas of the named services, or of all three, up to date',
  positionals: services,
  options: {},
  async run({ positionals }, { print }) {
    const applied = await migrateAll(readConfig(serviceNames(positionals), 'administer'), output);
    for (const [name, steps] of applied) print(`${name}: ${steps === 0 ? 'is up to date' : `applied ${steps} step${steps === 1 ? '' : 's'}`}`);
  },
};

/** Every command there is. Administration is loaded only when asked for, to keep `serve` small. */
async function allCommands(): Promise<readonly Command[]> {
  const [identity, secrets, webhook, events] = await Promise.all([import('./admin-identity.ts'), import('./admin-secrets.ts'), import('./admin-webhook.ts'), import('./admin-events.ts')]);
  return [SERVE, MIGRATE, ...identity.IDENTITY_COMMANDS, ...secrets.SECRETS_COMMANDS, ...webhook.WEBHOOK_COMMANDS, ...events.EVENT_COMMANDS];
}

function serviceNames(words: readonly string[]): readonly ServiceName[] {
  if (words.length === 0) return SERVICES;
  const named = SERVICES.filter((service) => words.includes(service));
  const stranger = words.find((word) => !named.some((service) => service === word));
  if (stranger !== undefined) throw new UsageError(`there is no service "${stranger}"; the services are ${SERVICES.join(', ')}`);
  return named;
}

let isRead = true;
const terminal: Terminal = {
  print: (line) => void process.stdout.write(`${line}\n`),
  note: (line) => void process.stderr.write(`${line}\n`),
  readInput: () => readAll(process.stdin),
  openLines: () => linesOf(process.stdin),
  isRead: () => isRead,
  isShown: process.stdout.isTTY,
};

/** @returns the exit code; what went wrong is one line on standard error, never a stack */
async function main(words: readonly string[]): Promise<number> {
  let help = 'gatehouse --help';
  try {
    const command = await findCommand(words);
    if (!command) return EXIT.done;
    help = `gatehouse ${command.name} --help`;
    const given = parse(command, words.slice(command.name.split(' ').length));
    if (given.flag('help')) printHelp(command);
    else await command.run(given, terminal);
    return EXIT.done;
  } catch (error) {
    if (error instanceof UsageError) return fail(EXIT.usage, `${error.message}. See: ${help}`);
    if (error instanceof ConfigurationError) return fail(EXIT.configuration, error.problems.join('\ngatehouse: '));
    if (error instanceof StartupError || error instanceof Unavailable || error instanceof OperationFailed) {
      return fail(EXIT.failed, error.message);
    }
    const { trouble, place = '' } = describeTrouble(error);
    return fail(EXIT.failed, `internal error: ${trouble} ${place}`);
  }
}

function fail(code: number, message: string): number {
  terminal.note(`gatehouse: ${message}`);
  return code;
}

/** @returns null when the general help was asked for and has been printed */
async function findCommand(words: readonly string[]): Promise<Command | null> {
  const [first = '', second = ''] = words;
  if (first === SERVE.name) return SERVE;
  const commands = await allCommands();
  const found = commands.find(({ name }) => name === first || name === `${first} ${second}`);
  if (found) return found;
  const wantsHelp = words.includes('--help') || words.includes('-h');
  const shown = commands.filter(({ name }) => name.startsWith(`${first} `));
  if (!wantsHelp && shown.length > 0) throw new UsageError(`"${first}" goes on with ${shown.map(({ name }) => name.slice(first.length + 1)).join(', ')}`);
  if (!wantsHelp || (shown.length === 0 && !first.startsWith('-'))) {
    throw new UsageError(first === '' ? 'name a command' : `there is no command "${[first, second].filter(Boolean).join(' ')}"`);
  }
  terminal.print('Usage: gatehouse COMMAND [OPTION…]\n');
  for (const { name, summary } of shown.length > 0 ? shown : commands) terminal.print(`  ${name.padEnd(15)} ${summary}`);
  terminal.print('\nEach command tells more with --help. Configuration is by environment variables; see README.md.');
  return null;
}

function parse(command: Command, words: readonly string[]): Arguments {
  const options = { ...command.options, help: { type: 'boolean', help: 'print this help', short: 'h' } } as const;
  try {
    const { values, positionals } = parseArgs({ args: [...words], options, allowPositionals: command.positionals !== undefined });
    const { least, most, shown } = command.positionals ?? { least: 0, most: 0, shown: '' };
    if (values.help !== true && (positionals.length < least || positionals.length > most)) {
      throw new UsageError(`${command.name} takes ${shown}`);
    }
    const value = new Map<string, unknown>(Object.entries(values));
    const missing = Object.keys(command.options).find((name) => command.options[name]?.required && !value.has(name));
    if (missing !== undefined && values.help !== true) throw new UsageError(`${command.name} needs --${missing}`);
    return {
      positionals,
      flag: (name) => value.get(name) === true,
      text: (name) => {
        const given = value.get(name);
        return typeof given === 'string' ? given : undefined;
      },
    };
  } catch (error) {
    if (error instanceof UsageError) throw error;
    // parseArgs says which option is wrong in its first sentence; the rest explains how to pass odd values.
    const sentence = error instanceof Error ? (error.message.split(/\.\s/)[0] ?? '') : '';
    throw new UsageError(`${command.name}: ${sentence}`);
  }
}

function printHelp({ name, summary, positionals, options }: Command): void {
  terminal.print(`Usage: gatehouse ${[name, positionals?.shown, '[OPTION…]'].filter(Boolean).join(' ')}\n\n${summary}.\n`);
  for (const [option, { value, required, help }] of Object.entries(options)) {
    terminal.print(`  ${`--${option}${value ? ` ${value}` : ''}`.padEnd(26)} ${help}${required ? ' (required)' : ''}`);
  }
  terminal.print(`  ${'--help'.padEnd(26)} print this help`);
}

// A reader that leaves, such as `head`, is no reason to end with a stack, nor for a service to stop serving. Elsewhere what
// was printed may have been the only copy of a key.
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
