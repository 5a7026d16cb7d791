/** Concurrent wrong passphrases and share links on two replicas. */
import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';
import { connect } from '../../../scripts/postgres.ts';
import { createDatabase } from '../../support/database.ts';
import { type Answer, ask, startGatehouse } from '../../support/gatehouse.ts';
import { PATIENT, untilSql } from '../../support/connections.ts';
import { secretsClient, wrongKey } from '../../support/secrets.ts';
import { BEHIND_PROXY, newAddress } from '../../support/logins.ts';

const TEXT = 'marked-password-text';
const TEN_MINUTES = 600;

const { url: databaseUrl, sql } = await createDatabase();
/** The attempts wait as long as a slow machine needs for all of them. */
const settings = { ...BEHIND_PROXY, ...PATIENT, SHARE_PAGES: 'on' };
const started = await Promise.all(
  [1, 2].map(() => startGatehouse({ after }, ['secrets'], databaseUrl, settings, 'ready', 240_000)),
);
const replica = (turn: number) =>
  started[turn % 2]?.url.secrets ?? assert.fail('there is a replica for every turn');
const { keep, receipt } = secretsClient(replica(0));
beforeEach(async () => {
  await sql`delete from secrets.throttles`;
});

/** Like a share page, without a bearer token. */
const openLink = (turn: number, address: string, id: string, secret: string): Promise<Answer> =>
  ask('POST', `${replica(turn)}/s/${id}`, {
    body: { secret },
    headers: { 'x-forwarded-for': address },
  });
const atOnce = (count: number, act: (turn: number) => Promise<Answer>): Promise<Answer[]> =>
  Promise.all(Array.from({ length: count }, (_, turn) => act(turn)));

/** The number of replies by code; `null` for a success. */
function codes(answers: readonly Answer[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { json } of answers) {
    counts[String(json.error?.code ?? null)] = (counts[String(json.error?.code ?? null)] ?? 0) + 1;
  }
  return counts;
}

function assertThrottled(answer: Answer, atMost: number): void {
  assert.deepEqual(
    [answer.status, answer.json.error.code],
    [429, 'too_many_requests'],
    answer.text,
  );
  const seconds = Number(answer.headers.get('retry-after'));
  assert.ok(seconds >= 1 && seconds <= atMost, `Retry-After: ${seconds}`);
}

test('64 concurrent wrong passphrases from one network: 5 attempts, 59 times 429', async () => {
  const { id, secret } = await keep(TEXT, { passphrase: 'the right one', max_reads: 1 });
  const address = newAddress();
  const answers = await atOnce(64, (turn) =>
    secretsClient(replica(turn), { 'x-forwarded-for': address }).decrypt(
      id,
      secret,
      `wrong one ${turn}`,
    ),
  );
  assert.deepEqual(codes(answers), { wrong_passphrase: 5, too_many_requests: 59 });
  for (const answer of answers) if (answer.status === 429) assertThrottled(answer, 900);
  const { json } = await receipt(id);
  assert.deepEqual([json.status, json.reads, json.failed_reads], ['stored', 0, 5]);
  const other = secretsClient(replica(1), { 'x-forwarded-for': newAddress() });
  assert.equal((await other.decrypt(id, secret, 'the right one')).json.password, TEXT);
});

test('one attempt left: one of two replicas that ask together gets it', async (t) => {
  const { id, secret } = await keep(TEXT, { passphrase: 'the right one' });
  const address = newAddress();
  const guess = (turn: number) =>
    secretsClient(replica(turn), { 'x-forwarded-for': address }).decrypt(id, secret, 'a wrong one');
  for (let turn = 0; turn < 4; turn += 1) assert.equal((await guess(turn)).status, 403);
  const blocker = connect(databaseUrl);
  t.after(() => blocker.end());
  await blocker`begin`;
  await blocker`select from secrets.throttles for update`;
  const asked = atOnce(2, guess);
  const isWaiting = async () =>
    (
      await sql`
    select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`
    ).length === 2;
  await untilSql(isWaiting, 'both wait for the row');
  await blocker`commit`;
  assert.deepEqual(codes(await asked), { wrong_passphrase: 1, too_many_requests: 1 });
});

/** Wrong links, six at a time, until one is throttled. @returns the number of replies by code */
async function untilFull(address: string, ids: readonly string[]): Promise<Record<string, number>> {
  const answers: Answer[] = [];
  while (!answers.some(({ status }) => status === 429)) {
    assert.ok(answers.length <= 72, 'no reply was throttled');
    answers.push(
      ...(await atOnce(6, (turn) =>
        openLink(turn, address, ids[turn % ids.length] ?? '', wrongKey()),
      )),
    );
  }
  for (const answer of answers) if (answer.status === 429) assertThrottled(answer, TEN_MINUTES);
  return codes(answers);
}

test('after 60 wrong links from one network, wrong ones are 429 and the correct one opens', async () => {
  const { id, secret } = await keep(TEXT, { max_reads: 5 });
  const address = newAddress();
  const other = await keep('another', { max_reads: 1 });
  assert.deepEqual(
    await untilFull(address, [id, other.id, '00000000-0000-4000-8000-000000000000']),
    { not_found: 60, too_many_requests: 6 },
  );
  for (const turn of [0, 1]) {
    assertThrottled(await openLink(turn, address, id, wrongKey()), TEN_MINUTES);
    assert.equal((await openLink(turn, address, id, secret)).json.password, TEXT);
    assert.equal((await openLink(turn, newAddress(), id, secret)).json.password, TEXT);
  }
  assert.deepEqual(
    (await secretsClient(replica(0), { 'x-forwarded-for': address }).decrypt(id, secret)).json,
    { password: TEXT },
    'requests with a bearer token are not counted',
  );
});

test('of 200 concurrent wrong links from one network, 60 are tried', async () => {
  const { id, secret } = await keep(TEXT);
  const address = newAddress();
  const { not_found: tried = 0, too_many_requests: refused = 0 } = codes(
    await atOnce(200, (turn) => openLink(turn, address, id, wrongKey())),
  );
  assert.deepEqual([tried, refused], [60, 140]);
  assert.deepEqual(
    codes(await atOnce(20, (turn) => openLink(turn, address, id, turn % 4 ? wrongKey() : secret))),
    { too_many_requests: 15, null: 5 },
  );
});

test('correct links do not count, and do not clear the count of wrong ones', async () => {
  const { id, secret } = await keep(TEXT);
  const address = newAddress();
  for (let turn = 0; turn < 59; turn += 1)
    assert.equal((await openLink(turn, address, id, wrongKey())).status, 404);
  assert.deepEqual(codes(await atOnce(100, (turn) => openLink(turn, address, id, secret))), {
    null: 100,
  });
  assert.equal((await receipt(id)).json.reads, 100);
  assert.equal((await openLink(0, address, id, wrongKey())).status, 404);
  assertThrottled(await openLink(1, address, id, wrongKey()), TEN_MINUTES);
});
