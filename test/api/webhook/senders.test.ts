/**
 * The tokens of senders over HTTP: who makes them, what changes, and what stays; and their refused
 * requests, counted by token and error code.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { listTokens } from '../../../src/webhook/store/tokens.ts';
import { untilSql } from '../../support/connections.ts';
import { ask, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { openInbox, OPERATOR_TOKEN } from '../../support/inbox.ts';
import { meanwhile } from '../../support/meanwhile.ts';
import { reply, startRecorder } from '../../support/recorder.ts';
import {
  addToken,
  SAMPLES,
  signatureOf,
  SIGNING_SECRETS,
  WEBHOOK_SECRET,
} from '../../support/senders.ts';

const { sql, url, database, gatehouse, send } = await openInbox(
  { after },
  {
    ...{ TRUSTED_USER_HEADER: 'X-Auth-Username', TRUSTED_PROXIES: '127.0.0.1' },
    ...{ INBOX_USERS: 'alice', INBOX_PAGE: 'on' },
    ...{ WEBHOOK_SECRET, WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on' },
  },
);
const as = (user: string) => ({ 'sec-fetch-site': 'same-origin', 'x-auth-username': user });
const call = (method: string, path: string, body?: object, bearer = OPERATOR_TOKEN) =>
  ask(method, url + path, { bearer, ...(body && { body }) });
async function make(body: object = {}): Promise<{ id: string; token: string }> {
  const answer = await call('POST', '/tokens', { name: 'one', source: 'generic', ...body });
  assert.equal(answer.status, 201, answer.text);
  return answer.json;
}
const EVENT = { event: 'made', data: { page_id: 'p' } };
const post = (token: string, headers: Record<string, string> = {}, body: unknown = EVENT) =>
  ask('POST', `${url}/webhook`, { bearer: token, headers, body });
const shown = async (id: string) =>
  (await call('GET', '/tokens')).json.find((one: { id: string }) => one.id === id);
const countTokens = async () => (await call('GET', '/tokens')).json.length;

// --- Refused requests. These tests are the first, because they count them all.

const untilCounted = (count: number) =>
  untilSql(
    async () => (await sql`select sum(count)::int as n from webhook.unstored`)[0]?.n === count,
    `${count} are counted`,
  );
const refused = async () =>
  (await call('GET', '/events/refused')).json
    .map((row: Record<string, unknown>) => `${row.token_id} ${row.reason} ${row.count}`)
    .sort();

test('each refused request counts once, by token and error code, also in a flood', async () => {
  const github = await addToken(database, 'github');
  const push = { 'x-github-event': 'push' };
  await Promise.all(Array.from({ length: 30 }, () => post(github.token, push, {})));
  await post(WEBHOOK_TOKEN, {}, { event: '' });
  await post(WEBHOOK_TOKEN, {}, 'no JSON');
  await post(WEBHOOK_TOKEN, { 'content-type': 'text/plain' }, 'text');
  await post('unknown-token', {}, {});
  await ask('POST', `${url}/webhook`, { body: {} });
  await send('accepted');
  await untilCounted(35);
  const [first] = (await listTokens(database)).filter(({ name }) => name === 'first');
  const counts = (unknown: number) =>
    [
      `null unauthorized ${unknown}`,
      `${first?.id} invalid_body 2`,
      `${first?.id} unsupported_media_type 1`,
      `${github.id} unauthorized 30`,
    ].sort();
  assert.deepEqual(await refused(), counts(2));
  assert.ok((await sql`select from webhook.unstored`).length <= 8, 'by token, code and hour');

  // Those of another second are added, and none is written twice.
  await post('unknown-token', {}, {});
  await untilCounted(36);
  assert.deepEqual(await refused(), counts(3));
  const listed = await shown(github.id);
  assert.deepEqual([listed.refused, listed.last_refusal], [30, 'unauthorized']);
});

test('only the last 24 hours are shown, and seven days are kept', async () => {
  await sql`truncate webhook.unstored`;
  await sql`insert into webhook.unstored (token_id, reason, hour, count, last_at)
    select gen_random_uuid(), 'unauthorized', now() - hours * interval '1 hour', 1,
      now() - hours * interval '1 hour'
    from unnest('{1,23,25,167,169,500}'::int[]) as hours`;
  assert.equal((await refused()).length, 2);
  await gatehouse.runJobs(/unstored/);
  const rows = await sql<Array<{ age: number }>>`
    select round(extract(epoch from now() - last_at) / 3600)::int as age
    from webhook.unstored order by 1`;
  assert.deepEqual(
    rows.map(({ age }) => age),
    [1, 23, 25, 167],
  );
});

// --- The tokens of senders

const GITHUB = { source: 'github', signing_secret: SIGNING_SECRETS.github };
/** A signed event of GitHub. */
function signed(token: string, secret = SIGNING_SECRETS.github, more = {}) {
  const { headers, body } = SAMPLES.github();
  const text = JSON.stringify({ ...body, at: randomUUID() });
  return post(token, { ...headers, ...signatureOf('github', secret, text), ...more }, text);
}

