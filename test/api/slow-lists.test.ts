/** A list that takes too long is no failed database: its caller can ask for less. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ask, AUTH_TOKEN, launch, logIn } from '../support/gatehouse.ts';
import { addOperator, OPERATOR_TOKEN } from '../support/inbox.ts';

const { identity, secrets, webhook, sql, log } = await launch(['identity', 'secrets', 'webhook'], {
  DATABASE_STATEMENT_TIMEOUT: '1',
});
await addOperator(sql);

const LISTS = [
  ['identity.audit', `${identity}/api/audit/`, await logIn(identity)],
  ['secrets.secrets', `${secrets}/api/store`, AUTH_TOKEN],
  ['webhook.events', `${webhook}/events`, OPERATOR_TOKEN],
] as const;
for (const [table, url, bearer] of LISTS) {
  test(`a list of ${table} that takes too long is 503 too_slow, with Retry-After`, async () => {
    assert.equal((await ask('GET', url, { bearer })).status, 200);
    // A statement that waits for a lock takes as long as it may.
    const { status, json, headers } = await sql.begin(async (holding) => {
      await holding`lock table ${holding(table)} in access exclusive mode`;
      return ask('GET', url, { bearer });
    });
    assert.deepEqual([status, json.error.code], [503, 'too_slow']);
    assert.match(json.error.message, /Narrow it/);
    assert.ok(Number(headers.get('retry-after')) > 0);
    const lines = log().filter(({ message }) => message === 'list took too long');
    assert.match(String(lines.at(-1)?.error), /SQLSTATE 57014: a statement took too long/);
    assert.equal((await ask('GET', url, { bearer })).status, 200);
  });
}

test('any other statement that takes too long is a failed database', async () => {
  const { status, json } = await sql.begin(async (holding) => {
    await holding`lock table identity.sessions in access exclusive mode`;
    return ask('GET', `${identity}/api/audit/`, { bearer: LISTS[0][2] });
  });
  assert.deepEqual([status, json.error.code], [500, 'service_failed']);
});
