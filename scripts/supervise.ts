/**
 * Starts a command that cannot outlive this process, even if this process is killed.
 *
 * A small shell between the two reads from a pipe. Each line names a signal, which the shell sends
 * to the command. When the pipe ends, which the kernel ensures even after `kill -9`, the shell
 * sends the last signal. The command runs in a session of its own: Ctrl-C in a terminal reaches
 * only this process, which decides what stops first.
 */
import { spawn } from 'node:child_process';
import { Writable } from 'node:stream';

export interface Supervised {
  /**
   * The exit status as a shell reports it: 128 plus the signal's number if the command was killed.
   */
  readonly ended: Promise<number>;
  tell(signal: StopSignal): void;
  /**
   * Lets this process end without waiting for the command. The command then gets the last signal.
   */
  unref(): void;
}

export type StopSignal = 'INT' | 'TERM' | 'QUIT' | 'KILL';

export interface SuperviseOptions {
  cwd: string;
  env: NodeJS.ProcessEnv;
  /**
   * File descriptors. By default the command reads nothing and shares the output of this process.
   */
  input?: number;
  output?: number;
  user?: { uid: number; gid: number };
}

// A shell gives its background commands an empty standard input, hence descriptor 4.
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
  // The command may end before it gets the signal.
  pipe.on('error', () => undefined);

  const ended = new Promise<number>((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (status) => {
      // Stops the command even if the shell was killed.
      pipe.destroy();
      resolve(status ?? 1);
    });
  });
  // The error reaches every caller that awaits `ended`. Without this, an earlier one would end the
  // process as unhandled.
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
