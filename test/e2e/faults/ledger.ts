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

/**
 * @param text lines as handler.mjs writes them
 * @returns every series of each event, by event id
 */
export function readLedger(text: string): ReadonlyMap<string, readonly AttemptSeries[]> {
  const calls = new Map<string, Array<Map<number, Attempt>>>();
  for (const line of text.split('\n').filter(Boolean)) {
    const [id = '', attemptText, processText, what, timeText] = line.split(' ');
    const attempt = Number(attemptText);
    const process = Number(processText);
    const time = Number(timeText);
    const series = calls.get(id) ?? [];
    calls.set(id, series);
    if (what === 'begins') {
      const call: Attempt = { process, begins: time, ends: null };
      const current = series.at(-1);
      // Attempts may begin out of order: the suspended process begins some after others have
      // retried them.
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
  /** The numbers of the attempts of the last series that are recorded as failed. */
  readonly failures: readonly number[];
}

export interface Expectation {
  readonly maxAttempts: number;
  /**
   * Whether the sender sent the event again: if it was dead by then, that has started another
   * series.
   */
  readonly mayRepeat: boolean;
  /** When each killed process ended and the suspended one was stopped, by process id. */
  readonly interrupted: ReadonlyMap<number, number>;
}

export function checkEntry(
  entry: Entry,
  series: readonly AttemptSeries[],
  expectation: Expectation,
): void {
  const { id, event } = entry;
  const details = JSON.stringify({ ...entry, series: series.map((one) => [...one]) });
  const message = (what: string) => `${event} ${id}: ${what}; ${details}`;
  const isOneSeries = series.length === 1 || (expectation.mayRepeat && event === 'always fails');
  assert.ok(isOneSeries, message(`${series.length} series of attempts`));
  const calls = series.at(-1);
  assert.ok(calls, message('0 calls'));
  checkCount(entry, calls, expectation, message);
  checkOrder(calls, expectation, message);
  checkOutcome(entry, calls, expectation, message);
  checkFailures(entry, calls, expectation, message);
}

/** @returns the problem with what is needed to understand it */
type Message = (what: string) => string;

function checkCount(
  { attempts }: Entry,
  calls: AttemptSeries,
  { maxAttempts }: Expectation,
  message: Message,
): void {
  const isPossible = calls.size >= 1 && calls.size <= maxAttempts;
  assert.ok(isPossible, message(`${calls.size} calls`));
  const last = Math.max(...calls.keys());
  assert.ok(last <= attempts && attempts <= maxAttempts, message('wrong attempt counter'));
}

/** No attempt begins before the previous one has ended, or has lost its work. */
function checkOrder(calls: AttemptSeries, { interrupted }: Expectation, message: Message): void {
  let before: Attempt | undefined;
  for (const [number, attempt] of [...calls].sort(([one], [other]) => one - other)) {
    if (before) {
      // A killed process, or one suspended for longer than its lease, has lost its work.
      const released = interrupted.get(before.process) ?? before.ends;
      const began = `attempt ${number} began`;
      assert.ok(released !== null, message(`${began} although the previous one had not ended`));
      const earliest = Math.min(released, before.ends ?? released);
      assert.ok(attempt.begins >= earliest, message(`${began} during the previous one`));
    }
    before = attempt;
  }
}

function checkOutcome(
  { event, status, attempts, ended_at }: Entry,
  calls: AttemptSeries,
  { maxAttempts }: Expectation,
  message: Message,
): void {
  assert.ok(status === 'done' || status === 'dead', message(`status ${status}`));
  if (status === 'done') {
    assert.notEqual(event, 'always fails', message('done although every attempt fails'));
    const ends = calls.get(Math.max(...calls.keys()))?.ends ?? null;
    const hasEnded = ends !== null && ended_at.getTime() >= ends;
    assert.ok(hasEnded, message('done before its last attempt ended'));
    return;
  }
  assert.equal(attempts, maxAttempts, message('dead before its last attempt'));
  const isCut = [...calls.values()].some(({ ends }) => ends === null) || calls.size < attempts;
  const isExplained = event === 'always fails' || isCut;
  assert.ok(isExplained, message('dead although its attempts should have succeeded'));
}

function checkFailures(
  { failures }: Entry,
  calls: AttemptSeries,
  { maxAttempts }: Expectation,
  message: Message,
): void {
  const isUnique = new Set(failures).size === failures.length;
  assert.ok(isUnique, message('a failure is recorded twice'));
  // The last attempt of a killed process is also recorded as failed.
  for (const number of failures) {
    const hasEnded = (calls.get(number)?.ends ?? null) !== null;
    const isExplained = hasEnded || number === maxAttempts;
    assert.ok(isExplained, message(`attempt ${number} is recorded as failed`));
  }
}
