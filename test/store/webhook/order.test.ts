/** Which events a service delivers and in which order by default, and when it tries again. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isSelected } from '../../../src/webhook/event-names.ts';
import { delayOf } from '../../../src/webhook/worker.ts';
import { untilSql } from '../../support/connections.ts';
import { launch } from '../../support/gatehouse.ts';
import { startRecorder } from '../../support/recorder.ts';
import { stateOf, untilStatus, sendEvent } from '../../support/webhook-store.ts';

test('WEBHOOK_EVENTS selects what is delivered; without WEBHOOK_ORDER, no event waits for another', async (t) => {
  const recorder = await startRecorder(t);
  recorder.answer((response, { body }) =>
    response.writeHead(body.includes('head') ? 503 : 200, { 'retry-after': '3600' }).end(),
  );
  const settings = {
    WEBHOOK_FORWARD_URL: recorder.url,
    WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
    WEBHOOK_EVENTS: 'page.*, *.head',
  };
  const { webhook, sql } = await launch(['webhook'], settings, t);
  const head = await sendEvent(webhook, 'the.head');
  await untilSql(async () => (await stateOf(sql, head)).errors?.length === 1, 'it has failed');
  await untilStatus(sql, await sendEvent(webhook, 'page.updated'), 'done');
  const skipped = await sendEvent(webhook, 'comment.page.');
  assert.deepEqual(await stateOf(sql, skipped), { status: 'skipped', attempts: 0, errors: [] });
});

test('only * is special in a pattern, which matches whole names, and no pattern selects all', () => {
  const SPECIAL = ['(a|b)', '[ab]', 'a+', 'a?', '^a$', '\\d', 'a{2}', 'a/b-c', 'page.updated'];
  for (const name of SPECIAL) assert.equal(isSelected(SPECIAL, name), true, name);
  for (const name of ['a', 'b', 'aa', '5', '', 'pageXupdated', 'PAGE.UPDATED'])
    assert.equal(isSelected(SPECIAL, name), false, name);
  for (const name of ['', 'anything', 'a\nb'])
    assert.deepEqual([isSelected([], name), isSelected(['*'], name)], [true, true], name);
});

/** Every text of these letters, up to a length. */
const textsOf = (letters: string, most: number): string[] => {
  const rests = most === 0 ? [] : textsOf(letters, most - 1);
  return ['', ...[...letters].flatMap((letter) => rests.map((rest) => letter + rest))];
};

test('short patterns select the same names as a regular expression', () => {
  const names = textsOf('ab', 5);
  for (const pattern of textsOf('ab*', 5)) {
    const expected = new RegExp(`^${pattern.replaceAll('*', '.*')}$`);
    for (const name of names)
      assert.equal(isSelected([pattern], name), expected.test(name), `"${pattern}" and "${name}"`);
  }
});

test('no event name makes a pattern with many stars slow', () => {
  // A regular expression would take hours.
  assert.equal(isSelected([`${'*a'.repeat(30)}*b`], 'a'.repeat(1_024)), false);
});

test('a delay is within 20 % of its pause, at least Retry-After, which counts up to a day', () => {
  for (const [pauseMs, retryAfter, random, delayMs] of [
    [1_000, null, 0, 800],
    [1_000, null, 0.5, 1_000],
    [1_000, null, 1, 1_200],
    [0, null, 1, 0],
    [30_000, 120, 1, 120_000],
    [1_000_000, 10, 0, 800_000],
    [30_000, 200_000, 0, 86_400_000],
    [604_800_000, 200_000, 0.5, 604_800_000],
  ] as const)
    assert.equal(Math.round(delayOf(pauseMs, retryAfter, random)), delayMs);
  const drawn = Array.from({ length: 1_000 }, () => delayOf(10, null));
  const [least, most] = drawn.sort((one, other) => one - other).filter((_, n) => n % 999 === 0);
  assert.ok(least && most && least >= 8 && least < 8.5 && most > 11.5 && most <= 12);
});
