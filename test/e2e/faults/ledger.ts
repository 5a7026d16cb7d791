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
  readonly status: string;
  readonly attempts: number;
  readonly ended_at: Date;
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
  { maxAttempts, mayRepeat, interrupted }: Expectation,
): void {
  const { id, event, attempts } = entry;
  const details = JSON.stringify({ ...entry, series: series.map((one) => [...one]) });
  const assertThat: AssertThat = (isTrue, what) =>
    assert.ok(isTrue, `${event} ${id}: ${what}; ${details}`);
  const isOneSeries = series.length === 1 || (mayRepeat && event === 'always fails');
  assertThat(isOneSeries, `${series.length} series of attempts`);
  const calls = series.at(-1) ?? new Map();
  assertThat(calls.size >= 1 && calls.size <= maxAttempts, `${calls.size} calls`);
  const isCounted = Math.max(...calls.keys()) <= attempts && attempts <= maxAttempts;
  assertThat(isCounted, 'wrong attempt counter');
  checkOrder(calls, interrupted, assertThat);
  checkOutcome(entry, calls, maxAttempts, assertThat);
}

/** Fails with what is needed to understand the problem. */
type AssertThat = (isTrue: boolean, problem: string) => void;

/** No attempt begins before the previous one has ended, or has lost its work. */
function checkOrder(
  calls: AttemptSeries,
  interrupted: Expectation['interrupted'],
  assertThat: AssertThat,
): void {
  let before: Attempt | undefined;
  for (const [number, attempt] of [...calls].sort(([one], [other]) => one - other)) {
    if (before) {
      // A killed process, or one suspended for longer than its lease, has lost its work.
      const released = Math.min(
        interrupted.get(before.process) ?? Infinity,
        before.ends ?? Infinity,
      );
      assertThat(attempt.begins >= released, `attempt ${number} began during the previous one`);
    }
    before = attempt;
  }
}

function checkOutcome(
  { event, status, attempts, ended_at }: Entry,
  calls: AttemptSeries,
  maxAttempts: number,
  assertThat: AssertThat,
): void {
  if (status === 'done') {
    assertThat(event !== 'always fails', 'done although every attempt fails');
    const ends = calls.get(Math.max(...calls.keys()))?.ends ?? Infinity;
    assertThat(ended_at.getTime() >= ends, 'done before its last attempt ended');
    return;
  }
  assertThat(status === 'dead' && attempts === maxAttempts, 'not dead after its last attempt');
  const isCut = [...calls.values()].some(({ ends }) => ends === null) || calls.size < attempts;
  assertThat(event === 'always fails' || isCut, 'dead although its attempts should have succeeded');
}
