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

export function createSecretsClient(
  requests: Requests,
  random: () => number,
  number: number,
  bearer: string,
): LoadClient {
  const secrets: Secret[] = [];
  const address = `203.0.113.${number}`;

  async function encrypt(isReadOnce: boolean): Promise<void> {
    const text = randomBytes(16 + Math.floor(random() * 500)).toString('base64');
    const body = { password: text, ...(isReadOnce ? { max_reads: 1 } : {}) };
    const options = { about: 'storing a secret', expected: [201], bearer, address, body };
    const reply = await requests.send('secrets', 'POST', '/api/store/encrypt', options);
    const { id, secret: key } = reply?.body ?? {};
    if (id && key)
      secrets.push({ id, key, text, isReadOnce, state: 'open', endedBy: '', received: 0 });
  }

  const describe = ({ id, state, endedBy }: Secret) =>
    `secret ${id}, ${state}${endedBy && ` by "${endedBy}"`}`;

  /** @returns the status, or null */
  async function read(secret: Secret, expected: readonly number[]): Promise<number | null> {
    const options = {
      about: describe(secret),
      expected,
      bearer,
      address,
      body: { secret: secret.key },
    };
    const reply = await requests.send(
      'secrets',
      'POST',
      `/api/store/decrypt?id=${secret.id}`,
      options,
    );
    if (reply?.status !== 200) return reply?.status ?? null;
    secret.received += 1;
    if (reply.body.password !== secret.text)
      requests.report(`${describe(secret)}: another text was received`);
    const isServedAgain = secret.isReadOnce && secret.received > 1;
    if (isServedAgain) requests.report(`${describe(secret)}: served ${secret.received} times`);
    return 200;
  }

  const expectedOf = ({ state }: Secret) =>
    state === 'open' ? [200] : state === 'ended' ? [404] : [200, 404];

  /** Two readers at once: at most one of them gets the text, and no later reader does. */
  async function readOnce(secret: Secret): Promise<void> {
    const { state, endedBy } = secret;
    if (state === 'open') Object.assign(secret, { state: 'unknown', endedBy: 'reading' });
    const statuses = await Promise.all([read(secret, [200, 404]), read(secret, [200, 404])]);
    const isServed = statuses.includes(200);
    if (isServed && state === 'ended' && endedBy === 'deletion')
      requests.report(`${describe(secret)}: served`);
    if (state === 'open' && statuses.every((status) => status === 404))
      requests.report(`${describe(secret)}: lost`);
    if (isServed) secret.state = 'ended';
  }

  async function remove(secret: Secret): Promise<void> {
    Object.assign(secret, { state: 'unknown', endedBy: 'deletion' });
    const options = { about: describe(secret), expected: [200], bearer, address };
    if (await requests.send('secrets', 'DELETE', `/api/store/${secret.id}`, options))
      secret.state = 'ended';
  }

  return {
    async step() {
      const weights = {
        store: 4,
        'store once': 4,
        read: 6,
        'read once': 3,
        'read ended': 3,
        delete: 1,
      };
      const action = secrets.length > 4 ? pick(random, weights) : 'store';
      if (action === 'store' || action === 'store once') return encrypt(action === 'store once');
      const fitting = secrets.filter(({ isReadOnce, state }) =>
        action === 'read ended'
          ? state === 'ended'
          : isReadOnce === (action === 'read once') && state !== 'ended',
      );
      const secret = choose(random, fitting);
      if (!secret) return encrypt(action === 'read once');
      if (action === 'delete') return remove(secret);
      if (secret.isReadOnce) return readOnce(secret);
      await read(secret, expectedOf(secret));
    },
    async check() {
      for (const secret of secrets) {
        if (secret.isReadOnce) await readOnce(secret);
        else await read(secret, expectedOf(secret));
      }
    },
    summary() {
      const once = secrets.filter(({ isReadOnce }) => isReadOnce);
      const received = once.filter((secret) => secret.received > 0).length;
      return { secrets: secrets.length, once: once.length, received };
    },
  };
}
