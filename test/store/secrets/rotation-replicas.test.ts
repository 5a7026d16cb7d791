/**
 * The documented rotation of SERVER_SECRET, step by step, on two replicas that are replaced one
 * after the other under load.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { after } from 'node:test';
import { promisify } from 'node:util';
import { createServerKey } from '../../../src/secrets/envelope.ts';
import { createDatabase } from '../../support/database.ts';
import {
  type Answer,
  type Gatehouse,
  SERVER_SECRET,
  startGatehouse,
} from '../../support/gatehouse.ts';
import { root } from '../../support/process.ts';
import { type SecretsClient, secretsClient } from '../../support/secrets.ts';
import { test, until } from '../../support/until.ts';

const OLD = SERVER_SECRET;
const NEW = 'new-server-secret-0123456789abcdefghijklmn';
const ids = { old: createServerKey(OLD).id, new: createServerKey(NEW).id };

const database = await createDatabase();

interface Replica {
  readonly gatehouse: Gatehouse;
  readonly client: SecretsClient;
  inFlight: number;
}

async function start(current: string, previous: string): Promise<Replica> {
  const gatehouse = await startGatehouse({ after }, ['secrets'], database.url, {
    SERVER_SECRET: current,
    SERVER_SECRET_PREVIOUS: previous,
  });
  return { gatehouse, client: secretsClient(gatehouse.url.secrets), inFlight: 0 };
}

const replicas: Replica[] = [];
const all: Replica[] = [];

/**
 * Like a rolling update: the new replica takes over, the old one finishes its requests and is
 * stopped.
 */
async function reindex(index: number, current: string, previous: string): Promise<Replica> {
  const next = await start(current, previous);
  all.push(next);
  const last = replicas[index];
  replicas[index] = next;
  if (!last) return next;
  await until(() => last.inFlight === 0);
  await last.gatehouse.stop();
  return next;
}

const failures: string[] = [];

async function on(
  index: number,
  what: string,
  ask: (client: SecretsClient) => Promise<Answer>,
): Promise<Answer | null> {
  const replica = replicas[index % 2] ?? assert.fail('there are two');
  replica.inFlight += 1;
  try {
    const answer = await ask(replica.client);
    if (answer.status >= 300)
      failures.push(`${what} on replica ${index % 2}: ${answer.status} ${answer.text}`);
    return answer;
  } catch (error) {
    failures.push(`${what} on replica ${index % 2}: ${String(error)}`);
    return null;
  } finally {
    replica.inFlight -= 1;
  }
}

const load = { goesOn: true, rounds: 0 };

/** Stores on one replica and reads on the other, continuously, alternating. */
async function work(turn: number): Promise<void> {
  while (load.goesOn) {
    const text = `text ${turn}`;
    const made = (
      await on(turn, 'encrypt', (client) => client.encrypt({ password: text, max_reads: 1 }))
    )?.json;
    const read = (await on(turn + 1, 'decrypt', (client) => client.decrypt(made?.id, made?.secret)))
      ?.json;
    if (read?.password !== text) failures.push(`another text than ${text}`);
    load.rounds += 1;
    turn += 1;
  }
}

/** Until both replicas have stored and read many secrets. */
async function underLoad(): Promise<void> {
  const goal = load.rounds + 24;
  await until(() => load.rounds >= goal || failures.length > 0);
  assert.deepEqual(failures, []);
}

/** The output of `secret keys`. */
async function keys(current: string, previous: string): Promise<Record<string, unknown>> {
  const env = {
    DATABASE_URL: database.url,
    SERVER_SECRET: current,
    SERVER_SECRET_PREVIOUS: previous,
  };
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [join(root, 'dist/cli.js'), 'secret', 'keys', '--json'],
    { cwd: root, env },
  );
  const listed: Array<{ key_id: string; state: string; secrets: number }> = JSON.parse(stdout);
  return Object.fromEntries(
    listed.map(({ key_id, state, secrets }) => [key_id, [state, secrets > 0]]),
  );
}

const earlier: Array<{ id: string; secret: string; passphrase?: string }> = [];

/** Reads all earlier secrets on both replicas. */
async function readStanding(): Promise<void> {
  for (const { id, secret, passphrase } of earlier) {
    for (const index of [0, 1]) {
      assert.equal(
        (await on(index, 'read', (client) => client.decrypt(id, secret, passphrase)))?.json
          .password,
        'earlier',
      );
    }
  }
}

async function keepOne(): Promise<void> {
  for (const [index, locked] of [{}, { passphrase: 'five words' }].entries()) {
    const made = await on(index, 'keep', (client) =>
      client.encrypt({ password: 'earlier', max_reads: 1_000, ...locked }),
    );
    earlier.push({ ...made?.json, ...locked });
  }
}

/** Step 1: every replica can decrypt under the new one before any encrypts under it. */
async function addNewSecret(): Promise<void> {
  for (const index of [0, 1]) {
    await reindex(index, OLD, NEW);
    await underLoad();
    await readStanding();
  }
  await keepOne();
}

const NEVER_USED =
  'SERVER_SECRET was never used with this database before: correct in a rotation, otherwise a mistake';

/** Step 2: each replica encrypts under it. The first one warns. */
async function useNewSecret(): Promise<void> {
  for (const index of [0, 1]) {
    const { gatehouse } = await reindex(index, NEW, OLD);
    await underLoad();
    await readStanding();
    await keepOne();
    const warned = gatehouse
      .log()
      .filter(({ level }) => level === 'warn')
      .map(({ message }) => String(message))
      .filter((message) => !message.startsWith('PASSWORD_SCRYPT '));
    assert.deepEqual(warned, index === 0 ? [NEVER_USED] : []);
  }
  assert.deepEqual((await keys(NEW, OLD))[ids.old], ['previous', true], 'still needed');
}

async function removeUnderOld(): Promise<void> {
  const rows = await database.sql<Array<{ id: string }>>`
    select id from secrets.secrets where key_id = ${ids.old} and blob is not null`;
  const underOld = new Set(rows.map(({ id }) => id));
  for (const { id } of earlier.filter((one) => underOld.has(one.id))) {
    await on(0, 'delete', (client) => client.remove(id));
  }
  assert.deepEqual((await keys(NEW, OLD))[ids.old], ['previous', false], 'no longer needed');
  const rest = earlier.filter((one) => !underOld.has(one.id));
  assert.ok(rest.length > 0 && rest.length < earlier.length);
  earlier.splice(0, earlier.length, ...rest);
}

async function dropOldSecret(): Promise<void> {
  for (const index of [0, 1]) {
    await reindex(index, NEW, '');
    await underLoad();
    await readStanding();
  }
  assert.deepEqual(await keys(NEW, ''), {
    [ids.old]: ['retired', false],
    [ids.new]: ['current', true],
  });
}

test('rotation on two replicas: no request fails, and the old secret can be removed', async () => {
  await reindex(0, OLD, '');
  await reindex(1, OLD, '');
  const workers = [0, 1].map(work);
  try {
    await underLoad();
    await keepOne();
    await addNewSecret();
    await useNewSecret();
    await removeUnderOld();
    await dropOldSecret();
  } finally {
    load.goesOn = false;
    await Promise.all(workers);
  }
  assert.deepEqual(failures, []);
  assert.equal(all.length, 8);
  const lines = all.flatMap(({ gatehouse }) => gatehouse.log());
  const errors = lines.filter(({ level }) => level === 'error');
  assert.deepEqual(errors, [], 'no errors are logged');
});
