/** So many at once, so many waiting, first come first served. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLimiter } from '../../src/runtime/limiter.ts';
import { Overloaded } from '../../src/runtime/errors.ts';

/** Lets everything happen that is due. */
const settle = () => new Promise((resolve) => setImmediate(resolve));

/** Visitors who say when they are in, and leave when they are told to. */
function visitors(gate: ReturnType<typeof createLimiter>) {
  const inside: number[] = [];
  const leave = new Map<number, (error?: Error) => void>();
  const enter = (number: number) =>
    gate.run(() => {
      inside.push(number);
      return new Promise<number>((resolve, reject) => leave.set(number, (error) => (error ? reject(error) : resolve(number))));
    });
  return { inside, enter, leave: (number: number, error?: Error) => leave.get(number)?.(error) };
}

test('as many run at once as there are places, and the others wait', async () => {
  const gate = createLimiter(2, 3, 'a place');
  const { inside, enter, leave } = visitors(gate);
  const visits = [1, 2, 3, 4, 5].map(enter);
  await settle();
  assert.deepEqual(inside, [1, 2]);
  assert.deepEqual([gate.running, gate.waiting], [2, 3]);
  leave(2);
  await settle();
  assert.deepEqual(inside, [1, 2, 3], 'first come, first served');
  assert.deepEqual([gate.running, gate.waiting], [2, 2]);
  for (const number of [1, 3, 4, 5]) {
    leave(number);
    await settle();
  }
  assert.deepEqual(await Promise.all(visits), [1, 2, 3, 4, 5]);
  assert.deepEqual(inside, [1, 2, 3, 4, 5]);
  assert.deepEqual([gate.running, gate.waiting], [0, 0]);
});

test('who finds no seat is refused at once, and nobody else is disturbed', async () => {
  const gate = createLimiter(1, 1, 'a chair');
  const { inside, enter, leave } = visitors(gate);
  const [first, second] = [enter(1), enter(2)];
  await assert.rejects(enter(3), (error) => error instanceof Overloaded && error.message === 'too many are waiting for a chair');
  assert.deepEqual([gate.running, gate.waiting], [1, 1]);
  leave(1);
  await first;
  await settle();
  leave(2);
  await second;
  assert.deepEqual(inside, [1, 2]);
});

test('a gate without seats refuses everybody who would have to wait', async () => {
  const gate = createLimiter(1, 0, 'a place');
  const { enter, leave } = visitors(gate);
  const first = enter(1);
  await assert.rejects(enter(2), Overloaded);
  leave(1);
  await first;
  const next = enter(3);
  await settle();
  leave(3);
  assert.equal(await next, 3);
});

test('work that fails frees its place for the next one, and its error is its caller’s alone', async () => {
  const gate = createLimiter(1, 2, 'a place');
  const { inside, enter, leave } = visitors(gate);
  const [first, second] = [enter(1), enter(2)];
  const failed = assert.rejects(first, RangeError);
  leave(1, new RangeError('on purpose'));
  await failed;
  await settle();
  assert.deepEqual(inside, [1, 2]);
  leave(2);
  assert.equal(await second, 2);
  assert.equal(gate.running, 0);
});

test('work that throws before it has begun to wait frees its place, too', async () => {
  const gate = createLimiter(1, 0, 'a place');
  for (let round = 0; round < 2; round += 1) {
    await assert.rejects(gate.run(() => { throw new RangeError('at once'); }), RangeError);
  }
  assert.equal(gate.running, 0);
});

test('nobody overtakes: a newcomer in the moment of leaving takes no place that a waiter was promised', async () => {
  const gate = createLimiter(1, 5, 'a place');
  const { inside, enter, leave } = visitors(gate);
  let newcomer: Promise<number> | undefined;
  const first = enter(1).then(() => {
    newcomer = enter(3);
  });
  const second = enter(2);
  await settle();
  leave(1);
  await first;
  await settle();
  assert.deepEqual(inside, [1, 2]);
  assert.deepEqual([gate.running, gate.waiting], [1, 1]);
  leave(2);
  await second;
  await settle();
  leave(3);
  await newcomer;
  assert.deepEqual(inside, [1, 2, 3]);
});

test('however they come and go, there are never more inside than places', async () => {
  const gate = createLimiter(3, 1_000, 'a place');
  let inside = 0;
  let most = 0;
  const visit = async (turns: number) => {
    most = Math.max(most, (inside += 1));
    for (let turn = 0; turn < turns; turn += 1) await settle();
    inside -= 1;
    if (turns === 2) throw new RangeError('on purpose');
  };
  const outcomes = await Promise.allSettled(Array.from({ length: 200 }, (_, index) => gate.run(() => visit(index % 4))));
  assert.equal(most, 3);
  assert.equal(outcomes.filter(({ status }) => status === 'rejected').length, 50);
  assert.deepEqual([gate.running, gate.waiting], [0, 0]);
});

test('who goes first is let in before all others, and has seats of their own', async () => {
  const gate = createLimiter(1, 1, 'a place');
  const entered: string[] = [];
  let open = () => {};
  const closed = new Promise<void>((resolve) => (open = resolve));
  const inside = gate.run(() => closed);
  const other = gate.run(async () => void entered.push('other'));
  const first = gate.run(async () => void entered.push('first'), true);
  assert.equal(gate.waiting, 2);
  await assert.rejects(gate.run(async () => {}), Overloaded);
  await assert.rejects(gate.run(async () => {}, true), Overloaded);
  open();
  await Promise.all([inside, other, first]);
  assert.deepEqual(entered, ['first', 'other']);
});
