import { describeError, StartupError, Unavailable } from './runtime/errors.ts';
import { configure, serve, SERVICE_NAMES } from './serve.ts';
import { ConfigurationError } from './settings.ts';

/** 78 is for a wrong configuration, as in sysexits(3). `commands/command.ts` adds 0 for success and 2 for wrong use. */
const EXIT = { failed: 1, configuration: 78 } as const;

/** How long a reader may take for the last log lines. */
const LAST_LINES_MS = 750;

type Given = { readonly positionals: readonly string[] };

const SERVE = {
  name: 'serve',
  positionals: '[SERVICE…]',
  among: SERVICE_NAMES,
  options: {},
  summary: `Serve ${SERVICE_NAMES.join(', ')}: those named, or all, in one process`,
  async run({ positionals: names }: Given) {
    const configuration = await configure(names.length > 0 ? names : SERVICE_NAMES, 'serve');
    const stop = new AbortController();
    // A second signal ends the process at once.
    const onSignal = () => (stop.signal.aborted ? process.exit(EXIT.failed) : stop.abort());
    process.on('SIGTERM', onSignal).on('SIGINT', onSignal);
    // Not as a second one: service managers send SIGTERM and SIGHUP together.
    process.on('SIGHUP', () => stop.abort());
    // Bounds the wait for a reader of the log that has stopped.
    const endSoon = () => void setTimeout(() => process.exit(), LAST_LINES_MS).unref();
    await serve(configuration, process, stop.signal).finally(endSoon);
  },
};

/** The commands of each service and of the program, by their first word. They are loaded on demand. */
const GROUPS = {
  all: [/^(migrate|check|start|version)$/, () => [import('./commands/process.ts')]],
  identity: [/^(user|key|audit|throttle|restored)$/, () => [import('./commands/identity.ts')]],
  secrets: [/^(secret|restored)$/, () => [import('./commands/secrets.ts')]],
  webhook: [
    /^(token|event|restored)$/,
    () => [import('./commands/webhook.ts'), import('./commands/events.ts')],
  ],
} as const;

let isRead = true;
const terminal = {
  print: (line: string) => void process.stdout.write(`${line}\n`),
  /** Writes to standard error, because a program may read standard output. */
  note: (line: string) => void process.stderr.write(`${line}\n`),
  isRead: () => isRead,
  isShown: process.stdout.isTTY,
};

/** @returns the exit code; what went wrong is one line on standard error, never a stack */
async function main(words: readonly string[]): Promise<number> {
  try {
    const [first = '', ...rest] = words;
    const isPlain =
      rest.length <= SERVICE_NAMES.length && rest.every((word) => SERVICE_NAMES.includes(word));
    // Without options or mistakes, a service starts without reading the code of the commands.
    if (first === SERVE.name && isPlain)
      return await SERVE.run({ positionals: rest }).then(() => 0);
    const { runCommand } = await import('./commands/command.ts');
    const groups = Object.values(GROUPS);
    const named = groups.filter(([words]) => words.test(first));
    const modules = await Promise.all(
      (named.length > 0 ? named : groups).flatMap(([, load]) => load()),
    );
    return await runCommand(
      [SERVE, ...modules.flatMap((module) => module.COMMANDS)],
      words,
      terminal,
    );
  } catch (error) {
    if (error instanceof ConfigurationError)
      return fail(EXIT.configuration, error.problems.join('\ngatehouse: '));
    if (error instanceof StartupError || error instanceof Unavailable)
      return fail(EXIT.failed, error.message);
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
