import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fromAnyBase64 } from '../../../src/platform/crypto/text.ts';
import { edited, encodings, seeded } from '../../support/random.ts';

test('every Base64 that parses is one of the encodings of its bytes', () => {
  const random = seeded(2);
  const alphabet = [...'AQgwxkZ059+/-_= \n\u00e9'];
  const counts = { parsed: 0, rejected: 0 };
  for (let round = 0; round < 20_000; round += 1) {
    const bytes = Array.from({ length: random(9) }, () => String.fromCharCode(random(256))).join(
      '',
    );
    const all = encodings(bytes);
    const text = edited(all[random(all.length)] ?? '', alphabet, random);
    const parsed = fromAnyBase64(text);
    counts[parsed === null ? 'rejected' : 'parsed'] += 1;
    if (parsed) assert.ok(encodings(parsed.toString('latin1')).includes(text), text);
  }
  assert.ok(counts.parsed > 1_000 && counts.rejected > 1_000, JSON.stringify(counts));
});
