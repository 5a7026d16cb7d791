import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { keepUntil } from '../../support/expired.ts';
import { launch } from '../../support/gatehouse.ts';
import { secretsClient } from '../../support/secrets.ts';

const { url, sql } = await launch(['secrets']);
const { keep, decrypt, list } = secretsClient(url.secrets);

const rowOf = async (id: string) => (await sql`select * from secrets.secrets where id = ${id}`)[0];

test('decrypt: the same 404, byte by byte, for everything that does not open', async () => {
  const kept = await keep('here');
  const once = await keep('once', { max_reads: 1 });
  await decrypt(once.id, once.secret);
  const expired = await keepUntil(sql, -1, 'timed');
  const cases: ReadonlyArray<readonly [why: string, id: string, secret: string]> = [
    ['an unknown id', randomUUID(), kept.secret],
    ['another key', kept.id, randomBytes(32).toString('base64url')],
    ['the key of another secret', kept.id, once.secret],
    ['the nil UUID', '00000000-0000-0000-0000-000000000000', kept.secret],
    ['an expired secret', expired.id, expired.secret],
    ['an expired secret with a wrong key', expired.id, kept.secret],
    ['a used-up secret', once.id, once.secret],
    ['a used-up secret with a wrong key', once.id, kept.secret],
  ];
  const [first] = await Promise.all(cases.slice(0, 1).map(([, id, secret]) => decrypt(id, secret)));
  assert.equal(first?.json.error.code, 'not_found');
  for (const [why, id, secret] of cases) {
    const answer = await decrypt(id, secret);
    assert.equal(answer.status, 404, why);
    assert.equal(answer.text, first?.text, why);
    assert.deepEqual([...answer.headers.keys()], [...(first?.headers.keys() ?? [])], why);
  }
  assert.equal((await decrypt(kept.id, kept.secret)).status, 200);
});

test('decrypt: a malformed key is 404, with a message that describes a key', async () => {
  const kept = await keep('here');
  const key = Buffer.from(kept.secret, 'base64url');
  const cases: ReadonlyArray<readonly [why: string, id: string, secret: string]> = [
    ['the key in hex', kept.id, key.toString('hex')],
    ['the key in padded Base64', kept.id, key.toString('base64')],
    ['the key with padding', kept.id, `${kept.secret}=`],
    ['the key with a space', kept.id, ` ${kept.secret}`],
    ['the key with a line break', kept.id, `${kept.secret}\n`],
    ['31 bytes', kept.id, key.subarray(0, 31).toString('base64url')],
    ['33 bytes', kept.id, Buffer.concat([key, Buffer.of(0)]).toString('base64url')],
    ['the key in another spelling of the last character', kept.id, respelt(kept.secret)],
    ['a key of 256 characters', kept.id, 'A'.repeat(256)],
    ['no Base64url at all', kept.id, '\0😀'],
  ];
  for (const [why, id, secret] of cases) {
    const { status, json } = await decrypt(id, secret);
    assert.equal(status, 404, why);
    assert.equal(json.error.code, 'not_found', why);
    assert.match(json.error.message, /43 characters/, why);
  }
  assert.equal((await decrypt(kept.id, kept.secret)).status, 200);
});

/** 43 characters hold 258 bits: the last two are padding, which a lenient decoder ignores. */
function respelt(secret: string): string {
  const digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
  const last = digits.indexOf(secret.slice(-1));
  const other = secret.slice(0, -1) + digits[last + 1];
  assert.deepEqual(Buffer.from(other, 'base64url'), Buffer.from(secret, 'base64url'));
  return other;
}

test('a secret opens until it expires by the clock of the database', async () => {
  const { id, secret } = await keepUntil(sql, 60_000, 'timed');
  assert.equal((await decrypt(id, secret)).status, 200);
  const past = await keepUntil(sql, -1, 'over');
  assert.equal((await decrypt(past.id, past.secret)).status, 404);
});

for (const reads of [1, 2, 5]) {
  test(`max_reads: ${reads} allows exactly ${reads} reads, with wrong keys between them`, async () => {
    const { id, secret } = await keep('counted', { max_reads: reads });
    const wrong = randomBytes(32).toString('base64url');
    for (let read = 0; read < reads; read += 1) {
      assert.equal((await decrypt(id, wrong)).status, 404);
      assert.equal((await rowOf(id))?.reads, String(read));
      assert.equal((await decrypt(id, secret)).json.password, 'counted');
    }
    assert.equal((await decrypt(id, secret)).status, 404);
  });
}

test('the last read removes the content from the row and the secret from the list', async () => {
  const { id, secret } = await keep('gone', { max_reads: 2 });
  const listed = async () => (await list()).json.some((item: { id: string }) => item.id === id);
  await decrypt(id, secret);
  const half = await rowOf(id);
  assert.ok(half?.blob instanceof Buffer && half.commitment instanceof Buffer);
  assert.ok(await listed());
  await decrypt(id, secret);
  const { blob, tag, reads } = (await rowOf(id)) ?? {};
  assert.deepEqual({ blob, tag, reads }, { blob: null, tag: null, reads: '2' });
  assert.ok(!(await listed()));
});

test('the stored length is the same for all short texts', async () => {
  const lengths = new Set<number>();
  for (const text of ['x', 'x'.repeat(16), 'x'.repeat(64), 'x'.repeat(252)]) {
    lengths.add((await rowOf((await keep(text)).id))?.blob.length);
  }
  assert.equal(lengths.size, 1);
});
