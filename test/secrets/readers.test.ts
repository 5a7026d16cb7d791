import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, test } from 'node:test';
import { createDatabase } from '../support/database.ts';
import { startGatehouse } from '../support/gatehouse.ts';
import { secretsClient } from '../support/secrets.ts';

const ROUNDS = 100;
const READERS = 16;

const database = await createDatabase();
const replicas = await Promise.all([1, 2].map(() => startGatehouse({ after }, ['secrets'], database.url)));
const clients = replicas.map(({ url }) => secretsClient(url.secrets));
const clientOf = (turn: number) => clients[turn % clients.length] ?? assert.fail('there is a replica for every turn');

/** All of them at once, spread over the replicas. @returns how many got the text; every other answer must be 404 */
async function race(id: string, keys: readonly string[], text: string): Promise<number[]> {
  const answers = await Promise.all(keys.map((key, reader) => clientOf(reader).decrypt(id, key)));
  return answers.flatMap(({ status, json }, reader) => {
    if (status === 404) return [];
    assert.equal(status, 200);
    assert.equal(json.password, text);
    return [reader];
  });
}

test(`of ${READERS} simultaneous readers over two replicas exactly one wins, ${ROUNDS} times over`, async () => {
  for (let round = 0; round < ROUNDS; round += 1) {
    const { id, secret } = await clientOf(round).keep(`round ${round}`, { max_reads: 1 });
    const winners = await race(id, Array<string>(READERS).fill(secret), `round ${round}`);
    assert.equal(winners.length, 1, `round ${round}`);
  }
});

for (const reads of [2, 5, 15]) {
  test(`of ${READERS} simultaneous readers exactly ${reads} win where ${reads} reads are allowed`, async () => {
    for (let round = 0; round < 10; round += 1) {
      const { id, secret } = await clientOf(round).keep('several', { max_reads: reads });
      assert.equal((await race(id, Array<string>(READERS).fill(secret), 'several')).length, reads);
    }
  });
}

test('wrong keys in the race win nothing and take nothing from the right ones, 60 times over', async () => {
  for (let round = 0; round < 60; round += 1) {
    const { id, secret } = await clientOf(round).keep('mixed', { max_reads: 1 });
    // From one right key among seven wrong ones to seven right ones.
    const keys = Array.from({ length: 8 }, (_, reader) => (reader <= round % 7 ? secret : randomBytes(32).toString('base64url')));
    const winners = await race(id, keys.reverse(), 'mixed');
    assert.equal(winners.length, 1, `round ${round}`);
    assert.ok(winners.every((reader) => keys[reader] === secret));
  }
});
