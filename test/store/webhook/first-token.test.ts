import assert from 'node:assert/strict';
import { createEmptyDatabase } from '../../support/database.ts';
import { ask, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { test } from '../../support/until.ts';

// The first start of several replicas, without WEBHOOK_TOKEN, is in identity/administrator.test.ts.
test('no start replaces a token that exists, whatever is set and even if it is revoked', async (t) => {
  const { url, sql } = await createEmptyDatabase(t);
  /** @returns what the start has said, and the status for this token */
  const start = async (WEBHOOK_TOKEN: string | undefined, bearer: string) => {
    const gatehouse = await startGatehouse(t, ['webhook'], url, { WEBHOOK_TOKEN });
    const body = { event: 'e', data: { page_id: 'p1' } };
    const { status } = await ask('POST', `${gatehouse.url.webhook}/webhook`, { bearer, body });
    await gatehouse.stop();
    return [gatehouse.stderr(), status];
  };
  const said = 'webhook: created the first token: the value of WEBHOOK_TOKEN\n';
  assert.deepEqual(await start(WEBHOOK_TOKEN, WEBHOOK_TOKEN), [said, 200]);
  const other = 'another-token-0123456789abcdefghijklmnopqr';
  assert.deepEqual(await start(other, other), ['', 401]);
  await sql.begin(async (change) => {
    await change`update webhook.tokens set last_used_at = now()`;
    assert.deepEqual(await start(undefined, WEBHOOK_TOKEN), ['', 200], 'it waits for no change');
  });
  await sql`update webhook.tokens set revoked_at = now()`;
  for (const given of [undefined, WEBHOOK_TOKEN])
    assert.deepEqual(await start(given, WEBHOOK_TOKEN), ['', 401]);
  assert.equal((await sql`select from webhook.tokens`).length, 1);
});
