/**
 * Who may store secrets and see receipts: named tokens, people behind a proxy, and anyone. What
 * each role may call: `test/api/contract/callers-others.test.ts`. And a signed-in user's list of
 * links: whose they are, and that only their owner ends them.
 */
import assert from 'node:assert/strict';
import { createECDH } from 'node:crypto';
import { after, test } from 'node:test';
import { openConnections } from '../../support/connections.ts';
import { type Answer, ask, startGatehouse } from '../../support/gatehouse.ts';
import { startPortal } from '../../support/portal.ts';
import { secretsClient, storedSecret } from '../../support/secrets.ts';
import { exchange } from '../../support/socket.ts';
import { createSecretToken } from '../../support/tokens.ts';

type Headers = Record<string, string>;
const portal = await startPortal({ after }, { COOKIE_DOMAIN: '' });
const { sql, databaseUrl } = portal;
const startSecrets = (environment: Headers) =>
  startGatehouse({ after }, ['secrets'], databaseUrl, {
    ...{ SHARE_PAGES: 'on', TRUSTED_PROXIES: '127.0.0.1', LOG_LEVEL: 'debug' },
    ...environment,
  });
const secrets = await startSecrets({
  SIGNIN_VERIFY_URL: `${portal.identity}/api/auth/verify?redirect=401`,
  ...{ TRUSTED_USER_HEADER: 'X-User', TRUSTED_ID_HEADER: 'X-Id' },
});
const base = secrets.url.secrets;
const anyone = (await startSecrets({ SHARE_ANYONE: 'on' })).url.secrets;

const send = (method: string, path: string, headers: Headers = {}, body?: unknown, at = base) =>
  ask(method, at + path, { headers, body });
const store = (headers: Headers, at = base) =>
  send('POST', '/api/store/encrypt', headers, { password: 'x', max_reads: 2 }, at);
const outcomeOf = ({ status, json }: Answer) =>
  json.error === undefined ? status : `${status} ${json.error.code}`;

const database = openConnections({ after }, databaseUrl, 'secrets');
const { token } = await createSecretToken(database, { name: 'ada', role: 'sender' });
const asSender = { authorization: `Bearer ${token}` };
const OWN_PAGE = { 'sec-fetch-site': 'same-origin' };
const signIn = async (username: string) => ({
  ...OWN_PAGE,
  cookie: (await portal.addSignedIn({ username })).host,
});
const ada = await signIn('ada');
const grace = await signIn('grace');

test('the creator is in the row and in the log', async () => {
  const { id } = (await store(asSender)).json;
  const { creator } = await storedSecret(sql, id);
  assert.match(creator, /^token:[0-9a-f-]{36}$/);
  const lines = secrets.log().filter(({ message }) => message === 'request');
  assert.ok(lines.some((line) => line.creator === creator));
});

/** As a proxy says it. */
const named = (user: string, more: Headers = {}) => ({ ...OWN_PAGE, 'x-user': user, ...more });

test('a person whom a proxy names owns what they store, and has a list if it says the id', async () => {
  const { caller } = (await send('GET', '/api/store/options', named('ada'))).json;
  assert.deepEqual(caller, { role: 'sender', user: 'ada' });
  const { id } = (await store(named('ada'))).json;
  assert.equal((await storedSecret(sql, id)).creator, 'user:ada');
  for (const [path, headers, outcome] of [
    [`/api/store/${id}`, named('ada'), 200],
    [`/api/store/${id}`, named('bob'), '404 not_found'],
    ['/api/store', named('ada'), '403 forbidden'],
    ['/api/store/links', named('ada'), '403 forbidden'],
    ['/api/store/links', named('ada', { 'x-id': '' }), '403 forbidden'],
    ['/api/store/links', named('ada', { 'x-id': '1815, 1816' }), '403 forbidden'],
  ] as const)
    assert.equal(outcomeOf(await send('GET', path, headers)), outcome);
  const own = (await store(named('ada', { 'x-id': '1815' }))).json.id;
  assert.deepEqual(await linksOf(named('ada renamed', { 'x-id': '1815' })), [
    [own, 'stored', null],
  ]);
  assert.deepEqual(await linksOf(named('ada', { 'x-id': '1816' })), []);
});

