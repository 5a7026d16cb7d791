import { pathToFileURL } from 'node:url';
import { Worker as Thread } from 'node:worker_threads';
import type { Deliverer, LeasedEvent, Result } from '../model.ts';

/** How long `close` waits: a thread that is blocked in a system call ends only after it. */
const CLOSE_MS = 2_000;

/**
 * Calls the default export of a module with each event, in threads that are reused. A handler that
 * throws fails its own event. One that hangs, even in a loop, or exits, ends its own thread.
 */
export function createHandlerTarget(module: string, environment: NodeJS.ProcessEnv): Deliverer {
  const idle = new Set<Thread>();
  const all = new Set<Thread>();
  const start = () => {
    const workerData = pathToFileURL(module).href;
    const thread = new Thread(THREAD, {
      eval: true,
      workerData,
      env: environment,
      stdout: true,
    });
    // Standard output is for log lines only.
    thread.stdout.on('data', (chunk: Buffer) => process.stderr.write(chunk));
    // An error after the call ends the thread, which must not get another event. Without a listener
    // it would end this process.
    thread.on('error', () => idle.delete(thread));
    all.add(thread);
    thread.once('exit', () => {
      all.delete(thread);
      idle.delete(thread);
    });
    return thread;
  };
  return {
    async deliver(event, signal) {
      const [thread = start()] = idle;
      idle.delete(thread);
      const result = await call(thread, event, signal);
      if (all.has(thread)) idle.add(thread);
      return result;
    },
    async close() {
      const ended = Promise.all([...all].map((thread) => thread.terminate()));
      await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, CLOSE_MS).unref())]);
    },
  };
}

function call(thread: Thread, leased: LeasedEvent, signal: AbortSignal): Promise<Result> {
  return new Promise((resolve) => {
    const settle = (error: string | null) => {
      signal.removeEventListener('abort', onAbort);
      thread.off('message', onMessage).off('error', onError).off('exit', onExit);
      resolve({ error });
    };
    // Settles when the thread has ended: until then it occupies its slot.
    let reason = 'the handler ended its thread';
    const terminate = (why: string) => {
      reason = why;
      void thread.terminate();
    };
    const onMessage = (error: unknown) =>
      settle(error === null ? null : `the handler failed: ${String(error)}`);
    const onError = (error: unknown) => {
      const message = error instanceof Error ? error.message : String(error);
      terminate(`the handler could not be loaded, or threw outside of a call: ${message}`);
    };
    const onExit = () => settle(reason);
    const onAbort = () => terminate('the handler was stopped');
    signal.addEventListener('abort', onAbort);
    thread.on('message', onMessage).on('error', onError).on('exit', onExit);
    const { id, event, source, delivery_id: deliveryId, attempt, headers } = leased;
    thread.postMessage({
      id,
      event,
      source,
      deliveryId,
      attempt,
      receivedAt: leased.received_at.toISOString(),
      headers,
      body: new Uint8Array(leased.body),
    });
  });
}

/**
 * The program of a thread. A text, so that it runs unchanged from the sources and from the build.
 */
const THREAD = `
  const { parentPort, workerData } = require('node:worker_threads');
  import(workerData).then(({ default: handle }) => {
    if (typeof handle !== 'function') {
      throw new Error('the module has no function as its default export');
    }
    const messageOf = (error) => String(error instanceof Error ? error.message : error);
    parentPort.on('message', async (event) => {
      const failed = await Promise.resolve(event).then(handle).then(() => null, messageOf);
      parentPort.postMessage(failed);
    });
  });
`;
