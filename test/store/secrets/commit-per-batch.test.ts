import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connect } from '../../../scripts/postgres.ts';
import { untilSql } from '../../support/connections.ts';
import { type Answer, launch } from '../../support/gatehouse.ts';
import { secretsClient } from '../../support/secrets.ts';

const TEXT = 'marked-password-text';
const { url, sql, databaseUrl } = await launch(['secrets']);
const { encrypt, keep, decrypt } = secretsClient(url.secrets);

const encryptOne = async () => () => encrypt({ password: TEXT });
const lastRead = async () => {
  const { id, secret } = await keep(TEXT, { max_reads: 1 });
  return () => decrypt(id, secret);
};
const waiting = () =>
  sql`select pid from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`;
// Rows without content may be removed at any time.
const rows = async () => [
  ...(await sql`select * from secrets.secrets where blob is not null order by id`),
];

/** Blocks every write, but no read, until it is released. */
async function heldUp(
  operation: () => Promise<Answer>,
  release: (unlock: () => PromiseLike<unknown>) => PromiseLike<unknown>,
): Promise<Answer> {
  const blocker = connect(databaseUrl);
  try {
    await blocker`begin`;
    await blocker`lock table secrets.secrets in share mode`;
    let isAnswered = false;
    const pending = operation().finally(() => {
      isAnswered = true;
    });
    await untilSql(async () => (await waiting()).length > 0, 'it waits');
    assert.equal(isAnswered, false);
    await release(() => blocker`commit`);
    return await pending;
  } finally {
    await blocker.end();
  }
}

for (const [what, status, prepare] of [
  ['encrypt', 201, encryptOne],
  ['the last read', 200, lastRead],
] as const) {
  test(`${what}: the reply is sent only after the commit`, async () => {
    const operation = await prepare();
    const before = await rows();
    const answer = await heldUp(operation, (unlock) => unlock());
    assert.equal(answer.status, status);
    assert.notDeepEqual(await rows(), before);
  });

  test(`${what}: 503 and no content if its write fails`, async () => {
    const operation = await prepare();
    const before = await rows();
    const answer = await heldUp(
      operation,
      () => sql`select pg_terminate_backend(pid) from (${waiting()}) waiting`,
    );
    assert.equal(answer.status, 503);
    assert.equal(answer.json.error.code, 'unavailable');
    assert.ok(!answer.text.includes(TEXT));
    assert.deepEqual(await rows(), before);
    // The lost connection is replaced; a request at that moment may get 503.
    while ((await encrypt({ password: 'next' })).status !== 201);
  });
}
