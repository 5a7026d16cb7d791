/**
 * Starts a command that cannot outlive this process, however this process ends.
 *
 * Between the two stands a small shell, which holds the reading end of a pipe. Each line written into the pipe names
 * a signal, which the shell passes on; the end of the pipe, which the kernel brings about even after `kill -9`, sends
 * the last signal. The command runs in a session of its own, so that a terminal's Ctrl-C reaches only this process,
 * which then decides what stops first.
 */
import { spawn } from 'node:child_process';
import { Writable } from 'node:stream';

export interface Supervised {
  /** The exit status of the command as a shell reports it: 128 and the signal's number for one that was killed. */
  readonly ended: Promise<number>;
  tell(signal: StopSignal): void;
  /** Lets this process end without waiting for the command, which then gets the last signal. */
  unref(): void;
}

export type StopSignal = 'INT' | 'TERM' | 'QUIT';

export interface SuperviseOptions {
  cwd: string;
  env: NodeJS.ProcessEnv;
  /** File descriptors; without them the command reads nothing and writes where this process writes. */
  input?: number;
  output?: number;
  user?: { uid: number; gid: number };
}

// A shell gives its background commands an empty standard input, hence the detour by descriptor 4.
const shell = `
last=$1
shift
exec 4<&0
"$@" <&4 3<&- 4<&- &
child=$!
{
  while read -r signal <&3; do kill -s "$signal" "$child"; done
  kill -s "$last" "$child"
} 2>/dev/null &
watcher=$!
exec 3<&- 4<&-
wait "$child" 2>/dev/null
status=$?
kill "$watcher" 2>/dev/null
exit "$status"
`;

export function supervise(
  last: StopSignal,
  command: string,
  args: readonly string[],
  options: SuperviseOptions,
): Supervised {
  const output = options.output ?? 'inherit';
  const child = spawn('sh', ['-c', shell, 'supervise', last, command, ...args], {
    cwd: options.cwd,
    env: options.env,
    detached: true,
    stdio: [options.input ?? 'ignore', output, output, 'pipe'],
    ...options.user,
  });
  const pipe = child.stdio[3];
  if (!(pipe instanceof Writable)) throw new TypeError('no pipe to the supervising shell');
  // The command may end while a signal is on its way to it: nothing is lost then.
  pipe.on('error', () => undefined);

  const ended = new Promise<number>((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (status) => {
      // Had the shell itself been killed, this would still stop the command.
      pipe.destroy();
      resolve(status ?? 1);
    });
  });
  // Whoever awaits it gets the error; an error that comes before anyone does must not end this process.
  ended.catch(() => undefined);

  return {
    ended,
    tell: (signal) => {
      pipe.write(`${signal}\n`);
    },
    unref: () => {
      child.unref();
      if ('unref' in pipe && typeof pipe.unref === 'function') pipe.unref();
    },
  };
}
