/** The calls of `make bench PART=growth`. Every reply is checked. */
import { administratorToken, operatorToken, userTokens } from './growth-fill.ts';
import { type Client, type Reply, TOKEN } from './service.ts';

type Send = Client['send'];
export type Ports = Readonly<Record<'identity' | 'secrets' | 'webhook', Send>>;

export interface GrowthCase {
  readonly name: string;
  readonly requests: number;
  /** Its reply has the exact number of all rows. */
  readonly isCount: boolean;
  /** Found in the text of its statements, and not in that of housekeeping. */
  readonly statements: RegExp;
  /** @param number counts the requests of a round */
  send(ports: Ports, size: number, number: number): Promise<Reply>;
}

const KNOWN_SECRETS = 1_000;
const bearer = (token: string) => ({ authorization: `Bearer ${token}` });
const json = { ...bearer(TOKEN), 'content-type': 'application/json' };
/** By the size of the database: the path and the body of each call. */
const knownSecrets = new Map<number, Array<readonly [path: string, body: string]>>();

export async function storeKnownSecrets(size: number, send: Send): Promise<void> {
  const known: Array<readonly [string, string]> = [];
  for (let number = 0; number < KNOWN_SECRETS; number += 1) {
    const { id, secret }: { id: string; secret: string } = JSON.parse((await encrypt(send)).text);
    known.push([`/api/store/decrypt?id=${id}`, JSON.stringify({ secret })]);
  }
  knownSecrets.set(size, known);
}

async function expect(status: number, text: string, reply: Promise<Reply>): Promise<Reply> {
  const found = await reply;
  if (found.status === status && found.text.includes(text)) return found;
  throw new Error(`unexpected reply: ${found.status} ${found.text.slice(0, 300)}`);
}

const encrypt = (send: Send) =>
  expect(
    201,
    '"secret":"',
    send('POST', '/api/store/encrypt', json, '{"password":"for measuring only"}'),
  );

const at = <T>(values: readonly T[], number: number): T => {
  const value = values[number % values.length];
  if (value === undefined) throw new Error('nothing to pick from');
  return value;
};

const list = (
  name: string,
  service: keyof Ports,
  path: string,
  token: string,
  statements: RegExp,
): GrowthCase => ({
  name,
  requests: 40,
  isCount: false,
  statements,
  send: (ports) => expect(200, '"id":"', ports[service]('GET', path, bearer(token))),
});

/** Few requests: each counts the whole table. */
const counted = (one: GrowthCase): GrowthCase => ({ ...one, requests: 3, isCount: true });

const EVENT = JSON.stringify({ event: 'page.updated', data: { page_id: 'for measuring only' } });

export const CASES: readonly GrowthCase[] = [
  {
    name: 'bearer check',
    requests: 100,
    isCount: false,
    statements: /token_digest/,
    send: ({ identity }, _, number) =>
      expect(200, '"username":"', identity('GET', '/api/test/', bearer(at(userTokens, number)))),
  },
  {
    name: 'webhook accept',
    requests: 100,
    isCount: false,
    statements: /webhook\.(tokens|events)/,
    send: ({ webhook }) => expect(200, '"accepted"', webhook('POST', '/webhook', json, EVENT)),
  },
  {
    name: 'encrypt',
    requests: 100,
    isCount: false,
    statements: /insert into secrets\.secrets/,
    send: ({ secrets }) => encrypt(secrets),
  },
  {
    name: 'decrypt',
    requests: 100,
    isCount: false,
    statements: /commitment/,
    send: ({ secrets }, size, number) => {
      const [path, body] = at(knownSecrets.get(size) ?? [], number);
      return expect(200, 'for measuring only', secrets('POST', path, json, body));
    },
  },
  list('list of secrets', 'secrets', '/api/store?limit=100', TOKEN, /order by id/),
  list('list of events', 'webhook', '/events?limit=100', operatorToken, /order by c\.received_at/),
  list(
    'list of dead events',
    'webhook',
    '/events?limit=100&status=dead',
    operatorToken,
    /order by c\.received_at/,
  ),
  {
    ...list('list of own sessions', 'identity', '/api/session/', '', /identity\.sessions x/),
    send: ({ identity }, _, number) =>
      expect(200, '"id":"', identity('GET', '/api/session/', bearer(at(userTokens, number)))),
  },
  counted(
    list(
      'list of all sessions',
      'identity',
      '/api/session/',
      administratorToken,
      /identity\.sessions x/,
    ),
  ),
  counted(
    list(
      'list of users',
      'identity',
      '/api/user/',
      administratorToken,
      /identity\.users[^]*(limit|count)/,
    ),
  ),
  counted(
    list('list of API keys', 'identity', '/api/key/', administratorToken, /identity\.api_keys x/),
  ),
  counted(list('audit trail', 'identity', '/api/audit/', administratorToken, /identity\.audit x/)),
];
