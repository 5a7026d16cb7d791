/**
 * Callers of all three services, who check that each reply is their own, and what was acknowledged
 * to them.
 */
import assert from 'node:assert/strict';
import type { Sql } from 'postgres';
import { type Answer, ask, logIn, WEBHOOK_TOKEN } from './gatehouse.ts';
import { secretsClient } from './secrets.ts';

type Urls = Readonly<Record<'identity' | 'secrets' | 'webhook', string>>;

const PASSWORD = 'a passphrase for the load';

/** What the callers did, and what was acknowledged to them. */
interface LoadState {
  readonly problems: Map<string, number>;
  /** Ids. */
  readonly sessions: Set<string>;
  readonly revoked: Set<string>;
  readonly usedSecrets: Set<string>;
  /** Ids of events by delivery id. */
  readonly events: Map<string, string>;
  rounds: number;
  isOver: boolean;
}

/** Starts callers, each with a user of their own. */
export async function startLoad(url: Urls, callers: number) {
  const admin = await logIn(url.identity);
  const users = await Promise.all(
    Array.from({ length: callers }, (_, number) => createUser(url, admin, number)),
  );
  const state: LoadState = {
    problems: new Map(),
    sessions: new Set(),
    revoked: new Set(),
    usedSecrets: new Set(),
    events: new Map(),
    rounds: 0,
    isOver: false,
  };
  const running = users.map((user, caller) => runCaller(url, state, user, caller));
  // Reported by `stopAndCompare`.
  const ended = Promise.allSettled(running);
  return {
    /** Rounds of all callers so far. */
    rounds: () => state.rounds,
    /** What was not as expected, and how often. */
    problems: () => Object.fromEntries(state.problems),
    /** Ends the load, and compares what was acknowledged with what is stored. */
    async stopAndCompare(sql: Sql) {
      state.isOver = true;
      await ended;
      await Promise.all(running);
      await compareWithStored(sql, state);
    },
  };
}

async function runCaller(url: Urls, state: LoadState, user: User, caller: number): Promise<void> {
  for (let number = 0; !state.isOver; number += 1) {
    try {
      await runRound(url, state, user, `${caller}-${number}`);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
    }
    state.rounds += 1;
  }
}

/** Calls each service once in each way. @throws Problem at the first unexpected reply */
async function runRound(
  url: Urls,
  state: LoadState,
  { username, id }: User,
  number: string,
): Promise<void> {
  const login = await ask('POST', `${url.identity}/api/auth/login`, {
    body: { username, password: PASSWORD },
  });
  expect(state, 'login', login, 200);
  const bearer = login.json.data.session;
  const session = await ask('POST', `${url.identity}/api/auth/session`, {
    body: { session: bearer },
  });
  expect(state, 'session', session, 200, (json) => json.data.user.id === id);
  state.sessions.add(session.json.data.id);
  const own = await ask('GET', `${url.identity}/api/user/${id}`, { bearer });
  expect(state, 'user', own, 200, (json) => json.data.username === username);

  await useSecret(url, state, number);

  const body = { event: number, data: { page_id: 'p' } };
  const headers = { 'webhook-id': number };
  const event = await ask('POST', `${url.webhook}/webhook`, {
    bearer: WEBHOOK_TOKEN,
    body,
    headers,
  });
  expect(state, 'event', event, 200, (json) => json.status === 'accepted');
  state.events.set(number, event.json.id);

  const revoke = `${url.identity}/api/session/revoke?session=${bearer}`;
  const ended = await ask('DELETE', revoke, { bearer });
  expect(state, 'revoke', ended, 200);
  state.revoked.add(session.json.data.id);
  const rejected = await ask('GET', `${url.identity}/api/test/`, { bearer });
  expect(state, 'revoked session', rejected, 401);
}

async function useSecret(url: Urls, state: LoadState, number: string): Promise<void> {
  const secrets = secretsClient(url.secrets);
  const kept = await secrets.encrypt({ password: number, max_reads: 1 });
  expect(state, 'encrypt', kept, 201);
  const { id, secret } = kept.json;
  const opened = await secrets.decrypt(id, secret);
  expect(state, 'decrypt', opened, 200, (json) => json.password === number);
  state.usedSecrets.add(id);
  expect(state, 'second decrypt', await secrets.decrypt(id, secret), 404);
}

/** @throws Problem unless the reply has this status and is right; counts it before */
function expect(
  { problems }: LoadState,
  what: string,
  answer: Answer,
  status: number,
  isRight: (json: Answer['json']) => boolean = () => true,
): void {
  const hasStatus = answer.status === status;
  if (hasStatus && isRight(answer.json)) return;
  const found = hasStatus ? 'the reply of another' : `${answer.status} ${answer.text}`;
  const problem = `${what}: ${found}`;
  problems.set(problem, (problems.get(problem) ?? 0) + 1);
  throw new Problem();
}

class Problem extends Error {}

async function compareWithStored(sql: Sql, state: LoadState): Promise<void> {
  const idsOf = (rows: ReadonlyArray<Record<string, unknown>>) => new Set(rows.map(({ id }) => id));
  const revoked = await sql`select id from identity.sessions where revoked`;
  assert.deepEqual(idsOf(revoked), state.revoked, 'revoked');
  const stored = idsOf(await sql`select id from identity.sessions`);
  const lost = [...state.sessions].filter((id) => !stored.has(id));
  assert.deepEqual(lost, [], 'sessions');
  const read = await sql`select id from secrets.secrets where ending = 'read' and reads = 1`;
  assert.deepEqual(idsOf(read), state.usedSecrets, 'secrets');
  const received = await sql`select delivery_id, id from webhook.events`;
  const events = new Map(received.map(({ delivery_id, id }) => [delivery_id, id]));
  assert.deepEqual(events, state.events, 'events');
}

interface User {
  readonly username: string;
  readonly id: string;
}

async function createUser(url: Urls, bearer: string, number: number): Promise<User> {
  const username = `caller-${number}`;
  const body = {
    username,
    email: `${username}@example.org`,
    password: PASSWORD,
    first_name: username,
  };
  const answer = await ask('POST', `${url.identity}/api/user/`, { bearer, body });
  assert.equal(answer.status, 201, answer.text);
  return { username, id: answer.json.data.id };
}
