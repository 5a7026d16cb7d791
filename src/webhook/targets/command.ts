import { spawn } from 'node:child_process';
import { codeOf } from '../../platform/runtime/errors.ts';
import type { Command, Deliverer, Result } from '../model.ts';

/** The end of the output is kept, for the error message. */
const KEPT_BYTES = 900;
/**
 * How long to wait for output after the exit: a process that the command left running may hold the
 * pipe.
 */
const OUTPUT_MS = 1_000;

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such program',
  EACCES: 'this user may not run it',
  ENOEXEC: 'it is no program of this system',
  E2BIG: 'the name of the event or the arguments are too long',
  EAGAIN: 'there are too many processes',
  EMFILE: 'too many files are open',
  ENOMEM: 'there is not enough memory',
};

function couldNotRun(error: unknown) {
  const code = codeOf(error);
  const reason = REASONS[code] ?? 'the system refused it';
  return { error: `the command could not be run: ${reason} (${code})` };
}

/** @returns whether the group had a process left */
function killGroup(processId: number | undefined) {
  try {
    return processId !== undefined && process.kill(-processId, 'SIGKILL');
  } catch {
    return false;
  }
}

/**
 * Runs a program for each event, without a shell, with the body on standard input. Exit code 0 is
 * success.
 */
export const createCommandTarget = (
  [program, ...words]: Command,
  environment: NodeJS.ProcessEnv,
): Deliverer => ({
  deliver(event, signal) {
    const env = {
      ...environment,
      EVENT_ID: event.id,
      EVENT_NAME: event.event,
      EVENT_SOURCE: event.source,
      EVENT_DELIVERY_ID: event.delivery_id ?? '',
      EVENT_REQUEST_ID: event.headers['x-request-id'] ?? '',
      EVENT_ATTEMPT: String(event.attempt),
      EVENT_RECEIVED_AT: event.received_at.toISOString(),
    };
    return new Promise<Result>((resolve) => {
      // In a process group of its own, so that everything it started is killed with it.
      const child = spawn(program, words, { detached: true, env });
      // Before the streams are used: if the pipes could not be created (EMFILE), there are none.
      child.on('error', (error) => resolve(couldNotRun(error)));
      const kill = () => killGroup(child.pid);
      signal.addEventListener('abort', kill);
      // All output is read, so that the program does not block. Little of it is kept.
      let output = '';
      for (const stream of [child.stdout, child.stderr]) {
        stream?.on('data', (chunk: Buffer) => {
          output = (output + chunk.toString('latin1')).slice(-KEPT_BYTES);
        });
      }
      child.on('exit', (code, signalName) => {
        // Kills what the command left running. A group id is not reused while its group has a
        // process, and Node emits this event as soon as it has reaped the command. Later the id
        // could belong to another group.
        const wereKilled = kill() && !signal.aborted;
        signal.removeEventListener('abort', kill);
        const end = () => {
          clearTimeout(timer);
          const answer = Buffer.from(output, 'latin1').toString('utf8');
          const reason = code === null ? signalName : `status ${code}`;
          const error = code === 0 ? null : `the command ended with ${reason}: ${answer}`;
          resolve({ error, answer_status: code ?? undefined, answer, wereKilled });
        };
        const timer = setTimeout(end, OUTPUT_MS);
        child.once('close', end);
      });
      child.stdin?.on('error', () => {}).end(event.body); // a program need not read its input
    }).catch(couldNotRun);
  },
  close: async () => {},
});
