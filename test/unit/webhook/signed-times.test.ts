/** Signed times, in the units and forms of their senders. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { secondsOf } from '../../../src/webhook/signatures.ts';

test('a signed time is in seconds, a smaller unit, or an ISO time with its offset', () => {
  for (const [text, seconds] of [
    ['1700000000', 1_700_000_000],
    ['1700000000250', 1_700_000_000.25],
    ['1700000000250000', 1_700_000_000.25],
    ['1700000000250000000', 1_700_000_000.25],
    ['2023-11-14T22:13:20.25Z', 1_700_000_000.25],
    ['2023-11-14T23:13:20+01:00', 1_700_000_000],
    ['2023-11-14T22:13:20.250+0000', 1_700_000_000.25],
    ['2023-11-14T22:13:20', null],
    ['2023-11-14', null],
    ['17000000002500', 17_000_000_002.5],
    ['170000000025000', null],
    ['17000000002500000', null],
    ['170000000025000000000', null],
  ] as const) {
    const found = secondsOf(text);
    // Nanoseconds have more digits than a number.
    assert.equal(found && Math.round(found * 1_000), seconds && seconds * 1_000, text);
  }
});
