/**
 * Correct keys, wrong keys and deletions of one secret, concurrently on two replicas: each secret
 * ends once.
 */
import assert from 'node:assert/strict';
import { randomBytes, randomInt } from 'node:crypto';
import { after, test } from 'node:test';
import { createDatabase } from '../../support/database.ts';
import { type Answer, type Gatehouse, startGatehouse } from '../../support/gatehouse.ts';
import { rounds } from '../../support/rounds.ts';
import { secretsClient } from '../../support/secrets.ts';

const ROUNDS = rounds(40, 300);
const DUELS = rounds(20, 100);
const TEXT = 'marked-password-text';

const database = await createDatabase();
const replicas = await Promise.all(
  [1, 2].map(() => startGatehouse({ after }, ['secrets'], database.url)),
);
const clients = replicas.map(({ url }) => secretsClient(url.secrets));
const clientOf = (turn: number) =>
  clients[turn % clients.length] ?? assert.fail('there is a replica for every turn');

interface Round {
  readonly maxReads: number;
  readonly right: number;
  readonly wrong: number;
  readonly deletions: number;
}

/** Combines each number of wrong keys and deletions with none, one and several correct keys. */
const roundOf = (number: number): Round => ({
  maxReads: number % 5 === 4 ? 3 : 1,
  right: number % 4 === 3 ? 0 : 1 + (number % 7),
  wrong: number % 6,
  deletions: Math.floor(number / 2) % 3,
});

/** Sends the requests in random order. @returns the replies in three groups */
async function play({ maxReads, right, wrong, deletions }: Round): Promise<{
  id: string;
  secret: string;
  reads: Answer[];
  guesses: Answer[];
  removals: Answer[];
}> {
  const { id, secret } = await clientOf(randomInt(2)).keep(TEXT, { max_reads: maxReads });
  const groups = { reads: [] as Answer[], guesses: [] as Answer[], removals: [] as Answer[] };
  const acts: Array<() => Promise<unknown>> = [];
  const enter = (count: number, group: Answer[], act: (turn: number) => Promise<Answer>) => {
    for (let turn = 0; turn < count; turn += 1) {
      acts.splice(randomInt(acts.length + 1), 0, async () => group.push(await act(randomInt(2))));
    }
  };
  enter(right, groups.reads, (turn) => clientOf(turn).decrypt(id, secret));
  enter(wrong, groups.guesses, (turn) =>
    clientOf(turn).decrypt(id, randomBytes(32).toString('base64url')),
  );
  enter(deletions, groups.removals, async (turn) => {
    // A read is two statements and a deletion one: without a delay, deletions would nearly always
    // win.
    for (let detours = randomInt(3); detours > 0; detours -= 1) await clientOf(turn).receipt(id);
    return clientOf(turn).remove(id);
  });
  await Promise.all(acts.map((act) => act()));
  return { id, secret, ...groups };
}

const having = (answers: readonly Answer[], status: number) =>
  answers.filter((answer) => answer.status === status).length;

const counts = { readFirst: 0, deletedFirst: 0 };

async function assertRound(round: Round): Promise<void> {
  const { id, secret, reads, guesses, removals } = await play(round);
  for (const answer of [...reads, ...guesses, ...removals])
    assert.ok([200, 404].includes(answer.status), answer.text);
  for (const answer of [...guesses, ...removals]) {
    assert.ok(!answer.text.includes(TEXT), 'only the correct key returns the text');
  }
  for (const { status, json } of reads)
    if (status === 200) assert.deepEqual(json, { password: TEXT });
  assert.equal(having(guesses, 200), 0, 'a wrong key opens nothing');

  const wins = having(reads, 200);
  const isReadUp = wins === round.maxReads;
  const isDeleted = having(removals, 200) > 0;
  assert.ok(wins <= round.maxReads, `${wins} winners`);
  assert.ok(!(isReadUp && isDeleted), 'both the last read and a deletion won');
  // Deletion is idempotent: later ones get the same reply.
  assert.equal(having(removals, isDeleted ? 200 : 404), removals.length);
  if (round.deletions > 0)
    assert.ok(isReadUp || isDeleted, 'neither the last read nor a deletion won');
  else
    assert.equal(
      wins,
      Math.min(round.right, round.maxReads),
      'a correct key failed without a deletion',
    );

  const left = isReadUp ? 'read' : 'stored';
  const status = isDeleted ? 'deleted' : left;
  const receipt = async () => {
    const { json } = await clientOf(randomInt(2)).receipt(id);
    return [json.status, json.reads, json.failed_reads, json.last_read_at !== null];
  };
  const failed = having([...reads, ...guesses], 404);
  assert.deepEqual(await receipt(), [status, wins, failed, wins > 0]);
  if (status === 'stored') {
    // Wrong keys used nothing up: all reads left still succeed.
    for (let left = round.maxReads - wins; left > 0; left -= 1) {
      assert.equal((await clientOf(left).decrypt(id, secret)).json.password, TEXT);
    }
    assert.deepEqual(await receipt(), ['read', round.maxReads, failed, true]);
  }
  assert.equal((await clientOf(0).decrypt(id, secret)).status, 404);
  if (wins > 0 && round.deletions > 0 && isReadUp) counts.readFirst += 1;
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

test('a concurrent read and deletion of a one-time secret: exactly one succeeds', async () => {
  for (let number = 0; number < DUELS; number += 1) {
    const { id, reads, removals } = await play({ maxReads: 1, right: 1, wrong: 0, deletions: 1 });
    assert.equal(having([...reads, ...removals], 200), 1, `round ${number}`);
    const { json } = await clientOf(number).receipt(id);
    assert.equal(json.status, having(reads, 200) === 1 ? 'read' : 'deleted');
  }
});

test('the log has one line for each end and failed read in the receipts, and no text', async () => {
  const lines = replicas.flatMap((replica: Gatehouse) => replica.log());
  const linesOf = (message: string) => lines.filter((line) => line.message === message);
  const [sums] = await database.sql<[Record<string, number>]>`
    select count(*)::int as stored, sum(reads)::int as read, sum(failed_reads)::int as failed,
      count(*) filter (where ending = 'deleted')::int as deleted
    from secrets.secrets`;
  const logged = {
    stored: linesOf('secret stored').length,
    read: linesOf('secret read').length,
    failed: linesOf('secret read failed').length,
    deleted: linesOf('secret deleted').length,
  };
  assert.deepEqual({ ...sums }, logged);
  assert.equal(
    new Set(linesOf('secret deleted').map((line) => line.secret_id)).size,
    logged.deleted,
    'a deletion is logged once',
  );
  for (const replica of replicas) assert.ok(!(replica.stdout() + replica.stderr()).includes(TEXT));
});
