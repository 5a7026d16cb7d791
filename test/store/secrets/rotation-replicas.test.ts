/**
 * The documented rotation of SERVER_SECRET, step by step, on two replicas that are replaced one
 * after the other under load; then what replicas with different server secrets have in common.
 */
import assert from 'node:assert/strict';
import { after } from 'node:test';
import { createDatabase } from '../../support/database.ts';
import {
  type Answer,
  ask,
  AUTH_TOKEN,
  SERVER_SECRET,
  startGatehouse,
} from '../../support/gatehouse.ts';
import { type SecretsClient, secretsClient } from '../../support/secrets.ts';
import { test, until } from '../../support/until.ts';

const OLD = SERVER_SECRET;
const NEW = 'new-server-secret-0123456789abcdefghijklmn';

const { url } = await createDatabase();

async function start(current: string, previous: string) {
  const secrets = { SERVER_SECRET: current, SERVER_SECRET_PREVIOUS: previous };
  const gatehouse = await startGatehouse({ after }, ['secrets'], url, secrets);
  return { gatehouse, client: secretsClient(gatehouse.url.secrets), inFlight: 0 };
}
type Replica = Awaited<ReturnType<typeof start>>;

const replicas: Replica[] = [];
const all: Replica[] = [];
const load = { goesOn: true, rounds: 0 };

/** A new replica takes over, the old one finishes its requests and is stopped. */
async function replace(place: number, current: string, previous: string) {
  const next = await start(current, previous);
  all.push(next);
  const last = replicas[place];
  replicas[place] = next;
  await until(() => last === undefined || last.inFlight === 0);
  await last?.gatehouse.stop();
}

/** No request may fail. */
async function on(place: number, send: (client: SecretsClient) => Promise<Answer>) {
  const replica = replicas[place % 2] ?? assert.fail('there are two');
  replica.inFlight += 1;
  const answer = await send(replica.client);
  assert.ok(answer.status < 300, `${answer.status} ${answer.text}`);
  replica.inFlight -= 1;
  return answer.json;
}

/** Stores on one replica and reads on the other, continuously, alternating. */
async function work(turn: number) {
  for (; load.goesOn; turn += 1) {
    const password = `text ${turn}`;
    const made = await on(turn, (client) => client.encrypt({ password, max_reads: 1 }));
    const read = await on(turn + 1, (client) => client.decrypt(made.id, made.secret));
    assert.equal(read.password, password);
    load.rounds += 1;
  }
}

const kept: Array<{ id: string; secret: string; passphrase?: string }> = [];

/** Secrets that stay, on each replica one, with and without a passphrase. */
async function keepTwo() {
  for (const [place, locked] of [{}, { passphrase: 'five words' }].entries()) {
    const password = 'earlier';
    const made = await on(place, (client) => client.encrypt({ password, ...locked }));
    kept.push({ ...made, ...locked });
  }
}

/** Replaces both replicas. After each, load goes on, and both read all earlier secrets. */
async function replaceBoth(current: string, previous: string) {
  for (const place of [0, 1]) {
    await replace(place, current, previous);
    const goal = load.rounds + 24;
    await until(() => load.rounds >= goal || !load.goesOn);
    for (const { id, secret, passphrase } of kept)
      for (const reader of [0, 1]) {
        const read = await on(reader, (client) => client.decrypt(id, secret, passphrase));
        assert.equal(read.password, 'earlier');
      }
  }
}

const NEVER_USED =
  'SERVER_SECRET was never used with this database before: correct in a rotation, otherwise a mistake';

async function rotate() {
  await keepTwo();
  // Every replica can decrypt under the new one before any encrypts under it.
  await replaceBoth(OLD, NEW);
  await keepTwo();
  // Each replica encrypts under it. The first one warns.
  await replaceBoth(NEW, OLD);
  await keepTwo();
  const warned = all.map(
    ({ gatehouse }) => gatehouse.log().filter(({ message }) => message === NEVER_USED).length,
  );
  assert.deepEqual(warned, [0, 0, 0, 0, 1, 0]);
  // What is under the old one ends.
  for (const { id } of kept.splice(0, 4)) await on(0, (client) => client.remove(id));
  await replaceBoth(NEW, '');
}

test('rotation on two replicas: no request fails, and the old secret can be removed', async () => {
  for (const place of [0, 1]) await replace(place, OLD, '');
  const workers = Promise.all([work(0), work(1)]).finally(() => {
    load.goesOn = false;
  });
  await Promise.race([workers, rotate()]).finally(() => {
    load.goesOn = false;
  });
  await workers;
  const errors = all.flatMap(({ gatehouse }) =>
    gatehouse.log().filter((line) => line.level === 'error'),
  );
  assert.deepEqual(errors, []);
});

test('wrong passphrases: 5 attempts in all on replicas with different current server secrets', async () => {
  // A server secret can be both current and previous.
  const some = [(await start(OLD, `${OLD},${NEW}`)).client, (await start(NEW, OLD)).client];
  const { id, secret } =
    (await some[0]?.keep('x', { passphrase: 'the right one' })) ?? assert.fail();
  const statuses = [];
  for (const client of [...some, ...some, ...some])
    statuses.push((await client.decrypt(id, secret, 'a wrong one')).status);
  assert.deepEqual(statuses, [403, 403, 403, 403, 403, 429]);
});

test('a new AUTH_TOKEN: callers with the earlier one are accepted until it is removed', async (t) => {
  const NEXT = 'next-auth-token-0123456789abcdefghijklmnop';
  for (const [previous, statuses, counted] of [
    [AUTH_TOKEN, [200, 200, 401], ['current', 'previous']],
    ['', [200, 401, 401], ['current']],
  ] as const) {
    const tokens = { AUTH_TOKEN: NEXT, AUTH_TOKEN_PREVIOUS: previous };
    const { url: of } = await startGatehouse(t, ['secrets'], url, tokens);
    const found = [];
    for (const bearer of [NEXT, AUTH_TOKEN, `${NEXT},${AUTH_TOKEN}`])
      found.push((await ask('GET', `${of.secrets}/api/store/options`, { bearer })).status);
    assert.deepEqual(found, statuses);
    const { text } = await ask('GET', `${of.metrics}/metrics`);
    for (const token of counted)
      assert.ok(text.includes(`gatehouse_auth_tokens_total{token="${token}"} 1\n`), token);
  }
});