test('an inbox user makes the token of a sender, and the log has who did, but no token', async () => {
  const body = { name: "Ada's deploys", source: 'generic' };
  const made = await ask('POST', `${url}/tokens`, { headers: as('alice'), body });
  assert.equal(made.status, 201, made.text);
  const { id, token } = made.json;
  assert.equal((await post(token)).status, 200);
  const refused = await call('GET', '/events', undefined, token);
  assert.deepEqual([refused.status, (await shown(id)).name], [401, body.name]);
  assert.match(refused.json.error.message, /of a sender/);
  const written = gatehouse.stdout() + gatehouse.stderr();
  const line = `"token created","token_id":"${id}","source":"generic","by":"user:alice"`;
  assert.ok(written.includes(line) && !written.includes(token));
});

test('what a source needs is said at its field, and nothing is stored', async () => {
  const before = await countTokens();
  for (const [given, path, message] of [
    [{ source: 'github' }, '/signing_secret', /^is needed for source github$/],
    [{ signing_secret: 'a secret' }, '/signing_secret', /requests of source generic are not/],
    [{ source: 'custom' }, '/source', /must be one of/],
    [{ name: 'two\nlines' }, '/name', /one line/],
    [{ order_by: 'default', ...GITHUB, source: 'standard' }, '/order_by', /has no default/],
  ] as const) {
    const { status, json } = await call('POST', '/tokens', {
      ...{ name: 'one', source: 'generic' },
      ...given,
    });
    assert.deepEqual([status, json.error.fields[0].path], [400, path]);
    assert.match(json.error.fields[0].message, message);
  }
  assert.equal(await countTokens(), before);
});

test('only senders are renamed, rotated, revoked and tested: never an operator', async () => {
  const [operator] = await sql`select id from webhook.tokens where role = 'operator'`;
  const revoked = await make();
  // Now the token is cached.
  const check = () => ask('GET', `${url}/webhook`, { bearer: revoked.token });
  assert.deepEqual([(await check()).status, (await post(revoked.token)).status], [200, 200]);
  assert.equal((await call('POST', `/tokens/${revoked.id}/revoke`)).status, 200);
  assert.deepEqual([(await check()).status, (await post(revoked.token)).status], [401, 401]);
  for (const id of [operator?.id, revoked.id]) {
    for (const [method, action, body] of [
      ['PATCH', '', { name: 'two' }],
      ['PATCH', '/target', { url }],
      ['POST', '/rotate', {}],
      ['POST', '/revoke', undefined],
      ['POST', '/test', undefined],
      ['POST', '/confirm', { fingerprint: 'x' }],
    ] as const)
      assert.equal((await call(method, `/tokens/${id}${action}`, body)).status, 404, action);
  }
  assert.equal((await call('GET', '/events')).status, 200);
});

test('a token that ends while it is changed is unknown, and stays as it was', async () => {
  const read = (id: string) => sql`
    select name, order_by, digest, target, (select count(*) from webhook.signing_secrets
      where token_id = t.id) from webhook.tokens t where id = ${id}`;
  for (const [method, action, body] of [
    ['PATCH', '', { name: 'two', order_by: 'none' }],
    ['PATCH', '/target', { url }],
    ['POST', '/rotate', {}],
    ['POST', '/rotate', { signing_secret: 'another secret' }],
  ] as const) {
    const { id } = await make(GITHUB);
    const before = await read(id);
    const [answer] = await meanwhile(
      sql,
      (held) => held`update webhook.tokens set revoked_at = now() where id = ${id}`,
      () => [call(method, `/tokens/${id}${action}`, body)],
    );
    assert.equal(answer?.status, 404, action);
    assert.deepEqual([...(await read(id))], [...before]);
  }
});

