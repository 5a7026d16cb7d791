/**
 * Records the begin and end of each call in the ledger, and fails, waits or succeeds as the event's
 * name says.
 */
import { appendFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

/** In short steps: after SIGSTOP and SIGCONT, the rest of the work still takes its time. */
async function work(seconds) {
  for (let step = 0; step < seconds * 4; step += 1) await sleep(250);
}

export default async function handle({ event, id, attempt }) {
  const call = `${id} ${attempt} ${process.pid}`;
  const record = (what) => appendFileSync(process.env.LEDGER, `${call} ${what} ${Date.now()}\n`);
  record('begins');
  if (event === 'takes its time') await sleep(300);
  // The second attempt is still running when the first, in the process that was suspended, ends.
  if (event.endsWith('slowly') && attempt < 3) await work(attempt === 1 ? 5 : 15);
  const fails = event === 'always fails' || (event.startsWith('fails') && attempt < 3);
  record('ends');
  if (fails) throw new Error('the event name asks for a failure');
}
