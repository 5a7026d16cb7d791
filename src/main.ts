import { type Command, createTerminal, runCommand, type Terminal } from './commands/command.ts';
import { Env } from './platform/runtime/env.ts';
import { describeError, StartupError, Unavailable } from './platform/runtime/errors.ts';
import { createLog } from './platform/runtime/log.ts';
import { startServices } from './platform/process/start.ts';
import { configure, SERVICE_NAMES } from './serve.ts';
import { ConfigurationError, readLogForm } from './platform/process/settings.ts';
import { readVersion } from './platform/runtime/version.ts';

/**
 * 78 is for a wrong configuration, as in sysexits(3). `commands/command.ts` adds 0 for success and
 * 2 for wrong use.
 */
const EXIT = { failed: 1, configuration: 78 } as const;

const SERVE: Command = {
  name: 'serve',
  positionals: '[SERVICE…]',
  acceptedPositionals: SERVICE_NAMES,
  summary: `Serve the named services (${SERVICE_NAMES.join(', ')}), or all, in one process`,
  async run({ positionals, environment, stdout, stderr }) {
    const configuration = await configure(positionals, 'serve', environment);
    const { LOG_FORMAT, SHUTDOWN_DELAY } = configuration.shared;
    const isText = LOG_FORMAT === 'text' || (LOG_FORMAT === 'auto' && stdout.isTTY);
    const textLog = isText ? await import('./commands/text-log.ts') : null;
    const stopped = firstSignal();
    try {
      const services = await startServices(configuration, {
        stdout,
        stderr,
        format: textLog?.formatLine,
      });
      const signal = await Promise.race([stopped, services.ready.then(() => stopped)]);
      // SIGINT comes from a person, who does not wait for a load balancer.
      await services.stop(signal === 'SIGTERM' ? SHUTDOWN_DELAY : 0);
    } finally {
      // A reader of the last log lines may have stopped.
      setTimeout(() => process.exit(), 750).unref();
    }
  },
};

/** A second SIGTERM or SIGINT ends the process at once. @returns the first one */
function firstSignal(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    let isFirst = true;
    const onSignal = (signal: NodeJS.Signals) => {
      if (!isFirst) process.exit(EXIT.failed);
      isFirst = false;
      resolve(signal);
    };
    process.on('SIGTERM', onSignal).on('SIGINT', onSignal);
    // Operators send these to programs that read settings or open log files again. Without a
    // listener, SIGUSR1 opens Node's inspector, which can read every secret, and SIGUSR2 ends the
    // process.
    for (const name of ['SIGHUP', 'SIGUSR1', 'SIGUSR2'])
      process.on(name, () =>
        people.note(`gatehouse: ${name} changes nothing. Restart to apply new settings.`),
      );
  });
}

/** Not loaded for `serve`, whose memory they would take. */
const COMMANDS = {
  all: () => [import('./commands/program.ts')],
  identity: () => [import('./commands/identity.ts')],
  secrets: () => [import('./commands/secrets.ts')],
  webhook: () => [import('./commands/webhook.ts'), import('./commands/events.ts')],
};

/** Whether standard output has a reader. */
let isRead = true;
/** Whether something written was lost. */
let isLost = false;
const people = createTerminal(process, process.env, () => isRead);
const isServed = process.argv[2] === SERVE.name;
const terminal = isServed ? { ...people, note: noteInLog(people) } : people;

/** A collector of JSON lines drops or misfiles other lines, such as why `serve` has ended. */
function noteInLog({ note, environment }: Terminal) {
  const { LOG_FORMAT, INSTANCE_NAME: instance } = readLogForm(new Env(environment));
  const isSeen = process.stdout.isTTY || process.stderr.isTTY;
  if (LOG_FORMAT === 'text' || (LOG_FORMAT === 'auto' && isSeen)) return note;
  const common = { instance, version: readVersion() };
  const log = createLog('error', (line) => process.stderr.write(line), common);
  return (message: string) => log.error(message.replace(/^gatehouse: /, ''));
}

/** @returns the exit code; what went wrong is one line on standard error, never a stack */
async function main(words: readonly string[]) {
  try {
    const loads = isServed ? [] : Object.values(COMMANDS);
    const modules = await Promise.all(loads.flatMap((load) => load()));
    const commands = modules.flatMap((module) => module.COMMANDS);
    return await runCommand([SERVE, ...commands], words, terminal);
  } catch (error) {
    if (error instanceof ConfigurationError) return fail(EXIT.configuration, ...error.problems);
    if (error instanceof StartupError || error instanceof Unavailable)
      return fail(EXIT.failed, error.message);
    const { error: reason, stack = '' } = describeError(error);
    return fail(EXIT.failed, `internal error: ${reason} ${stack}`);
  }
}

function fail(code: number, ...messages: readonly string[]) {
  for (const message of messages) terminal.note(`gatehouse: ${message}`);
  return code;
}

// A reader that leaves, such as `head`, must not end the process with a stack, nor stop a service.
// Any other failure is reported: what was printed may have been the only copy of a key.
for (const stream of [process.stdout, process.stderr]) {
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (stream === process.stdout) isRead = false;
    if (error.code === 'EPIPE' || isLost) return;
    isLost = true;
    process.exitCode = fail(EXIT.failed, `the output could not be written (${error.code})`);
  });
}
const code = await main(process.argv.slice(2));
process.exitCode = isLost ? EXIT.failed : code;