const from = (address: string) => ({ 'x-forwarded-for': address });

test('with SHARE_ANYONE, anyone stores secrets, throttled by network, and sees nothing', async () => {
  const get = (path: string) => send('GET', path, {}, undefined, anyone);
  const { caller } = (await get('/api/store/options')).json;
  assert.deepEqual(caller, { role: 'anyone', user: null });
  const { id, secret } = (await store(from('203.0.113.9'), anyone)).json;
  const opened = await send('POST', `/s/${id}`, {}, { secret }, anyone);
  assert.equal(opened.json.password, 'x');
  for (const path of [`/api/store/${id}`, '/api/store'])
    assert.equal(outcomeOf(await get(path)), '401 unauthorized');
  // An invalid body counts, too, and a later one is not read.
  const sent = [
    ['encrypt', { password: 'x' }, 201],
    ['encrypt', { password: '' }, '400 invalid_body'],
    ['request', { password: '' }, '400 invalid_body'],
  ] as const;
  for (let count = 1; count < 30; count += 1) {
    const [route, body, outcome] = sent[count % 3] ?? assert.fail();
    const answer = await send('POST', `/api/store/${route}`, from('203.0.113.9'), body, anyone);
    assert.equal(outcomeOf(answer), outcome, String(count));
  }
  for (const [route] of sent) {
    const head = [`POST /api/store/${route} HTTP/1.1`, 'Host: a', 'X-Forwarded-For: 203.0.113.9'];
    const announced = ['Content-Length: 8000', 'Expect: 100-continue'];
    const { status, json, headers } = await exchange(anyone, [...head, ...announced]);
    assert.deepEqual([status, json.error.code], [429, 'too_many_requests']);
    assert.ok(Number(headers.get('retry-after')) > 0);
  }
  for (const [headers, outcome] of [
    [from('203.0.113.10'), 201],
    [{ ...from('203.0.113.9'), ...asSender }, 201],
    [{ ...from('203.0.113.11'), authorization: 'Bearer wrong' }, '401 unauthorized'],
  ] as const)
    assert.equal(outcomeOf(await store(headers, anyone)), outcome);
});

test('a page of large secrets is short', async () => {
  const { url } = await startSecrets({ SECRETS_MAX_BODY_BYTES: '1048576' });
  const { keep, list } = secretsClient(url.secrets);
  await keep('x'.repeat(1_047_552));
  assert.ok((await list('?limit=100')).json.length <= 9);
});

// --- Links of signed-in users

const TITLE = 'Password of the shop';
const REQUEST = {
  ...{ title: TITLE, kind: 'text', digest: 'A'.repeat(43) },
  public_key: createECDH('prime256v1').generateKeys('base64url'),
};

async function make(by: Headers, what: 'encrypt' | 'request'): Promise<string> {
  const body = what === 'encrypt' ? { password: 'x' } : REQUEST;
  const { status, json, text } = await send('POST', `/api/store/${what}`, by, body);
  assert.equal(status, 201, text);
  return json.id;
}
const remove = (id: string, by: Headers) => send('DELETE', `/api/store/${id}`, by);
const listOf = (by: Headers) => send('GET', '/api/store/links', by);
/** Id, status and title of each link. */
const linksOf = async (by: Headers): Promise<unknown[][]> =>
  (await listOf(by)).json.map((link: Record<string, unknown>) => [
    link.id,
    link.status,
    link.title,
  ]);

