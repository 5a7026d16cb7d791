import cluster, { type Worker } from 'node:cluster';
import type { Readable } from 'node:stream';
import type { Config } from './config.ts';
import { addUp, countersOf } from './runtime/metrics.ts';
import { withMetrics } from './doors.ts';
import { StartupError } from './runtime/trouble.ts';
import { createWorld, type Output } from './world.ts';

/** What a worker is told, and what it answers. The first one also does what is to be done once. */
export type Order = 'begin' | 'begin as the first' | 'stop' | 'numbers';
export type Answer = { readonly kind: 'here' | 'ready' } | { readonly kind: 'numbers'; readonly text: string };

/** Workers that end by themselves so often within so long are not started again. */
const MOST_ENDS = 5;
const ENDS_MS = 60_000;
const NUMBERS_MS = 1_000;
/** How much later than a worker this process may hear of a signal to all. */
const SAME_SIGNAL_MS = 250;
/** What a worker may need to end, after its requests have: the longest statement, and a delivery that is given back. */
const ENDING_MS = 20_000;

/**
 * `WORKERS=n`: n processes on the same ports, by Node's own cluster. This one opens the ports, hands connections out in
 * turn, and answers for the numbers of all. The first worker begins alone, so that what can go wrong at a start goes
 * wrong once; one that ends by itself later has a successor.
 * @throws StartupError when the first cannot start, or too many have ended
 */
export async function superviseWorkers(config: Config, output: Output, signal: AbortSignal): Promise<void> {
  const world = createWorld(config, output);
  const { log, metrics } = world;
  process.once('exit', world.lines.flush);
  const workers = new Map<number, Worker>();
  const ends: number[] = [];
  // A counter must not fall: who reads it would take it for one that began anew, and all of it for news.
  const last = new Map<Worker, string>();
  let past = '';
  cluster.setupPrimary({ stdio: ['inherit', 'pipe', 'inherit', 'ipc'] });
  let hasBegun = false;
  let stopping = false;
  let giveUp: (why: Error) => void = () => {};
  const failed = new Promise<never>((_, reject) => (giveUp = reject));
  failed.catch(() => {});

  function start(number: number): Promise<void> {
    const worker = cluster.fork();
    workers.set(number, worker);
    // Each scrape listens for its answer.
    worker.setMaxListeners(0);
    if (worker.process.stdout) forward(worker.process.stdout, output.stdout);
    return new Promise((resolve) => {
      worker.on('message', (answer: Answer) => {
        // What is sent before a worker listens is lost, also that it is to stop.
        if (answer.kind === 'here') tell(worker, stopping ? 'stop' : number === 1 ? 'begin as the first' : 'begin');
        if (answer.kind !== 'ready') return;
        hasBegun = true;
        resolve();
      });
      worker.once('exit', (code, killedBy) => {
        workers.delete(number);
        past = addUp([past, countersOf(last.get(worker) ?? '')]);
        last.delete(worker);
        if (stopping) return;
        const facts = { worker: number, code, signal: killedBy };
        // No failure where a signal to the whole group has ended it.
        if (!hasBegun) return void setTimeout(() => giveUp(new StartupError('a worker has ended before it was ready.')), killedBy === null ? 0 : SAME_SIGNAL_MS);
        ends.push(Date.now());
        if (ends.filter((at) => Date.now() - at < ENDS_MS).length > MOST_ENDS) return giveUp(new StartupError('too many workers have ended in too short a time.'));
        log.error('a worker has ended and is started again', facts);
        void start(number).then(resolve);
      });
    });
  }

  const stopped = new Promise<void>((resolve) => (signal.aborted ? resolve() : signal.addEventListener('abort', () => resolve(), { once: true })));
  const numbers = async () => {
    const asked = [...workers.values()];
    await Promise.all(asked.map(async (worker) => {
      const text = await numbersOf(worker);
      if (text !== '' && !worker.isDead()) last.set(worker, text);
    }));
    return addUp([metrics.text(), past, ...last.values()]);
  };
  await withMetrics(world, numbers, async () => {
    try {
      const started = start(1).then(async () => {
        if (stopping) return;
        await Promise.all(Array.from({ length: config.workers - 1 }, (_, index) => start(index + 2)));
        log.info('every worker is ready', { workers: config.workers });
      });
      await Promise.race([stopped, failed, started.then(() => stopped)]);
    } finally {
      stopping = true;
      await Promise.all([...workers.values()].map((worker) => endOf(worker, config.shutdownGraceMs + ENDING_MS)));
      process.off('exit', world.lines.flush);
    }
  });
}

/** One process writes: what several write into one pipe is whole only as long as there is room for all of it at once. */
function forward(from: Readable, to: NodeJS.WritableStream): void {
  let rest: Buffer = Buffer.alloc(0);
  from.on('data', (bytes: Buffer) => {
    const end = bytes.lastIndexOf('\n') + 1;
    const lines = end === 0 ? null : Buffer.concat([rest, bytes.subarray(0, end)]);
    rest = end === 0 ? Buffer.concat([rest, bytes]) : bytes.subarray(end);
    if (!lines) return;
    from.pause();
    to.write(lines, () => from.resume());
  });
}

/** Lets a worker finish what it is doing; one that hangs is killed. */
function endOf(worker: Worker, mostMs: number): Promise<void> {
  return new Promise((resolve) => {
    if (worker.isDead()) return resolve();
    const timer = setTimeout(() => worker.process.kill('SIGKILL'), mostMs);
    worker.once('exit', () => {
      clearTimeout(timer);
      resolve();
    });
    if (worker.isConnected()) tell(worker, 'stop', () => worker.process.kill('SIGKILL'));
    else worker.process.kill('SIGKILL');
  });
}

/** @returns nothing of one that does not answer: it is ending, or busy for too long */
function numbersOf(worker: Worker): Promise<string> {
  return new Promise((resolve) => {
    const done = (text: string) => {
      clearTimeout(timer);
      worker.off('message', onMessage);
      resolve(text);
    };
    const onMessage = (answer: Answer) => (answer.kind === 'numbers' ? done(answer.text) : undefined);
    const timer = setTimeout(done, NUMBERS_MS, '');
    worker.on('message', onMessage);
    tell(worker, 'numbers', () => done(''));
  });
}

const tell = (worker: Worker, order: Order, otherwise = () => {}) => worker.send(order, (error) => (error ? otherwise() : undefined));
