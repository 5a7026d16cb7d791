/** Compares what the handler recorded in its ledger with what the webhook tables say. */
import assert from 'node:assert/strict';

interface Attempt {
  readonly process: number;
  readonly begins: number;
  /** Null if it was cut short. */
  ends: number | null;
}

/** The calls of one series of attempts, by attempt number. A redelivery starts another series. */
export type AttemptSeries = ReadonlyMap<number, Attempt>;

/** @param text lines as handler.mjs writes them  @returns every series of each event, by event id */
export function readLedger(text: string): ReadonlyMap<string, readonly AttemptSeries[]> {
  const calls = new Map<string, Array<Map<number, Attempt>>>();
  for (const line of text.split('\n').filter(Boolean)) {
    const [id = '', attemptText, processText, what, timeText] = line.split(' ');
    const [attempt, process, time] = [Number(attemptText), Number(processText), Number(timeText)];
    const series = calls.get(id) ?? [];
    calls.set(id, series);
    if (what === 'begins') {
      const call: Attempt = { process, begins: time, ends: null };
      const current = series.at(-1);
      // Attempts may begin out of order: the suspended process begins some after others have retried them.
      if (current && !current.has(attempt)) current.set(attempt, call);
      else series.push(new Map([[attempt, call]]));
    } else {
      const call = series
        .map((one) => one.get(attempt))
        .findLast((one) => one?.process === process);
      if (call) call.ends = time;
    }
  }
  return calls;
}

/** The final state of an event in the database. */
export interface Entry {
  readonly id: string;
  readonly event: string;
  readonly status: string | null;
  readonly attempts: number;
  readonly ended_at: Date;
  /** The numbers of the attempts that are recorded as failed. */
  readonly failures: readonly number[];
}

export interface Expectation {
  readonly maxAttempts: number;
  /** Whether the sender sent the event again: if it was dead by then, that has started another series. */
  readonly mayRepeat: boolean;
  /** When each killed process ended and the suspended one was stopped, by process id. */
  readonly interrupted: ReadonlyMap<number, number>;
}

export function checkEntry(
  entry: Entry,
  series: readonly AttemptSeries[],
  expectation: Expectation,
): void {
  const { id, event, status, attempts, failures } = entry;
  const { maxAttempts, mayRepeat, interrupted } = expectation;
  const calls = series.at(-1);
  const numbers = [...(calls?.keys() ?? [])].sort((one, other) => one - other);
  const details = JSON.stringify({ ...entry, series: series.map((one) => [...one]) });
  const message = (what: string) => `${event} ${id}: ${what}; ${details}`;
  const isOneSeries = series.length === 1 || (mayRepeat && event === 'always fails');
  assert.ok(isOneSeries, message(`${series.length} series of attempts`));
  assert.ok(
    calls && numbers.length >= 1 && numbers.length <= maxAttempts,
    message(`${numbers.length} calls`),
  );
  assert.ok(status === 'done' || status === 'dead', message(`status ${status}`));
  const last = Math.max(...numbers);
  assert.ok(last <= attempts && attempts <= maxAttempts, message('wrong attempt counter'));

  let before: Attempt | undefined;
  for (const number of numbers) {
    const attempt = calls.get(number);
    if (before && attempt) {
      // A killed process, or one suspended for longer than its lease, has lost its work.
      const released = interrupted.get(before.process) ?? before.ends;
      assert.ok(
        released !== null,
        message(`attempt ${number} began although the previous one had not ended`),
      );
      const earliest = Math.min(released, before.ends ?? released);
      assert.ok(
        attempt.begins >= earliest,
        message(`attempt ${number} began during the previous one`),
      );
    }
    before = attempt;
  }

  const final = calls.get(last);
  const isCut = [...calls.values()].some(({ ends }) => ends === null) || numbers.length < attempts;
  if (status === 'done') {
    assert.notEqual(event, 'always fails', message('done although every attempt fails'));
    const hasEnded = final && final.ends !== null && entry.ended_at.getTime() >= final.ends;
    assert.ok(hasEnded, message('done before its last attempt ended'));
  } else {
    assert.equal(attempts, maxAttempts, message('dead before its last attempt'));
    assert.ok(
      event === 'always fails' || isCut,
      message('dead although its attempts should have succeeded'),
    );
  }
  const isUnique = new Set(failures).size === failures.length;
  assert.ok(series.length > 1 || isUnique, message('a failure is recorded twice'));
  // The last attempt of a killed process is also recorded as failed.
  for (const number of failures) {
    const isExplained = calls.get(number)?.ends != null || number === maxAttempts;
    assert.ok(isExplained, message(`attempt ${number} is recorded as failed`));
  }
}
