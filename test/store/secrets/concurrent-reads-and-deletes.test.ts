/**
 * Correct keys, wrong keys and deletions of one secret, concurrently on two replicas: each secret
 * ends once.
 */
import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { after, test } from 'node:test';
import { type Answer, launch, startGatehouse } from '../../support/gatehouse.ts';
import { rounds } from '../../support/rounds.ts';
import { secretsClient, wrongKey } from '../../support/secrets.ts';

const ROUNDS = rounds(40, 300);
const TEXT = 'marked-password-text';

const { secrets: one, databaseUrl } = await launch(['secrets']);
const other = (await startGatehouse({ after }, ['secrets'], databaseUrl)).url.secrets;
const clients = [secretsClient(one), secretsClient(other)];
const someClient = () => clients[randomInt(2)] ?? assert.fail();

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
  const assertReceipt = async (...expected: unknown[]) => {
    const { json } = await someClient().receipt(id);
    const found = [json.status, json.reads, json.failed_reads, json.last_read_at !== null];
    assert.deepEqual(found, expected);
  };
  const failed = having([...reads, ...guesses], 404);
  await assertReceipt(status, wins, failed, wins > 0);
  if (status === 'stored') {
    // Wrong keys used nothing up: all reads left still succeed.
    for (let reader = wins; reader < round.maxReads; reader += 1)
      assert.equal((await someClient().decrypt(id, secret)).json.password, TEXT);
    await assertReceipt('read', round.maxReads, failed, true);
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
