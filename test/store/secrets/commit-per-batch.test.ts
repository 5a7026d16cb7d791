import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Sql } from 'postgres';
import { type Answer, launch } from '../../support/gatehouse.ts';
import { whileLocked } from '../../support/hold.ts';
import { secretsClient } from '../../support/secrets.ts';

const TEXT = 'marked-password-text';
const { url, sql, databaseUrl } = await launch(['secrets']);
const { encrypt, keep, decrypt } = secretsClient(url.secrets);

const encryptOne = async () => () => encrypt({ password: TEXT });
const lastRead = async () => {
  const { id, secret } = await keep(TEXT, { max_reads: 1 });
  return () => decrypt(id, secret);
};
// Rows without content may be removed at any time.
const rows = async () => [
  ...(await sql`select * from secrets.secrets where blob is not null order by id`),
];

for (const [what, status, prepare] of [
  ['encrypt', 201, encryptOne],
  ['the last read', 200, lastRead],
] as const) {
  test(`${what}: the reply is sent only after the commit; 503 and no content if its write fails`, async () => {
    const heldUp = (
      operation: () => Promise<Answer>,
      end: (blocker: Sql) => PromiseLike<unknown>,
    ) => whileLocked({ url: databaseUrl, sql }, 'secrets.secrets', 1, () => [operation()], end);
    const failing = await prepare();
    const before = await rows();
    const [failed = assert.fail()] = await heldUp(
      failing,
      () => sql`
        select pg_terminate_backend(pid) from pg_stat_activity
        where wait_event_type = 'Lock' and datname = current_database()`,
    );
    assert.deepEqual([failed.status, failed.json.error.code], [503, 'unavailable']);
    assert.ok(!failed.text.includes(TEXT));
    assert.deepEqual(await rows(), before);
    // The lost connection is replaced; a request at that moment may get 503.
    while ((await encrypt({ password: 'next' })).status !== 201);

    const operation = await prepare();
    const stored = await rows();
    const [answer] = await heldUp(operation, (blocker) => blocker`commit`);
    assert.equal(answer?.status, status);
    assert.notDeepEqual(await rows(), stored);
  });
}
