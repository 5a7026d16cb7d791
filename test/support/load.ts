/** Callers of all three services, who check that each reply is their own, and what was acknowledged to them. */
import assert from 'node:assert/strict';
import type { Sql } from 'postgres';
import { type Answer, ask, logIn, WEBHOOK_TOKEN } from './gatehouse.ts';
import { secretsClient } from './secrets.ts';

type Urls = Readonly<Record<'identity' | 'secrets' | 'webhook', string>>;

const PASSWORD = 'a passphrase for the load';

export interface Load {
  /** Rounds of all callers so far. */
  rounds(): number;
  /** What was not as expected, and how often. */
  problems(): Readonly<Record<string, number>>;
  /** Ends the load, and compares what was acknowledged with what is stored. */
  stopAndCompare(sql: Sql): Promise<void>;
}

/** Starts callers, each with a user of their own. */
export async function startLoad(url: Urls, callers: number): Promise<Load> {
  const admin = await logIn(url.identity);
  const users = await Promise.all(
    Array.from({ length: callers }, (_, number) => createUser(url, admin, number)),
  );
  const secrets = secretsClient(url.secrets);
  const problems = new Map<string, number>();
  const [sessions, revoked, used, events] = [
    new Set(),
    new Set(),
    new Set(),
    new Map<string, string>(),
  ];
  let [rounds, isOver] = [0, false];

  function expect(
    what: string,
    answer: Answer,
    status: number,
    isRight: (json: Answer['json']) => boolean = () => true,
  ) {
    if (answer.status === status && isRight(answer.json)) return;
    const problem = `${what}: ${answer.status === status ? 'the reply of another' : `${answer.status} ${answer.text}`}`;
    problems.set(problem, (problems.get(problem) ?? 0) + 1);
    throw new Problem();
  }
  async function round({ username, id }: User, number: string): Promise<void> {
    const login = await ask('POST', `${url.identity}/api/auth/login`, {
      body: { username, password: PASSWORD },
    });
    expect('login', login, 200);
    const bearer = login.json.data.session;
    const session = await ask('POST', `${url.identity}/api/auth/session`, {
      body: { session: bearer },
    });
    expect('session', session, 200, (json) => json.data.user.id === id);
    sessions.add(session.json.data.id);
    const own = await ask('GET', `${url.identity}/api/user/${id}`, { bearer });
    expect('user', own, 200, (json) => json.data.username === username);

    const kept = await secrets.encrypt({ password: number, max_reads: 1 });
    expect('encrypt', kept, 201);
    const opened = await secrets.decrypt(kept.json.id, kept.json.secret);
    expect('decrypt', opened, 200, (json) => json.password === number);
    used.add(kept.json.id);
    expect('second decrypt', await secrets.decrypt(kept.json.id, kept.json.secret), 404);

    const body = { event: number, data: { page_id: 'p' } };
    const event = await ask('POST', `${url.webhook}/webhook`, {
      bearer: WEBHOOK_TOKEN,
      body,
      headers: { 'webhook-id': number },
    });
    expect('event', event, 200, (json) => json.status === 'accepted');
    events.set(number, event.json.id);

    const ended = await ask('DELETE', `${url.identity}/api/session/revoke?session=${bearer}`, {
      bearer,
    });
    expect('revoke', ended, 200);
    revoked.add(session.json.data.id);
    expect('revoked session', await ask('GET', `${url.identity}/api/test/`, { bearer }), 401);
  }
  const running = users.map(async (user, caller) => {
    for (let number = 0; !isOver; number += 1) {
      await round(user, `${caller}-${number}`).catch((error: unknown) => {
        if (!(error instanceof Problem)) throw error;
      });
      rounds += 1;
    }
  });
  // Reported by `stopAndCompare`.
  const ended = Promise.allSettled(running);
  return {
    rounds: () => rounds,
    problems: () => Object.fromEntries(problems),
    async stopAndCompare(sql) {
      isOver = true;
      await ended;
      await Promise.all(running);
      const ids = async (query: PromiseLike<ReadonlyArray<Record<string, unknown>>>) =>
        new Set((await query).map(({ id }) => id));
      assert.deepEqual(
        await ids(sql`select id from identity.sessions where revoked`),
        revoked,
        'revoked',
      );
      const stored = await ids(sql`select id from identity.sessions`);
      assert.deepEqual(
        [...sessions].filter((id) => !stored.has(id)),
        [],
        'sessions',
      );
      assert.deepEqual(
        await ids(sql`select id from secrets.secrets where ending = 'read' and reads = 1`),
        used,
        'secrets',
      );
      const received = await sql`select delivery_id, id from webhook.events`;
      assert.deepEqual(
        new Map(received.map(({ delivery_id, id }) => [delivery_id, id])),
        events,
        'events',
      );
    },
  };
}

class Problem extends Error {}

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