test('each user sees their own secrets and requests, newest first, and no key', async () => {
  const first = await make(ada, 'encrypt');
  const asked = await make(ada, 'request');
  const last = await make(ada, 'encrypt');
  const other = await make(grace, 'encrypt');
  assert.deepEqual(await linksOf(ada), [
    [last, 'stored', null],
    [asked, 'requested', TITLE],
    [first, 'stored', null],
  ]);
  assert.deepEqual(await linksOf(grace), [[other, 'stored', null]]);
  assert.doesNotMatch((await listOf(ada)).text, /secret|receipt|key|digest/);
  const { json } = await send('POST', `/request/${asked}`, {}, { key: REQUEST.digest });
  assert.equal(json.asker, 'ada', 'who answers sees who asks');
});

test('the list has the newest 100 of secrets and requests together', async () => {
  const alan = await signIn('alan');
  const { creator } = await storedSecret(sql, await make(alan, 'encrypt'));
  await sql`delete from secrets.secrets where creator = ${creator}`;
  // By turns, named by their age, and stored from the oldest on.
  await sql`
    insert into secrets.secrets (id, created_at, creator, key_id, commitment, blob, tag)
    select lpad(age::text, 32, '0')::uuid, timestamptz '2026-01-01' - age * interval '1 s',
      ${creator}, '', '', '', ''
    from generate_series(299, 1, -2) age`;
  await sql`
    insert into secrets.requests (id, created_at, creator, kind, title, public_key, digest,
      key_digest, max_reads, seconds, expires_at, key_id, tag)
    select lpad(age::text, 32, '0')::uuid, timestamptz '2026-01-01' - age * interval '1 s',
      ${creator}, 'text', '', '', '', '', 1, 60, now() + interval '1 h', '', ''
    from generate_series(300, 2, -2) age`;
  const ages = (await linksOf(alan)).map(([id]) => Number(String(id).slice(-12)));
  assert.deepEqual(
    ages,
    Array.from({ length: 100 }, (_, at) => at + 1),
  );
});

test('ended and answered links show how they ended', async () => {
  const deleted = await make(ada, 'encrypt');
  const expired = await make(ada, 'encrypt');
  const withdrawn = await make(ada, 'request');
  const answered = await make(ada, 'request');
  for (const id of [deleted, withdrawn]) assert.equal((await remove(id, ada)).status, 200);
  await sql`update secrets.secrets set expires_at = now() where id = ${expired}`;
  await sql`with answered as (update secrets.requests set ending = 'answered', answer_key = ''
      where id = ${answered} returning id, creator)
    insert into secrets.secrets (id, creator, key_id, commitment, blob, tag)
      select id, creator, '', '', '', '' from answered`;
  assert.deepEqual(
    (await linksOf(ada)).slice(0, 4).sort(),
    [
      [deleted, 'deleted', null],
      [expired, 'expired', null],
      [withdrawn, 'withdrawn', TITLE],
      [answered, 'stored', TITLE],
    ].sort(),
  );
});

test('only the owner ends a link, from a page of this host', async () => {
  const id = await make(ada, 'encrypt');
  assert.equal((await remove(id, grace)).status, 404, 'another user');
  for (const site of ['cross-site', 'same-site', ''])
    assert.notEqual((await remove(id, { ...ada, 'sec-fetch-site': site })).status, 200, site);
  assert.equal((await linksOf(ada))[0]?.[1], 'stored');
  assert.equal((await remove(id, ada)).json.status, 'deleted');
  assert.equal((await linksOf(ada))[0]?.[1], 'deleted');
});

test('a later user of the same name sees and ends nothing of the earlier one', async () => {
  const id = await make(grace, 'encrypt');
  await sql`update identity.users set username = 'grace2', username_key = 'grace2'
    where username = 'grace'`;
  const later = await signIn('grace');
  assert.deepEqual(await linksOf(later), []);
  for (const method of ['GET', 'DELETE'])
    assert.equal((await send(method, `/api/store/${id}`, later)).status, 404);
  assert.equal((await linksOf(grace))[0]?.[0], id, 'the renamed user keeps them');
  assert.equal((await remove(id, grace)).status, 200);
});
