import { spawn } from 'node:child_process';
import { codeOf } from '../../runtime/errors.ts';
import type { Command } from '../settings.ts';
import type { DeliveryResult, DeliveryTarget } from '../worker.ts';

/** The end of the output is kept, for the error message. */
const KEPT_BYTES = 900;
/** How long to wait for output after the exit: a process that the command left running may hold the pipe. */
const OUTPUT_MS = 1_000;

/** Runs a program for each event, without a shell, with the body on standard input. Exit code 0 is success. */
export function createCommandTarget(
  [program, ...words]: Command,
  environment: NodeJS.ProcessEnv,
): DeliveryTarget {
  return {
    deliver: (event, signal) =>
      new Promise((resolve) => {
        let output = '';
        let timer: NodeJS.Timeout | undefined;
        const settle = (result: DeliveryResult) => {
          clearTimeout(timer);
          resolve(result);
        };
        // In a process group of its own, so that everything it started is killed with it.
        const child = spawn(program, words, {
          stdio: ['pipe', 'pipe', 'pipe'],
          detached: true,
          env: {
            ...environment,
            EVENT_ID: event.id,
            EVENT_NAME: event.event,
            EVENT_SOURCE: event.source,
            EVENT_DELIVERY_ID: event.delivery_id ?? '',
            EVENT_ATTEMPT: String(event.attempt),
            EVENT_RECEIVED_AT: event.received_at.toISOString(),
          },
        });
        // Before the streams are used: if the pipes could not be created (EMFILE), there are none.
        child.on('error', (error) =>
          settle({ error: `the command could not be run (${codeOf(error)})` }),
        );
        const kill = () => {
          try {
            if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
          } catch {
            // The group has no process left.
          }
        };
        signal.addEventListener('abort', kill);
        // All output is read, so that the program does not block. Little of it is kept.
        for (const stream of [child.stdout, child.stderr]) {
          stream?.on(
            'data',
            (chunk: Buffer) => (output = (output + chunk.toString('latin1')).slice(-KEPT_BYTES)),
          );
        }
        child.on('exit', (code, signalName) => {
          // Kills what the command left running. A group id is not reused while its group has a process, and Node emits
          // this event as soon as it has reaped the command. Later the id could belong to another group.
          kill();
          signal.removeEventListener('abort', kill);
          const end = () => {
            const reason = code === null ? signalName : `status ${code}`;
            const answer = Buffer.from(output, 'latin1').toString('utf8');
            const error = code === 0 ? null : `the command ended with ${reason}: ${answer}`;
            settle({ error, status: code ?? undefined, answer });
          };
          child.once('close', end);
          timer = setTimeout(end, OUTPUT_MS);
        });
        child.stdin?.on('error', () => {}).end(event.body); // a program need not read its input
      }),
    close: async () => {},
  };
}
