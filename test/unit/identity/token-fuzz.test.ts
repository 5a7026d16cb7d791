import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createSessionToken, plainToken } from '../../../src/identity/token.ts';
import { edited, encodings, seeded } from '../../support/random.ts';

function formsOf(token: string): string[] {
  const encoded = encodings(token);
  return [token, ...encoded, ...encoded.map((one) => `session:${one}`)];
}

test('every session token that parses is one of the forms of its canonical form', () => {
  const random = seeded(1);
  const alphabet = [...'0123456789abcdefABCDEFsion:-_=+/ \0\u00e9\u{1f511}'];
  const counts = { parsed: 0, rejected: 0 };
  for (let round = 0; round < 20_000; round += 1) {
    const forms = formsOf(createSessionToken());
    const credential = edited(forms[random(forms.length)] ?? '', alphabet, random);
    const token = plainToken(credential);
    counts[token === null ? 'rejected' : 'parsed'] += 1;
    if (token === null) continue;
    assert.match(token, /^session:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
    assert.ok(formsOf(token).includes(credential), credential);
    assert.equal(plainToken(token), token);
  }
  assert.ok(counts.parsed > 1_000 && counts.rejected > 1_000, JSON.stringify(counts));
});
