import { pathToFileURL } from 'node:url';
import { Worker } from 'node:worker_threads';
import type { Task } from '../store/work.ts';
import type { Delivery, Failed } from '../worker.ts';

export interface HandlerOptions {
  /** A module whose default export is called with each event. */
  readonly module: string;
  readonly environment: Readonly<Record<string, string>>;
}

/** What the module's function is given. */
export interface HandledEvent {
  readonly id: string;
  readonly event: string;
  readonly source: string;
  readonly deliveryId: string | null;
  readonly attempt: number;
  readonly receivedAt: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

/**
 * Each call has a thread to itself, kept for the next: a handler that throws fails its own event, and one that hangs, even
 * in a loop, or exits, ends its own thread.
 */
export function createHandler({ module, environment }: HandlerOptions): Delivery {
  const free: Worker[] = [];
  const all = new Set<Worker>();
  const hire = () => {
    const thread = new Worker(THREAD, { eval: true, workerData: pathToFileURL(module).href, env: environment, stdout: true });
    // Standard output is for the log; what a handler prints goes beside it.
    thread.stdout.on('data', (chunk: Buffer) => void process.stderr.write(chunk));
    // What fails after it was done ends its thread, and nothing else; without a listener it would end this process.
    thread.on('error', () => {});
    all.add(thread);
    thread.once('exit', () => {
      all.delete(thread);
      const index = free.indexOf(thread);
      if (index >= 0) free.splice(index, 1);
    });
    return thread;
  };
  return {
    async deliver(task, stop) {
      const thread = free.pop() ?? hire();
      const failed = await call(thread, task, stop);
      if (failed === null || failed.error.startsWith('the handler failed')) free.push(thread);
      return failed;
    },
    async close() {
      const ended = Promise.all([...all].map((thread) => thread.terminate()));
      // One that is blocked in a system call ends only with that.
      await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, ENDING_MS).unref())]);
    },
  };
}

const ENDING_MS = 2_000;

function call(thread: Worker, task: Task, stop: AbortSignal): Promise<Failed | null> {
  return new Promise((resolve) => {
    const settle = (error: string | null) => {
      stop.removeEventListener('abort', onStop);
      thread.off('message', onMessage).off('error', onError).off('exit', onExit);
      resolve(error === null ? null : { error, retryAfter: null });
    };
    // The place is free again when the thread has ended, not before.
    let reason = 'the handler ended its thread';
    const end = (why: string) => {
      reason = why;
      void thread.terminate();
    };
    const onMessage = (error: unknown) => settle(error === null ? null : `the handler failed: ${String(error)}`);
    const onError = (error: unknown) => end(`the handler could not be loaded, or failed out of turn: ${error instanceof Error ? error.message : String(error)}`);
    const onExit = () => settle(reason);
    const onStop = () => end('the handler was stopped');
    stop.addEventListener('abort', onStop);
    thread.on('message', onMessage).on('error', onError).on('exit', onExit);
    const { id, event, source, delivery_id: deliveryId, attempt, received_at, headers, body } = task;
    const handled: HandledEvent = { id, event, source, deliveryId, attempt, receivedAt: received_at.toISOString(), headers, body: new Uint8Array(body) };
    thread.postMessage(handled);
  });
}

/** The other end, in a thread. As text, because it must run as it is from the sources and compiled. */
const THREAD = `
  const { parentPort, workerData } = require('node:worker_threads');
  import(workerData).then(({ default: handle }) => {
    if (typeof handle !== 'function') throw new Error('its module has no function as its default export');
    const messageOf = (error) => String(error instanceof Error ? error.message : error);
    parentPort.on('message', async (event) => {
      const failed = await Promise.resolve(event).then(handle).then(() => null, messageOf);
      parentPort.postMessage(failed);
    });
  });
`;
