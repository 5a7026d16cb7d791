/** Who may call each row of secrets and of webhook: the roles that the documents promise. */
import { after, test } from 'node:test';
import { createSessionToken } from '../../../src/identity/token.ts';
import {
  assertComplete,
  assertRefused,
  assertTable,
  bearer,
  type Line,
  linesOf,
  nameOf,
  OPEN,
  type Row,
  rowOf,
  send,
  type Sent,
  start,
} from '../../support/contract.ts';
import { ask, AUTH_TOKEN, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { OPERATOR_TOKEN } from '../../support/inbox.ts';
import { openConnections } from '../../support/connections.ts';
import type { TestDatabase } from '../../support/database.ts';
import { createSecretToken, createToken } from '../../support/tokens.ts';
import { wordsOf } from '../../support/words.ts';

/** Pages, which take no credential. */
const PAGES = wordsOf(`
  /inbox /inbox/user /links /s/{id} /r/{id} /request /request/{id} /answer/{id}
`).map((path) => `GET ${path}`);
/** Id and key are the credential. */
const LINKS = [
  ...['POST /s/{id}', 'POST /s/{id}/status', 'POST /s/{id}/delete', 'POST /r/{id}'],
  ...['POST /request/{id}', 'POST /answer/{id}'],
];

/** `own`: about a secret that this caller stored; `other`: that another sender stored. */
const SECRETS = linesOf(`
                             about  sender operator AUTH_TOKEN
  POST   /api/store/encrypt  all    201    201      201
  POST   /api/store/decrypt  own    403    200      200
  GET    /api/store          all    403    200      200
  GET    /api/store/options  all    200    200      200
  GET    /api/store/{id}     own    200    200      200
  GET    /api/store/{id}     other  404    200      200
  DELETE /api/store/{id}     own    200    200      200
  DELETE /api/store/{id}     other  404    200      200
  POST   /api/store/request  all    201    201      201
  GET    /api/store/links    all    403    403      403
`);

/** About an event or a token that does not exist, without a target. The stream never ends. */
const WEBHOOK = linesOf(`
                                  about  sender operator
  POST   /webhook                 all    200    401
  GET    /webhook                 all    200    401
  GET    /events                  all    401    200
  GET    /events/stream           all    401    ---
  GET    /events/delivery         all    401    200
  GET    /events/refused          all    401    200
  GET    /events/counts           all    401    200
  GET    /events/{id}             all    401    404
  POST   /events/redeliver        all    401    409
  POST   /events/{id}/redeliver   all    401    404
  POST   /events/pause            all    401    200
  POST   /events/resume           all    401    200
  GET    /tokens                  all    401    200
  POST   /tokens                  all    401    201
  PATCH  /tokens/{id}             all    401    404
  POST   /tokens/{id}/rotate      all    401    404
  POST   /tokens/{id}/revoke      all    401    404
  GET    /tokens/{id}/pending     all    401    404
  POST   /tokens/{id}/confirm     all    401    404
  POST   /tokens/{id}/test        all    401    404
  PATCH  /tokens/{id}/target      all    401    404
  DELETE /tokens/{id}/target      all    401    404
`);

/** Besides the tokens of the settings. */
async function tokensOf(service: string, { url, sql }: TestDatabase) {
  const store = openConnections({ after }, url, service);
  const create = async (name: string, role: 'sender' | 'operator') => {
    const made =
      service === 'secrets'
        ? await createSecretToken(store, { name, role })
        : await createToken(store, { name, role, source: 'generic' }, null);
    return made.token;
  };
  const tokens = {
    sender: await create('one', 'sender'),
    other: await create('other', 'sender'),
    operator: await create('operator', 'operator'),
    revoked: await create('revoked', 'sender'),
    'revoked operator': await create('revoked', 'operator'),
  };
  await sql`update ${sql(`${service}.tokens`)} set revoked_at = now() where name = 'revoked'`;
  return tokens;
}

/** Stores a secret. @returns what a request needs that is about it */
async function aboutSecret(url: string, token: string): Promise<Sent> {
  const body = { password: 'a secret' };
  const { json } = await ask('POST', `${url}/api/store/encrypt`, { bearer: token, body });
  return { path: { id: json.id }, query: `id=${json.id}`, body: { secret: json.secret } };
}

const running = await Promise.all(
  (await start(({ service }) => service !== 'identity')).map(async (variant) => {
    const { service, database } = variant;
    const tokens = database && (await tokensOf(service, database));
    return { ...variant, lines: service === 'secrets' ? SECRETS : WEBHOOK, tokens };
  }),
);

for (const { name: variant, served, url, call, lines, tokens, service } of running) {
  const own = served.filter((row) => ![...OPEN, ...PAGES, ...LINKS].includes(nameOf(row)));
  const known = lines.filter(({ name }) => own.some((row) => nameOf(row) === name));
  const callers = {
    sender: tokens?.sender ?? WEBHOOK_TOKEN,
    operator: tokens?.operator ?? OPERATOR_TOKEN,
    AUTH_TOKEN,
  };

  test(`${variant}: each row is in the table, or takes no credential`, () =>
    assertComplete(own, known));

  test(`${variant}: what each caller gets`, async () => {
    const request = async (caller: keyof typeof callers, { about }: Line, { pattern }: Row) => {
      const token = callers[caller];
      const storer = about === 'own' ? token : tokens?.other;
      const isAbout = service === 'secrets' && about !== 'all' && storer !== undefined;
      // A sender opens nothing, so another one may have stored it.
      const { path = {}, ...given } = isAbout ? await aboutSecret(url, storer) : {};
      return { path, ...(pattern.endsWith('decrypt') ? given : {}), headers: bearer(token) };
    };
    const names = ['sender', 'operator', 'AUTH_TOKEN'] as const;
    await assertTable({ call, rows: own }, known, names, request);
  });

  test(`${variant}: a link without its key is 404, whatever else is sent`, async () => {
    for (const row of served.filter((one) => LINKS.includes(nameOf(one)))) {
      for (const token of Object.values(callers)) {
        const headers = { ...bearer(token), 'x-link-key': 'A'.repeat(43) };
        assertRefused(await send(call, row, { headers }), row, [404, 'not_found'], [], token);
      }
    }
  });

  test(`${variant}: any other credential is 401`, async () => {
    const dead: Readonly<Record<string, Sent>> = {
      none: {},
      empty: { headers: { authorization: 'Bearer ' } },
      'of another scheme': { headers: { authorization: `Basic ${callers.operator}` } },
      'an unknown token': { headers: bearer('x'.repeat(43)) },
      'a revoked token': { headers: bearer(tokens?.revoked ?? '') },
      'a revoked token of an operator': { headers: bearer(tokens?.['revoked operator'] ?? '') },
      'the token of another service': {
        headers: bearer(service === 'secrets' ? WEBHOOK_TOKEN : AUTH_TOKEN),
      },
      'a session': { headers: bearer(createSessionToken()) },
      'as X-API-Key': { headers: { 'x-api-key': callers.operator } },
      'the token of an operator in the query': { query: `token=${callers.operator}` },
      'two tokens in the query': { query: `token=${callers.sender}&token=${callers.sender}` },
    };
    for (const row of new Set(known.map((line) => rowOf(own, line)))) {
      for (const [what, sent] of Object.entries(dead))
        assertRefused(await send(call, row, sent), row, [401, 'unauthorized'], [], what);
    }
  });
}
