/**
 * A handler that behaves as the event's name says. It writes its records to the file that TOLD
 * names.
 */
import { appendFileSync, existsSync, rmSync } from 'node:fs';
import { threadId } from 'node:worker_threads';

const tell = (what) => appendFileSync(process.env.TOLD, `${JSON.stringify(what)}\n`);

/** Acts when the test has created the file LATER. */
function later(act) {
  const looking = setInterval(() => {
    if (!existsSync(process.env.LATER)) return;
    clearInterval(looking);
    rmSync(process.env.LATER);
    tell('later');
    act();
  }, 1);
}

/** What a handler tells about its event and its thread. */
const TELLS = {
  facts(event) {
    const body = Buffer.from(event.body).toString('hex');
    const isBytes = event.body instanceof Uint8Array;
    tell({ ...event, isBytes, body, environment: { ...process.env } });
  },
  thread: () => tell(threadId),
  'backing store': (event) => tell(event.body.buffer.byteLength),
  prints: () => console.log('printed by a handler'),
};

/** How a handler ends, or does not. */
const ENDS = {
  returns: () => undefined,
  fulfils: async () => undefined,
  'returns garbage': () => ({ toString: null, then: 7, deep: [() => {}, Symbol('x')] }),
  'returns an error': () => new Error('returned, not thrown'),
  rejects: () => Promise.reject(new Error('rejected')),
  exits: () => process.exit(0),
  'exits with 1': () => process.exit(1),
  'never ends': () => new Promise(() => {}),
  // Never returns to its event loop, and leaves the processor to the other tests meanwhile.
  loops() {
    for (;;) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 10);
  },
};

/** What a handler throws at once. */
const THROWS = {
  throws: () => new Error('thrown at once'),
  'throws a text': () => 'a bare text',
  'throws nothing': () => undefined,
  'throws an object': () => ({ no: 'error' }),
  'throws what has no text': () => Object.create(null),
  'throws what cannot be sent': () => Object.assign(new Error('x'), { message: () => {} }),
  'throws a message that is null': () => Object.assign(new Error('x'), { message: null }),
};

/** What fails when the handler has returned. */
const FAILS_LATER = {
  'fails out of turn'() {
    setImmediate(() => {
      throw new Error('out of turn');
    });
    return new Promise(() => {});
  },
  'fails out of turn with null'() {
    setImmediate(() => {
      throw null;
    });
    return new Promise(() => {});
  },
  'fails later': () =>
    later(() => {
      throw new Error('later');
    }),
  'rejects later': () =>
    later(() => {
      void Promise.reject(new Error('later'));
    }),
  'exits later': () => later(() => process.exit(1)),
};

export default function handle(event) {
  const name = event.event;
  if (Object.hasOwn(THROWS, name)) throw THROWS[name]();
  const acts = { ...TELLS, ...ENDS, ...FAILS_LATER };
  return acts[name](event);
}
