/** Signed bodies that are chunked, too large, forms, compressed or incomplete. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { ask, assertStatus } from '../../support/gatehouse.ts';
import { addToken, signedBy } from '../../support/senders.ts';
import { connectTo, exchange, headOf } from '../../support/socket.ts';
import { launchWebhook } from '../../support/webhook.ts';

const { sql, database, base } = await launchWebhook();
const { token } = await addToken(database, 'stripe');
const countEvents = async () => (await sql`select from webhook.events`).length;

async function storesNothing(act: () => Promise<void>): Promise<void> {
  const before = await countEvents();
  await act();
  assert.equal(await countEvents(), before);
}

const payload = (bytes: number) => {
  const whole = (more: string) => JSON.stringify({ id: `evt_${randomUUID()}`, type: 'x', more });
  return whole('x'.repeat(bytes - whole('').length));
};
const signed = (body: string) => ({
  authorization: `Bearer ${token}`,
  'content-type': 'application/json',
  ...signedBy('stripe', body),
});
const headLines = (headers: Record<string, string>) => [
  'POST /webhook HTTP/1.1',
  'Host: x',
  ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
];
const chunk = (text: string) => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;

test('a signed body may be chunked; too large is 413, a form or compression 415', async () => {
  const whole = payload(1_000);
  const chunked = await exchange(
    base,
    headLines({ ...signed(whole), 'transfer-encoding': 'chunked' }),
    `${chunk(whole.slice(0, 1))}${chunk(whole.slice(1, 500))}${chunk(whole.slice(500))}0\r\n\r\n`,
  );
  assert.deepEqual([chunked.status, chunked.json.status], [200, 'accepted']);
  const [row] = await sql`select body from webhook.events where id = ${chunked.json.id}`;
  assert.equal(row?.body.toString(), whole);
  const exact = payload(65_536);
  assert.equal((await ask('POST', base, { body: exact, headers: signed(exact) })).status, 200);
  await storesNothing(async () => {
    const large = payload(65_537);
    assert.equal((await ask('POST', base, { body: large, headers: signed(large) })).status, 413);
    assert.equal(
      (
        await exchange(
          base,
          headLines({ ...signed(large), 'transfer-encoding': 'chunked' }),
          `${chunk(large)}0\r\n\r\n`,
        )
      ).status,
      413,
    );
    const form = { 'content-type': 'application/x-www-form-urlencoded' };
    const fields = await ask('POST', base, { body: 'a=1', headers: { ...signed('a=1'), ...form } });
    assert.equal(fields.status, 415);
    // Signed over the original or over the compressed bytes: both are rejected.
    for (const headers of [signed(whole), signed(gzipSync(whole).toString('latin1'))]) {
      assertStatus(
        await ask('POST', base, {
          body: gzipSync(whole),
          headers: { ...headers, 'content-encoding': 'gzip' },
        }),
        415,
      );
    }
  });
});

test('an incomplete signed body stores nothing, and the next one is accepted', async () => {
  const whole = payload(1_000);
  await storesNothing(async () => {
    for (const framing of [{ 'content-length': '1000' }, { 'transfer-encoding': 'chunked' }]) {
      const client = await connectTo(base);
      client.send(
        headOf(headLines({ ...signed(whole), ...framing })),
        'content-length' in framing ? whole.slice(0, 999) : chunk(whole.slice(0, 999)),
      );
      client.socket.end();
      // A reply or the end of the connection: the service has processed it by then.
      assert.doesNotMatch(await client.closed(), /^HTTP\/1\.1 2/);
    }
  });
  assert.equal((await ask('POST', base, { body: whole, headers: signed(whole) })).status, 200);
});
