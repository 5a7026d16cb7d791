/**
 * Concurrent callers on two replicas: as many readers succeed as there are reads, each secret ends
 * once, and as many wrong passphrases and links are tried as the limits allow.
 */
import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { after, beforeEach, test } from 'node:test';
import { PATIENT } from '../../support/connections.ts';
import { type Answer, ask, AUTH_TOKEN, launch, startGatehouse } from '../../support/gatehouse.ts';
import { BEHIND_PROXY, newAddress } from '../../support/logins.ts';
import { rounds } from '../../support/rounds.ts';
import { secretsClient, wrongKey } from '../../support/secrets.ts';
import { connectTo, headOf } from '../../support/socket.ts';

const TEXT = 'marked-password-text';
const READERS = 16;

/** The attempts wait as long as a slow machine needs for all of them. */
const settings = { ...BEHIND_PROXY, ...PATIENT, SHARE_PAGES: 'on' };
const ANSWER_MS = 240_000;
const owner = { after };
const { secrets, sql, databaseUrl } = await launch(['secrets'], settings, owner, ANSWER_MS);
const other = await startGatehouse(owner, ['secrets'], databaseUrl, settings, 'ready', ANSWER_MS);
const replica = (turn: number) => (turn % 2 ? other.url.secrets : secrets);
const { keep } = secretsClient(secrets);
const someClient = () => secretsClient(replica(randomInt(2)));
async function summary(id: string): Promise<unknown[]> {
  const { status, reads, failed_reads, last_read_at } = (await someClient().receipt(id)).json;
  return [status, reads, failed_reads, last_read_at !== null];
}
beforeEach(() => sql`delete from secrets.throttles`);

// A connection for each, so that none waits in a client's queue.
const readers = await Promise.all(
  Array.from({ length: READERS }, (_, reader) => connectTo(replica(reader))),
);
after(() => readers.forEach((reader) => reader.leave()));

/** Sends all requests at once. @returns how many got the text; all others must get the same 404 */
async function race(id: string, secret: string, text: string) {
  const body = JSON.stringify({ secret });
  const head = headOf([
    `POST /api/store/decrypt?id=${id} HTTP/1.1`,
    'Host: gatehouse.test',
    'X-Request-Id: test',
    `Authorization: Bearer ${AUTH_TOKEN}`,
    `Content-Length: ${body.length}`,
  ]);
  for (const reader of readers) reader.send(head + body);
  const answers = await Promise.all(readers.map((reader) => reader.answer()));
  const won = answers.filter(({ status }) => status === 200);
  for (const { json } of won) assert.deepEqual(json, { password: text });
  const lost = answers.filter((answer) => !won.includes(answer));
  assert.ok(lost.every(({ status }) => status === 404));
  assert.ok(new Set(lost.map((answer) => answer.body)).size <= 1);
  return won.length;
}

for (const [reads, few, many] of [
  [1, 40, 400],
  [3, 10, 60],
  [15, 5, 10],
] as const) {
  test(`${READERS} concurrent readers, max_reads ${reads}: exactly ${reads} succeed`, async () => {
    const count = rounds(few, many);
    for (let round = 0; round < count; round += 1) {
      const text = `marked-text-${round}`;
      const { id, secret } = await keep(text, { max_reads: reads });
      assert.equal(await race(id, secret, text), reads, `round ${round}`);
      assert.deepEqual(await summary(id), ['read', reads, READERS - reads, true]);
    }
    const left = await sql`select from secrets.secrets where max_reads = ${reads}
      and (blob is not null or tag is not null)`;
    assert.equal(left.length, 0, 'no content is left');
  });
}

test(`${READERS} concurrent readers without max_reads: all succeed, and the receipt counts them`, async () => {
  const { id, secret } = await keep('marked-text', {});
  for (let round = 0; round < 3; round += 1)
    assert.equal(await race(id, secret, 'marked-text'), READERS);
  assert.deepEqual(await summary(id), ['stored', 3 * READERS, 0, true]);
});

// --- Reads, wrong keys and deletions

const ROUNDS = rounds(40, 300);

