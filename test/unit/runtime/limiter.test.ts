/** Slots, queues, priority, and queues by key. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Overloaded } from '../../../src/platform/runtime/errors.ts';
import { createLimiter } from '../../../src/platform/runtime/limiter.ts';
import { createKeyedQueue } from '../../../src/secrets/service.ts';

/** Lets everything happen that is due. */
const settle = () => new Promise((resolve) => setImmediate(resolve));

/** Numbered work that records when it starts, and ends when it is told to. */
function manualWork() {
  const started: number[] = [];
  const ends = new Map<number, (error?: Error) => void>();
  const work = (number: number) => () => {
    started.push(number);
    return new Promise<number>((resolve, reject) =>
      ends.set(number, (error) => (error ? reject(error) : resolve(number))),
    );
  };
  return { started, work, end: (number: number, error?: Error) => ends.get(number)?.(error) };
}

function limiterWithWork(slots: number, queueLength: number) {
  const limiter = createLimiter(slots, queueLength, 'a slot');
  const { started, work, end } = manualWork();
  return { limiter, started, end, run: (number: number) => limiter.run(work(number)) };
}

test('limiter: work that has waited for too long is rejected, and leaves the queue', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const limiter = createLimiter(1, 2, 'a slot', 100);
  const { started, work, end } = manualWork();
  const first = limiter.run(work(1));
  const late = assert.rejects(limiter.run(work(2)), Overloaded);
  t.mock.timers.tick(50);
  const next = limiter.run(work(3));
  t.mock.timers.tick(50);
  await late;
  assert.equal(limiter.waiting(), 1);
  end(1);
  await settle();
  t.mock.timers.tick(1_000);
  end(3);
  assert.deepEqual(await Promise.all([first, next]), [1, 3]);
  assert.deepEqual(started, [1, 3]);
});

test('limiter: work beyond the slots waits, first come, first served', async () => {
  const { limiter, started, end, run } = limiterWithWork(2, 3);
  const results = [1, 2, 3, 4, 5].map(run);
  await settle();
  assert.deepEqual(started, [1, 2]);
  assert.deepEqual([limiter.running(), limiter.waiting()], [2, 3]);
  end(2);
  await settle();
  assert.deepEqual(started, [1, 2, 3]);
  assert.deepEqual([limiter.running(), limiter.waiting()], [2, 2]);
  for (const number of [1, 3, 4, 5]) {
    end(number);
    await settle();
  }
  assert.deepEqual(await Promise.all(results), [1, 2, 3, 4, 5]);
  assert.deepEqual(started, [1, 2, 3, 4, 5]);
  assert.deepEqual([limiter.running(), limiter.waiting()], [0, 0]);
});

test('limiter: work that finds the queue full is rejected at once', async () => {
  const { limiter, started, end, run } = limiterWithWork(1, 1);
  const first = run(1);
  const second = run(2);
  const isOverloaded = (error: unknown) =>
    error instanceof Overloaded && error.message === 'too many are waiting for a slot';
  await assert.rejects(run(3), isOverloaded);
  assert.deepEqual([limiter.running(), limiter.waiting()], [1, 1]);
  end(1);
  await first;
  await settle();
  end(2);
  await second;
  assert.deepEqual(started, [1, 2]);
});

test('limiter: without a queue, work beyond the slots is rejected', async () => {
  const { end, run } = limiterWithWork(1, 0);
  const first = run(1);
  await assert.rejects(run(2), Overloaded);
  end(1);
  await first;
  const next = run(3);
  await settle();
  end(3);
  assert.equal(await next, 3);
});

test('limiter: work that fails frees its slot, and only its caller gets the error', async () => {
  const { limiter, started, end, run } = limiterWithWork(1, 2);
  const first = run(1);
  const second = run(2);
  const failed = assert.rejects(first, RangeError);
  end(1, new RangeError('on purpose'));
  await failed;
  await settle();
  assert.deepEqual(started, [1, 2]);
  end(2);
  assert.equal(await second, 2);
  assert.equal(limiter.running(), 0);
});

test('limiter: work that throws synchronously frees its slot', async () => {
  const limiter = createLimiter(1, 0, 'a slot');
  for (let round = 0; round < 2; round += 1) {
    await assert.rejects(
      limiter.run(() => {
        throw new RangeError('at once');
      }),
      RangeError,
    );
  }
  assert.equal(limiter.running(), 0);
});

test('limiter: new work cannot take the slot that was handed to waiting work', async () => {
  const { limiter, started, end, run } = limiterWithWork(1, 5);
  let third: Promise<number> | undefined;
  const first = run(1).then(() => {
    third = run(3);
  });
  const second = run(2);
  await settle();
  end(1);
  await first;
  await settle();
  assert.deepEqual(started, [1, 2]);
  assert.deepEqual([limiter.running(), limiter.waiting()], [1, 1]);
  end(2);
  await second;
  await settle();
  end(3);
  await third;
  assert.deepEqual(started, [1, 2, 3]);
});

