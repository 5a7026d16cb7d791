/** A handler that behaves as the event's name says. It writes its records to the file that TOLD names. */
import { appendFileSync } from 'node:fs';
import { threadId } from 'node:worker_threads';

export default function handle(event) {
  const tell = (what) => appendFileSync(process.env.TOLD, `${JSON.stringify(what)}\n`);
  const acts = {
    facts: () => {
      const body = Buffer.from(event.body).toString('hex');
      tell({
        ...event,
        isBytes: event.body instanceof Uint8Array,
        body,
        environment: { ...process.env },
      });
    },
    thread: () => tell(threadId),
    'backing store': () => tell(event.body.buffer.byteLength),
    returns: () => undefined,
    fulfils: async () => undefined,
    'returns garbage': () => ({ toString: null, then: 7, deep: [() => {}, Symbol('x')] }),
    'returns an error': () => new Error('returned, not thrown'),
    throws: () => {
      throw new Error('thrown at once');
    },
    rejects: () => Promise.reject(new Error('rejected')),
    'throws a text': () => {
      throw 'a bare text';
    },
    'throws nothing': () => {
      throw undefined;
    },
    'throws an object': () => {
      throw { no: 'error' };
    },
    'throws what has no text': () => {
      throw Object.create(null);
    },
    'throws what cannot be sent': () => {
      throw Object.assign(new Error('x'), { message: () => {} });
    },
    'throws a message that is null': () => {
      throw Object.assign(new Error('x'), { message: null });
    },
    exits: () => process.exit(0),
    'exits with 1': () => process.exit(1),
    'never ends': () => new Promise(() => {}),
    loops: () => {
      for (;;);
    },
    'fails out of turn': () => {
      setTimeout(() => {
        throw new Error('out of turn');
      }, 1);
      return new Promise(() => {});
    },
    'fails out of turn with null': () => {
      setTimeout(() => {
        throw null;
      }, 1);
      return new Promise(() => {});
    },
    'fails later': () => {
      setTimeout(() => {
        tell('later');
        throw new Error('later');
      }, 20);
    },
    'rejects later': () => {
      setTimeout(() => {
        tell('later');
        void Promise.reject(new Error('later'));
      }, 20);
    },
    'exits later': () => {
      setTimeout(() => {
        tell('later');
        process.exit(1);
      }, 20);
    },
    prints: () => console.log('printed by a handler'),
  };
  return acts[event.event]();
}
