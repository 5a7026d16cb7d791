/** The books of the ledger test: what the handler wrote down, held against what the inbox says. */
import assert from 'node:assert/strict';

interface Attempt {
  readonly process: number;
  readonly begins: number;
  /** Null for one that was cut short. */
  ends: number | null;
}

/** By the number of the attempt. */
export type Drive = ReadonlyMap<number, Attempt>;

/** @param text lines as handler.mjs writes them  @returns by event, and each time that it was driven from its first attempt */
export function readCalls(text: string): ReadonlyMap<string, readonly Drive[]> {
  const calls = new Map<string, Array<Map<number, Attempt>>>();
  for (const line of text.split('\n').filter(Boolean)) {
    const [id = '', number = 0, process = 0, what, time = 0] = line.split(' ').map((word, index) => (index === 0 || index === 3 ? word : Number(word)));
    const drives = calls.get(String(id)) ?? [];
    calls.set(String(id), drives);
    const attempt = Number(number);
    if (what === 'begins') {
      const begun = { process: Number(process), begins: Number(time), ends: null };
      const current = drives.at(-1);
      // In any order: who stood still begins late what others have tried again by then.
      if (current && !current.has(attempt)) current.set(attempt, begun);
      else drives.push(new Map([[attempt, begun]]));
    } else {
      const known = drives.map((drive) => drive.get(attempt)).findLast((one) => one?.process === Number(process));
      if (known) known.ends = Number(time);
    }
  }
  return calls;
}

/** An event as the inbox has it in the end. */
export interface Entry {
  readonly id: string;
  readonly event: string;
  readonly status: string | null;
  readonly attempts: number;
  readonly ended_at: Date;
  /** The numbers of the attempts that are noted as failed. */
  readonly failures: readonly number[];
}

/**
 * @param mayRepeat whether the sender has repeated it: if it was dead by then, that has driven it again
 * @param ended when each process ended that was killed, and when the one that stood still was stopped
 */
export function checkEntry(entry: Entry, drives: readonly Drive[], mayRepeat: boolean, tries: number, ended: ReadonlyMap<number, number>): void {
  const { id, event, status, attempts, failures } = entry;
  const made = drives.at(-1);
  const numbers = [...(made?.keys() ?? [])].sort((one, other) => one - other);
  const say = (what: string) => `${event} ${id}: ${what}; ${JSON.stringify({ ...entry, drives: drives.map((drive) => [...drive]) })}`;
  assert.ok(drives.length === 1 || (mayRepeat && event === 'always fails'), say(`it was driven ${drives.length} times from its first attempt`));
  assert.ok(made && numbers.length >= 1 && numbers.length <= tries, say(`${numbers.length} calls`));
  assert.ok(status === 'done' || status === 'dead', say(`it is ${status}`));
  const last = Math.max(...numbers);
  assert.ok(last <= attempts && attempts <= tries, say('the attempts are counted'));

  let before: Attempt | undefined;
  for (const number of numbers) {
    const attempt = made.get(number);
    if (before && attempt) {
      // Whoever has been killed, or stood still for longer than its lease, has lost its work.
      const free = ended.get(before.process) ?? before.ends;
      assert.ok(free !== null, say(`attempt ${number} began although nobody had ended the one before`));
      assert.ok(attempt.begins >= Math.min(free, before.ends ?? free), say(`attempt ${number} began while the one before was under way`));
    }
    before = attempt;
  }

  const final = made.get(last);
  const isCut = [...made.values()].some(({ ends }) => ends === null) || numbers.length < attempts;
  if (status === 'done') {
    assert.notEqual(event, 'always fails', say('it cannot be done'));
    assert.ok(final && final.ends !== null && entry.ended_at.getTime() >= final.ends, say('it was done before its last attempt had ended'));
  } else {
    assert.equal(attempts, tries, say('it is dead before its time'));
    assert.ok(event === 'always fails' || isCut, say('it is dead without a reason'));
  }
  if (drives.length === 1) assert.equal(new Set(failures).size, failures.length, say('a failure was noted twice'));
  // One whose process ended in its last attempt is noted as failed, too.
  for (const number of failures) assert.ok(made.get(number)?.ends != null || number === tries, say(`attempt ${number} was noted as failed`));
}