test('limiter: never more work runs than there are slots', async () => {
  const limiter = createLimiter(3, 1_000, 'a slot');
  let running = 0;
  let max = 0;
  const work = async (turns: number) => {
    running += 1;
    max = Math.max(max, running);
    for (let turn = 0; turn < turns; turn += 1) await settle();
    running -= 1;
    if (turns === 2) throw new RangeError('on purpose');
  };
  const all = Array.from({ length: 200 }, (_, index) => limiter.run(() => work(index % 4)));
  const outcomes = await Promise.allSettled(all);
  assert.equal(max, 3);
  assert.equal(outcomes.filter(({ status }) => status === 'rejected').length, 50);
  assert.deepEqual([limiter.running(), limiter.waiting()], [0, 0]);
});

test('limiter: work with priority has its own queue, which is served first', async () => {
  const limiter = createLimiter(1, 1, 'a slot');
  const started: string[] = [];
  let finish = () => {};
  const first = limiter.run(
    () =>
      new Promise<void>((resolve) => {
        finish = resolve;
      }),
  );
  const other = limiter.run(async () => {
    started.push('other');
  });
  const priority = limiter.run(async () => {
    started.push('priority');
  }, true);
  assert.equal(limiter.waiting(), 2);
  await assert.rejects(
    limiter.run(async () => {}),
    Overloaded,
  );
  await assert.rejects(
    limiter.run(async () => {}, true),
    Overloaded,
  );
  finish();
  await Promise.all([first, other, priority]);
  assert.deepEqual(started, ['priority', 'other']);
});

test('limiter: shares are served in turn, however much waits in one of them', async () => {
  const limiter = createLimiter(1, 100, 'a slot');
  const flood = limiter.share();
  const few = limiter.share();
  const started: string[] = [];
  const work = (name: string) => async () => {
    started.push(name);
    await settle();
  };
  const all = Array.from({ length: 10 }, () => flood.run(work('flood'), true));
  all.push(few.run(work('few')), few.run(work('few')), few.run(work('few with priority'), true));
  assert.deepEqual([limiter.waiting(), limiter.running()], [12, 1]);
  await Promise.all(all);
  assert.deepEqual(started.slice(0, 7), [
    'flood',
    'flood',
    'few with priority',
    'flood',
    'few',
    'flood',
    'few',
  ]);
  assert.deepEqual([limiter.waiting(), limiter.running()], [0, 0]);
});

test('limiter: the full queue of one share rejects no work of another', async () => {
  const limiter = createLimiter(1, 1, 'a slot');
  const full = limiter.share();
  const other = limiter.share();
  const work = [full.run(settle), full.run(settle), other.run(settle), other.run(settle, true)];
  await assert.rejects(full.run(settle), Overloaded);
  await assert.rejects(other.run(settle), Overloaded);
  await Promise.all(work);
});

test('keyed queue: work with one key runs in order, work with another at the same time', async () => {
  const queue = createKeyedQueue(3, 'a key');
  const { started, work, end } = manualWork();
  const results = [queue('a', work(1)), queue('a', work(2)), queue('b', work(3))];
  await settle();
  assert.deepEqual(started, [1, 3]);
  end(1);
  await settle();
  assert.deepEqual(started, [1, 3, 2]);
  end(2);
  end(3);
  assert.deepEqual(await Promise.all(results), [1, 2, 3]);
});

test('keyed queue: a full queue rejects work with its key only', async () => {
  const queue = createKeyedQueue(2, 'a key');
  const { work, end } = manualWork();
  const results = [queue('a', work(1)), queue('a', work(2)), queue('b', work(3))];
  const isOverloaded = (error: unknown) =>
    error instanceof Overloaded && error.message === 'too many are waiting for a key';
  await assert.rejects(queue('a', work(4)), isOverloaded);
  for (const number of [1, 2, 3]) {
    await settle();
    end(number);
  }
  assert.deepEqual(await Promise.all(results), [1, 2, 3]);
  const next = queue('a', work(5));
  await settle();
  end(5);
  assert.equal(await next, 5, 'an empty queue accepts work again');
});

test('keyed queue: work that fails does not stop the work behind it', async () => {
  const queue = createKeyedQueue(3, 'a key');
  const failed = assert.rejects(
    queue('a', () => Promise.reject(new RangeError('on purpose'))),
    RangeError,
  );
  const thrown = assert.rejects(
    queue('a', () => {
      throw new TypeError('at once');
    }),
    TypeError,
  );
  assert.equal(await queue('a', async () => 'done'), 'done');
  await Promise.all([failed, thrown]);
});

test('keyed queue: no two pieces of work with one key overlap', async () => {
  const queue = createKeyedQueue(1_000, 'a key');
  let running = 0;
  let max = 0;
  const work = async (turns: number) => {
    running += 1;
    max = Math.max(max, running);
    for (let turn = 0; turn < turns; turn += 1) await (turn === 1 ? settle() : Promise.resolve());
    running -= 1;
  };
  // Some work starts when other work has just ended, and some while the queue is not empty.
  const chains = Array.from({ length: 20 }, async (_, index) => {
    for (let round = 0; round < 10; round += 1) await queue('a', () => work((index + round) % 4));
  });
  await Promise.all(chains);
  assert.deepEqual([max, running], [1, 0]);
});

test('work is told whether it had to wait for its slot', async () => {
  const limiter = createLimiter(1, 1, 'a slot');
  const told: boolean[] = [];
  const work = async (hasWaited: boolean) => {
    told.push(hasWaited);
  };
  await Promise.all([limiter.run(work), limiter.run(work)]);
  await limiter.run(work);
  assert.deepEqual(told, [false, true, false]);
});
