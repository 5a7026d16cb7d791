/** Concurrent wrong passphrases and share links on two replicas. */
import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';
import { createDatabase } from '../../support/database.ts';
import { type Answer, ask, startGatehouse } from '../../support/gatehouse.ts';
import { PATIENT } from '../../support/connections.ts';
import { secretsClient, wrongKey } from '../../support/secrets.ts';
import { BEHIND_PROXY, newAddress } from '../../support/logins.ts';

const TEXT = 'marked-password-text';

/** The attempts wait as long as a slow machine needs for all of them. */
const settings = { ...BEHIND_PROXY, ...PATIENT, SHARE_PAGES: 'on' };
const ANSWER_MS = 240_000;
const { sql, url: databaseUrl } = await createDatabase();
const start = () =>
  startGatehouse({ after }, ['secrets'], databaseUrl, settings, 'ready', ANSWER_MS);
const replicas = [(await start()).url.secrets, (await start()).url.secrets];
const replica = (turn: number) => replicas[turn % 2] ?? assert.fail();
const { keep, receipt } = secretsClient(replica(0));
beforeEach(() => sql`delete from secrets.throttles`);

/** Like a share page, without a bearer token. */
const openLink = (turn: number, address: string, id: string, secret: string) =>
  ask('POST', `${replica(turn)}/s/${id}`, {
    body: { secret },
    headers: { 'x-forwarded-for': address },
  });

/** Sends all at once. @returns the number of replies by code; `null` for a success */
async function codesOf(count: number, act: (turn: number) => Promise<Answer>) {
  const counts: Record<string, number> = {};
  for (const answer of await Promise.all(Array.from({ length: count }, (_, turn) => act(turn)))) {
    const code = String(answer.json.error?.code ?? null);
    counts[code] = (counts[code] ?? 0) + 1;
    if (code === 'too_many_requests') {
      const seconds = Number(answer.headers.get('retry-after'));
      assert.ok(answer.status === 429 && seconds >= 1 && seconds <= 900, `in ${seconds} s`);
    }
  }
  return counts;
}

test('64 concurrent wrong passphrases from one network: 5 attempts, 59 times 429', async () => {
  const { id, secret } = await keep(TEXT, { passphrase: 'the right one', max_reads: 1 });
  const from = (address: string, turn: number, passphrase: string) =>
    secretsClient(replica(turn), { 'x-forwarded-for': address }).decrypt(id, secret, passphrase);
  const address = newAddress();
  assert.deepEqual(await codesOf(64, (turn) => from(address, turn, `wrong one ${turn}`)), {
    wrong_passphrase: 5,
    too_many_requests: 59,
  });
  const { json } = await receipt(id);
  assert.deepEqual([json.status, json.reads, json.failed_reads], ['stored', 0, 5]);
  assert.equal((await from(newAddress(), 1, 'the right one')).json.password, TEXT);
});

test('of 200 concurrent wrong links from one network 60 are tried; right ones open throughout', async () => {
  const { id, secret } = await keep(TEXT);
  const address = newAddress();
  const wrong = (turn: number) => openLink(turn, address, id, wrongKey());
  assert.deepEqual(await codesOf(200, wrong), { not_found: 60, too_many_requests: 140 });
  assert.deepEqual(
    await codesOf(20, (turn) => openLink(turn, address, id, turn % 4 ? wrongKey() : secret)),
    { too_many_requests: 15, null: 5 },
  );
});