test('a token is renamed, and token or signing secret replaced, with the overlap that was asked for', async () => {
  const { id, token } = await make(GITHUB);
  assert.equal((await call('PATCH', `/tokens/${id}`, { name: 'two' })).status, 200);
  const rotate = (body: object) => call('POST', `/tokens/${id}/rotate`, body);
  const next = (await rotate({})).json.token;
  assert.deepEqual([(await signed(token)).status, (await signed(next)).status], [200, 200]);
  const last = (await rotate({ overlap_seconds: 0 })).json.token;
  assert.deepEqual([(await signed(next)).status, (await signed(last)).status], [401, 200]);
  assert.equal((await shown(id)).name, 'two');
  assert.equal((await rotate({ signing_secret: 'short' })).status, 400);
  const replaced = await rotate({ signing_secret: 'another secret' });
  assert.deepEqual(replaced.json, { id, token: null });
  for (const [secret, status] of [
    [SIGNING_SECRETS.github, 200],
    ['another secret', 200],
    ['a third one', 401],
  ] as const)
    assert.equal((await signed(last, secret)).status, status, secret);
});

test('an order is set, shown and taken back, and an order that cannot be is refused', async () => {
  const { id } = await make(GITHUB);
  for (const order_by of ['default', '/sender/login', 'x-github-event', 'none', null]) {
    assert.equal((await call('PATCH', `/tokens/${id}`, { order_by })).status, 200, `${order_by}`);
    assert.equal((await shown(id)).order_by, order_by);
  }
  const { id: withoutSubject } = await make({
    source: 'standard',
    signing_secret: SIGNING_SECRETS.standard,
  });
  for (const [sender, order_by] of [
    [id, ''],
    [id, 'two words'],
    [id, '/a~2'],
    [id, `/${'x'.repeat(255)}`],
    [id, 'transfer-encoding'],
    [id, 7],
    [withoutSubject, 'default'],
  ] as const) {
    const { status, json } = await call('PATCH', `/tokens/${sender}`, { order_by });
    assert.deepEqual([status, json.error.fields[0].path], [400, '/order_by'], `${order_by}`);
  }
});

test('a secret that a sender sent is shown, and only the one that was shown is confirmed', async () => {
  const { id, token } = await make({ source: 'notion' });
  const hand = (verification_token: string) => post(token, {}, { verification_token });
  const pending = () => call('GET', `/tokens/${id}/pending`);
  const confirm = async (fingerprint: string) =>
    (await call('POST', `/tokens/${id}/confirm`, { fingerprint })).status;
  assert.equal((await pending()).status, 404);
  await hand('secret_of_notion');
  const { secret, fingerprint } = (await pending()).json;
  assert.equal(secret, 'secret_of_notion');
  await hand('another_secret');
  assert.equal(await confirm(fingerprint), 409);
  assert.equal(await confirm((await pending()).json.fingerprint), 200);
  const isNoted = async () => (await shown(id)).last_handshake === 'signing secret';
  await untilSql(isNoted, 'the note');
  assert.equal((await shown(id)).pending, false);

  await hand('a_third_secret');
  await sql`update webhook.signing_secrets set key_id = 'another' where token_id = ${id}`;
  const sealedElsewhere = await pending();
  assert.deepEqual([sealedElsewhere.status, sealedElsewhere.json.error.code], [503, 'key_unknown']);
});