/** Combines each number of wrong keys and deletions with none, one and several correct keys. */
const roundOf = (number: number) => ({
  maxReads: number % 5 === 4 ? 3 : 1,
  right: number % 4 === 3 ? 0 : 1 + (number % 7),
  wrong: number % 6,
  deletions: Math.floor(number / 2) % 3,
});
type Round = ReturnType<typeof roundOf>;

/** Sends the requests in random order. @returns the replies in three groups */
async function play({ maxReads, right, wrong, deletions }: Round) {
  const { id, secret } = await someClient().keep(TEXT, { max_reads: maxReads });
  const [reads, guesses, removals]: [Answer[], Answer[], Answer[]] = [[], [], []];
  const acts: Array<() => Promise<unknown>> = [];
  const add = (count: number, group: Answer[], act: () => Promise<Answer>) => {
    for (let turn = 0; turn < count; turn += 1)
      acts.splice(randomInt(acts.length + 1), 0, async () => group.push(await act()));
  };
  add(right, reads, () => someClient().decrypt(id, secret));
  add(wrong, guesses, () => someClient().decrypt(id, wrongKey()));
  add(deletions, removals, async () => {
    // A read is two statements and a deletion one, which would nearly always win.
    for (let detours = randomInt(3); detours > 0; detours -= 1) await someClient().receipt(id);
    return someClient().remove(id);
  });
  await Promise.all(acts.map((act) => act()));
  return { id, secret, reads, guesses, removals };
}

const having = (answers: readonly Answer[], status: number) =>
  answers.filter((answer) => answer.status === status).length;

const counts = { readFirst: 0, deletedFirst: 0 };

async function assertRound(round: Round) {
  const { id, secret, reads, guesses, removals } = await play(round);
  const wins = having(reads, 200);
  const isReadUp = wins === round.maxReads;
  const isDeleted = having(removals, 200) > 0;
  for (const { status, json } of reads)
    if (status === 200) assert.deepEqual(json, { password: TEXT });
  assert.equal(having(reads, 404), reads.length - wins);
  assert.equal(having(guesses, 404), guesses.length, 'a wrong key opens nothing');
  // Deletion is idempotent: later ones get the same reply.
  assert.equal(having(removals, isDeleted ? 200 : 404), removals.length);
  assert.ok(wins <= round.maxReads, `${wins} winners`);
  assert.ok(!(isReadUp && isDeleted), 'both the last read and a deletion won');
  if (round.deletions > 0) assert.ok(isReadUp || isDeleted, 'neither won');
  else assert.equal(wins, Math.min(round.right, round.maxReads), 'a correct key failed');

  const left = isReadUp ? 'read' : 'stored';
  const status = isDeleted ? 'deleted' : left;
  const failed = having([...reads, ...guesses], 404);
  assert.deepEqual(await summary(id), [status, wins, failed, wins > 0]);
  if (status === 'stored') {
    // Wrong keys used nothing up: all reads left still succeed.
    for (let reader = wins; reader < round.maxReads; reader += 1)
      assert.equal((await someClient().decrypt(id, secret)).json.password, TEXT);
    assert.deepEqual(await summary(id), ['read', round.maxReads, failed, true]);
  }
  assert.equal((await someClient().decrypt(id, secret)).status, 404);
  if (isReadUp && round.deletions > 0) counts.readFirst += 1;
  if (isDeleted && round.right > 0) counts.deletedFirst += 1;
}

test('concurrent reads and deletions of a secret: one end each, and the receipt agrees', async () => {
  // The race is real once each side has won a round. How often that is depends on the machine.
  const isRaced = () => counts.readFirst > 0 && counts.deletedFirst > 0;
  for (let number = 0; number < ROUNDS || !isRaced(); number += 1) {
    assert.ok(number < 20 * ROUNDS, JSON.stringify(counts));
    const round = roundOf(number);
    await assertRound(round).catch((error: unknown) =>
      assert.fail(new Error(`round ${number}, ${JSON.stringify(round)}`, { cause: error })),
    );
  }
});

// --- Limits

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
  assert.deepEqual(await summary(id), ['stored', 0, 5, false]);
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
