/** Bounded memory of keys. The token bucket itself is tested with the rate of webhook tokens. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createRateLimit, createRecentMap } from '../../../src/platform/runtime/rate-limit.ts';

test('recent map: keeps the entries that were set last, and forgets those before them', () => {
  const map = createRecentMap<number>(100);
  for (let key = 0; key < 1_000; key += 1) map.set(String(key), key);
  for (let key = 900; key < 1_000; key += 1) assert.equal(map.get(String(key)), key);
  for (let key = 0; key < 800; key += 1) assert.equal(map.get(String(key)), undefined);
});

test('recent map: an entry that is set again and again is never forgotten', () => {
  const map = createRecentMap<string>(10);
  for (let key = 0; key < 1_000; key += 1) {
    map.set('busy', 'yes');
    map.set(String(key), 'no');
    assert.equal(map.get('busy'), 'yes');
  }
});

test('recent map: an entry that is set to null stays null after others were set', () => {
  const map = createRecentMap<string | null>(10);
  map.set('token', 'accepted');
  for (let key = 0; key < 10; key += 1) map.set(String(key), 'accepted');
  assert.equal(map.get('token'), 'accepted');
  map.set('token', null);
  assert.equal(map.get('token'), null);
});

test('rate limit: a flood of other keys does not reset a key in use', () => {
  const rate = createRateLimit(2, 1, () => 0);
  for (let key = 0; key < 50_000; key += 1) {
    rate.take(`network ${key}`);
    if (key % 5_000 === 0) rate.add('busy', -2);
    if (key > 5_000) assert.equal(rate.wait('busy'), 1);
  }
});
