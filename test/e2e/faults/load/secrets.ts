/** A client of secrets that knows what was acknowledged to it: stored, read once, deleted. */
import { randomBytes } from 'node:crypto';
import { choose, pick } from '../random.ts';
import type { LoadClient } from './load.ts';
import type { Requests } from './requests.ts';

interface Secret {
  readonly id: string;
  readonly key: string;
  readonly text: string;
  readonly isReadOnce: boolean;
  /** `unknown`: a request that ends it was not acknowledged. */
  state: 'open' | 'unknown' | 'ended';
  endedBy: string;
  /** How often its text was received. */
  received: number;
}

interface SecretsState {
  readonly requests: Requests;
  readonly random: () => number;
  readonly bearer: string;
  readonly address: string;
  readonly secrets: Secret[];
}

const WEIGHTS = {
  store: 4,
  'store once': 4,
  read: 6,
  'read once': 3,
  'read ended': 3,
  delete: 1,
} as const;

export function createSecretsClient(
  requests: Requests,
  random: () => number,
  number: number,
  bearer: string,
): LoadClient {
  const secrets: Secret[] = [];
  const state: SecretsState = {
    requests,
    random,
    bearer,
    address: `203.0.113.${number}`,
    secrets,
  };
  return {
    step: () => step(state),
    async check() {
      for (const secret of secrets) await readAny(state, secret);
    },
  };
}

async function step(state: SecretsState): Promise<void> {
  const { random, secrets } = state;
  const action = secrets.length > 4 ? pick(random, WEIGHTS) : 'store';
  if (action === 'store' || action === 'store once') {
    return encrypt(state, action === 'store once');
  }
  const fitting = secrets.filter((secret) => {
    if (action === 'read ended') return secret.state === 'ended';
    return secret.isReadOnce === (action === 'read once') && secret.state !== 'ended';
  });
  const secret = choose(random, fitting);
  if (!secret) return encrypt(state, action === 'read once');
  if (action === 'delete') return remove(state, secret);
  await readAny(state, secret);
}

async function readAny(state: SecretsState, secret: Secret): Promise<void> {
  if (secret.isReadOnce) return readOnce(state, secret);
  const expected = { open: [200], ended: [404], unknown: [200, 404] }[secret.state];
  await read(state, secret, expected);
}

async function encrypt(state: SecretsState, isReadOnce: boolean): Promise<void> {
  const { requests, random, bearer, address, secrets } = state;
  const text = randomBytes(16 + Math.floor(random() * 500)).toString('base64');
  const body = { password: text, ...(isReadOnce ? { max_reads: 1 } : {}) };
  const options = { about: 'storing a secret', expected: [201], bearer, address, body };
  const reply = await requests.send('secrets', 'POST', '/api/store/encrypt', options);
  const { id, secret: key } = reply?.body ?? {};
  if (!id || !key) return;
  secrets.push({ id, key, text, isReadOnce, state: 'open', endedBy: '', received: 0 });
}

const describe = ({ id, state, endedBy }: Secret) =>
  `secret ${id}, ${state}${endedBy && ` by "${endedBy}"`}`;

/** @returns the status, or null */
async function read(
  { requests, bearer, address }: SecretsState,
  secret: Secret,
  expected: readonly number[],
): Promise<number | null> {
  const body = { secret: secret.key };
  const options = { about: describe(secret), expected, bearer, address, body };
  const path = `/api/store/decrypt?id=${secret.id}`;
  const reply = await requests.send('secrets', 'POST', path, options);
  if (reply?.status !== 200) return reply?.status ?? null;
  secret.received += 1;
  if (reply.body.password !== secret.text) {
    requests.report(`${describe(secret)}: another text was received`);
  }
  const isServedAgain = secret.isReadOnce && secret.received > 1;
  if (isServedAgain) requests.report(`${describe(secret)}: served ${secret.received} times`);
  return 200;
}

/** Two readers at once: at most one of them gets the text, and no later reader does. */
async function readOnce(state: SecretsState, secret: Secret): Promise<void> {
  const { requests } = state;
  const before = { ...secret };
  if (before.state === 'open') {
    secret.state = 'unknown';
    secret.endedBy = 'reading';
  }
  const readers = [read(state, secret, [200, 404]), read(state, secret, [200, 404])];
  const statuses = await Promise.all(readers);
  const isServed = statuses.includes(200);
  const isDeleted = before.state === 'ended' && before.endedBy === 'deletion';
  if (isServed && isDeleted) requests.report(`${describe(secret)}: served`);
  const isGone = statuses.every((status) => status === 404);
  if (before.state === 'open' && isGone) requests.report(`${describe(secret)}: lost`);
  if (isServed) secret.state = 'ended';
}

async function remove({ requests, bearer, address }: SecretsState, secret: Secret): Promise<void> {
  secret.state = 'unknown';
  secret.endedBy = 'deletion';
  const options = { about: describe(secret), expected: [200], bearer, address };
  const reply = await requests.send('secrets', 'DELETE', `/api/store/${secret.id}`, options);
  if (reply) secret.state = 'ended';
}
