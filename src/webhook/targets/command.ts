import { spawn } from 'node:child_process';
import type { Task } from '../store/work.ts';
import type { Delivery } from '../worker.ts';

export interface ProgramOptions {
  /** The program and its arguments, as they are: no shell reads them. */
  readonly command: readonly [string, ...string[]];
  /** What it finds in its environment besides the facts. */
  readonly environment: Readonly<Record<string, string>>;
}

/** What is kept of a program's output, to tell what went wrong. */
const KEPT_BYTES = 900;

/** How long output is waited for after the end: something that it left running may hold the pipe. */
const OUTPUT_MS = 1_000;

/** Runs a program for each event: the body on its standard input, the facts in its environment. Exit 0 is success. */
export function createProgram({ command: [program, ...words], environment }: ProgramOptions): Delivery {
  return {
    deliver: (task, stop) =>
      new Promise((resolve) => {
        let output = '';
        let timer: NodeJS.Timeout | undefined;
        const settle = (error: string | null) => {
          clearTimeout(timer);
          stop.removeEventListener('abort', kill);
          resolve(error === null ? null : { error, retryAfter: null });
        };
        // A group of its own, so that what it has started ends with it.
        const child = spawn(program, words, { stdio: ['pipe', 'pipe', 'pipe'], detached: true, env: { ...environment, ...factsOf(task) } });
        // First, because without a place for the pipes (EMFILE) there are none to listen to.
        child.on('error', (error) => settle(`the command could not be run (${'code' in error ? String(error.code) : 'unknown'})`));
        const kill = () => {
          try {
            if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
          } catch {
            // It has just ended by itself.
          }
        };
        stop.addEventListener('abort', kill);
        // A flood is read and thrown away, so that the program neither hangs nor fills our memory.
        for (const stream of [child.stdout, child.stderr]) stream?.on('data', (chunk: Buffer) => (output = (output + chunk.toString('latin1')).slice(-KEPT_BYTES)));
        child.on('exit', (code, signal) => {
          kill();
          const end = () => settle(code === 0 ? null : `the command ended with ${code === null ? signal : `status ${code}`}: ${Buffer.from(output, 'latin1').toString('utf8')}`);
          child.once('close', end);
          timer = setTimeout(end, OUTPUT_MS);
        });
        child.stdin?.on('error', () => {}).end(task.body); // it need not read its input
      }),
    close: async () => {},
  };
}

const factsOf = ({ id, event, source, delivery_id, attempt, received_at }: Task): Record<string, string> => ({
  EVENT_ID: id,
  EVENT_NAME: event,
  EVENT_SOURCE: source,
  EVENT_DELIVERY_ID: delivery_id ?? '',
  EVENT_ATTEMPT: String(attempt),
  EVENT_RECEIVED_AT: received_at.toISOString(),
});
