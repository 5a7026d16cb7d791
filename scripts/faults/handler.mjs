/** Writes down when each call begins and ends, and in which process; fails, dawdles or succeeds as the event's name says. */
import { appendFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

/** In small pieces, so that who stands still meanwhile has the rest before it when it goes on. */
async function work(seconds) {
  for (let piece = 0; piece < seconds * 4; piece += 1) await sleep(250);
}

export default async function handle({ event, id, attempt }) {
  const note = (what) => appendFileSync(process.env.LEDGER, `${id} ${attempt} ${process.pid} ${what} ${Date.now()}\n`);
  note('begins');
  if (event === 'takes its time') await sleep(300);
  // The second one is still under way when the first, which stood still, comes to its end.
  if (event.endsWith('slowly') && attempt < 3) await work(attempt === 1 ? 5 : 15);
  const fails = event === 'always fails' || (event.startsWith('fails') && attempt < 3);
  note('ends');
  if (fails) throw new Error('as its name says');
}