test('what is not named in a change of the target stays, and null takes it back', async () => {
  const { id } = await make();
  const change = async (body: object) => {
    const { status, text } = await call('PATCH', `/tokens/${id}/target`, body);
    assert.equal(status, 200, text);
    const { url: at, events, timeout_seconds, is_signed, keep_signature } = await shown(id);
    return { at, events, timeout_seconds, is_signed, keep_signature };
  };
  const none = await call('PATCH', `/tokens/${id}/target`, { events: ['push'] });
  assert.deepEqual([none.status, none.json.error.fields[0].path], [400, '/url']);
  const options = { events: ['push'], timeout_seconds: 7, keep_signature: true };
  const first = 'http://127.0.0.1:9/a';
  const at = 'http://127.0.0.1:9/b';
  const secret = SIGNING_SECRETS.standard;
  const all = { ...options, at: first, is_signed: true };
  assert.deepEqual(await change({ url: first, secret, ...options }), all);
  assert.deepEqual(await change({ url: at }), { ...all, at });
  assert.deepEqual(await change({ secret: null }), { ...all, at, is_signed: false });
  assert.equal((await sql`select from webhook.signing_secrets where token_id = ${id}`).length, 0);
  // Changes at once: none of them is lost.
  const changes = [{ events: null }, { timeout_seconds: null }, { keep_signature: false }];
  await Promise.all(changes.map(change));
  const plain = { events: null, timeout_seconds: null, keep_signature: false };
  assert.deepEqual(await change({}), { at, is_signed: false, ...plain });
  // Only a command can set a program.
  await sql`update webhook.tokens set target = '{"command":["/bin/true","key"]}' where id = ${id}`;
  const { target, url: ofProgram } = await shown(id);
  assert.deepEqual([target, ofProgram], ['command /bin/true', null]);
});

test('a test event goes to the target with its signature, is not stored, and its answer is shown', async () => {
  const target = await startRecorder({ after });
  target.answer(reply(422, { message: 'not today' }));
  const { id } = await make();
  assert.equal((await call('POST', `/tokens/${id}/test`)).status, 409, 'no target');
  const secret = SIGNING_SECRETS.standard;
  await call('PATCH', `/tokens/${id}/target`, { url: target.url, secret });
  const { error, answer, duration_ms, ...shownOfIt } = (await call('POST', `/tokens/${id}/test`))
    .json;
  assert.match(error, /^the target answered 422/);
  assert.match(answer, /not today/);
  assert.ok(duration_ms >= 0);
  const { answer_status, target: name } = shownOfIt;
  assert.deepEqual([answer_status, name], [422, `forward ${target.url}`]);
  const [sent] = target.received;
  assert.equal(sent?.headers['gatehouse-event'], 'gatehouse.test');
  assert.ok(sent?.headers['webhook-signature']);
  assert.equal((await sql`select from webhook.events where event = 'gatehouse.test'`).length, 0);
});

test('a handshake and a refused request are shown at their sender, with reason and address', async () => {
  const { id, token } = await make(GITHUB);
  const untilShown = (last: RegExp) =>
    untilSql(async () => {
      const { last_handshake, last_refusal, last_refusal_detail, last_refused_from } =
        await shown(id);
      const words = [last_handshake, last_refusal, last_refusal_detail, last_refused_from];
      return last.test(words.join(' '));
    }, String(last));
  const ping = await signed(token, undefined, { 'x-github-event': 'ping' });
  assert.equal(ping.json.status, 'pong');
  await untilShown(/^ping  /);
  await post(token, { 'x-github-event': 'push' }, '{}');
  await untilShown(
    /^ping unauthorized The request lacks the header x-hub-signature-256\. .* 127\.0\.0\.1$/,
  );
  await signed(token, 'another secret');
  await untilShown(/The signature is wrong\./);
  const rows = (await call('GET', '/events/refused')).json;
  const own = rows.filter((one: { token_id: string }) => one.token_id === id);
  const shownOfThem = own.map((one: Record<string, unknown>) => [one.count, one.address]);
  assert.deepEqual(shownOfThem, [[2, '127.0.0.1']], 'the handshake is none of them');
});

test('the page learns who is signed in, and whether they may use it', async () => {
  const said = async (headers: Record<string, string>) =>
    (await ask('GET', `${url}/inbox/user`, { headers })).json;
  const problem =
    'You are signed in as mallory, who may not use the inbox. INBOX_USERS lists who may.';
  for (const [headers, user, its] of [
    [as('alice'), 'alice', null],
    [as('mallory'), 'mallory', problem],
    [{}, null, null],
  ] as const)
    assert.deepEqual(await said({ ...headers }), { user, problem: its, sign_in: null });
  const refused = await ask('GET', `${url}/events`, { headers: as('mallory') });
  assert.deepEqual([refused.status, refused.json.error.message], [401, problem]);
});
