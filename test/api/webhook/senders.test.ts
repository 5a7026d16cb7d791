/** The tokens of senders over HTTP: who makes them, what changes, and what stays. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { untilSql } from '../../support/connections.ts';
import { type Answer, ask } from '../../support/gatehouse.ts';
import { OPERATOR_TOKEN, openInbox } from '../../support/inbox.ts';
import { reply, startRecorder } from '../../support/recorder.ts';
import { SAMPLES, signatureOf, SIGNING_SECRETS, WEBHOOK_SECRET } from '../../support/senders.ts';

const USER = { TRUSTED_USER_HEADER: 'X-Auth-Username', TRUSTED_PROXIES: '127.0.0.1' };
const inbox = await openInbox(
  { after },
  {
    ...USER,
    INBOX_USERS: 'alice',
    INBOX_PAGE: 'on',
    WEBHOOK_SECRET,
    WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
  },
);
const { sql, url } = inbox;
const as = (user: string) => ({ 'sec-fetch-site': 'same-origin', 'x-auth-username': user });
const call = (method: string, path: string, body?: object): Promise<Answer> =>
  ask(method, url + path, { bearer: OPERATOR_TOKEN, ...(body ? { body } : {}) });
const make = async (body: object = {}): Promise<{ id: string; token: string }> => {
  const answer = await call('POST', '/tokens', { name: 'one', source: 'generic', ...body });
  assert.equal(answer.status, 201, answer.text);
  return answer.json;
};
const post = (token: string, headers: Record<string, string> = {}, body: unknown = undefined) =>
  ask('POST', `${url}/webhook`, {
    bearer: token,
    headers,
    body: body ?? { event: 'made', data: { page_id: 'p' } },
  });
const shown = async (id: string) =>
  (await call('GET', '/tokens')).json.find((one: { id: string }) => one.id === id);

test('an inbox user makes the token of a sender, and the log has who did, but no token', async () => {
  const body = { name: "Ada's deploys", source: 'generic' };
  const made = await ask('POST', `${url}/tokens`, { headers: as('alice'), body });
  assert.equal(made.status, 201, made.text);
  const { id, token } = made.json;
  assert.equal((await post(token)).status, 200);
  assert.equal((await inbox.call('GET', '/events', token)).status, 401, 'it is no operator');
  const written = inbox.gatehouse.stdout() + inbox.gatehouse.stderr();
  assert.match(
    written,
    new RegExp(`"token created","token_id":"${id}","source":"generic","by":"user:alice"`),
  );
  assert.ok(!written.includes(token));
  assert.equal((await shown(id)).name, body.name);
  for (const headers of [as('mallory'), { ...as('alice'), 'sec-fetch-site': 'cross-site' }])
    assert.ok([401, 403].includes((await ask('POST', `${url}/tokens`, { headers, body })).status));
});

test('what a source needs is said at its field, and nothing is stored', async () => {
  const before = (await call('GET', '/tokens')).json.length;
  const CASES: ReadonlyArray<readonly [given: object, path: string, message: RegExp]> = [
    [{ source: 'github' }, '/signing_secret', /^is needed for source github$/],
    [{ source: 'github', signing_secret: ' a secret ' }, '/signing_secret', /has spaces around/],
    [{ source: 'standard', signing_secret: 'no base64' }, '/signing_secret', /whsec_ and 24/],
    [{ signing_secret: 'a secret' }, '/signing_secret', /requests of source generic are not/],
    [{ source: 'custom' }, '/source', /must be one of/],
    [{ name: 'two\nlines' }, '/name', /one line/],
  ];
  for (const [given, path, message] of CASES) {
    const body = { name: 'one', source: 'generic', ...given };
    const { status, json, text } = await call('POST', '/tokens', body);
    assert.equal(status, 400, text);
    assert.equal(json.error.fields[0].path, path, text);
    assert.match(json.error.fields[0].message, message);
  }
  assert.equal((await call('GET', '/tokens')).json.length, before);
});

test('only senders are renamed, rotated, revoked and tested: never an operator', async () => {
  const [operator] = await sql`select id from webhook.tokens where role = 'operator'`;
  const revoked = await make();
  assert.equal((await call('POST', `/tokens/${revoked.id}/revoke`)).status, 200);
  assert.equal((await post(revoked.token)).status, 401, 'at once');
  for (const id of [operator?.id, revoked.id, randomUUID()]) {
    assert.equal((await call('PATCH', `/tokens/${id}`, { name: 'two' })).status, 404);
    assert.equal((await call('PATCH', `/tokens/${id}/target`, { url: url })).status, 404);
    for (const action of ['rotate', 'revoke', 'test', 'confirm']) {
      const body = { rotate: {}, confirm: { fingerprint: 'x' } }[action];
      assert.equal((await call('POST', `/tokens/${id}/${action}`, body)).status, 404, action);
    }
  }
  assert.equal((await inbox.call('GET', '/events')).status, 200);
});

test('a token is renamed and replaced, and the old one stays valid as long as was asked', async () => {
  const { id, token } = await make();
  assert.equal((await call('PATCH', `/tokens/${id}`, { name: 'two' })).status, 200);
  const next = (await call('POST', `/tokens/${id}/rotate`, {})).json.token;
  assert.deepEqual([(await post(token)).status, (await post(next)).status], [200, 200]);
  const last = (await call('POST', `/tokens/${id}/rotate`, { overlap_seconds: 0 })).json.token;
  assert.deepEqual([(await post(next)).status, (await post(last)).status], [401, 200]);
  assert.equal((await shown(id)).name, 'two');
});

test('an order is set, shown and taken back, and an order that cannot be is refused', async () => {
  const { id } = await make({ source: 'github', signing_secret: SIGNING_SECRETS.github });
  for (const order_by of ['default', '/sender/login', 'x-github-event', 'none', null]) {
    assert.equal((await call('PATCH', `/tokens/${id}`, { order_by })).status, 200, `${order_by}`);
    assert.equal((await shown(id)).order_by, order_by);
  }
  for (const order_by of ['', 'two words', '/a~2', `/${'x'.repeat(255)}`, 'transfer-encoding']) {
    const { status, json } = await call('PATCH', `/tokens/${id}`, { order_by });
    assert.deepEqual([status, json.error.fields[0].path], [400, '/order_by'], order_by);
  }
  const made = { source: 'standard', signing_secret: SIGNING_SECRETS.standard };
  const refused = await call('POST', '/tokens', { name: 'x', ...made, order_by: 'default' });
  assert.match(refused.json.error.fields[0].message, /source standard has no default/);
});

test('a signing secret is replaced with overlap, and only by one of its form', async () => {
  const { id, token } = await make({ source: 'github', signing_secret: SIGNING_SECRETS.github });
  const send = (secret: string) => {
    const { headers, body } = SAMPLES.github();
    const text = JSON.stringify({ ...body, at: randomUUID() });
    return post(token, { ...headers, ...signatureOf('github', secret, text) }, text);
  };
  const rotate = (signing_secret: string) =>
    call('POST', `/tokens/${id}/rotate`, { signing_secret });
  assert.equal((await rotate('short')).status, 400);
  assert.deepEqual((await rotate('another secret')).json, { id, token: null });
  assert.deepEqual(
    [(await send('another secret')).status, (await send('a third one')).status],
    [200, 401],
  );
});

test('a secret that a sender sent is shown, and only the one that was shown is confirmed', async () => {
  const { id, token } = await make({ source: 'notion' });
  assert.equal((await call('GET', `/tokens/${id}/pending`)).status, 404);
  await post(token, {}, { verification_token: 'secret_of_notion' });
  const pending = await call('GET', `/tokens/${id}/pending`);
  assert.equal(pending.json.secret, 'secret_of_notion');
  const { fingerprint } = pending.json;
  await post(token, {}, { verification_token: 'another_secret' });
  const confirm = (body: object) => call('POST', `/tokens/${id}/confirm`, body);
  assert.equal((await confirm({ fingerprint })).status, 409);
  const again = (await call('GET', `/tokens/${id}/pending`)).json;
  assert.equal((await confirm({ fingerprint: again.fingerprint })).status, 200);
  await untilSql(async () => (await shown(id)).last_handshake === 'signing secret', 'the note');
  assert.equal((await shown(id)).pending, false);
});

test('a pending secret that no key of the service opens is not shown', async () => {
  const { id, token } = await make({ source: 'notion' });
  await post(token, {}, { verification_token: 'secret_of_notion' });
  await sql`update webhook.signing_secrets set key_id = 'another' where token_id = ${id}`;
  const { status, json } = await call('GET', `/tokens/${id}/pending`);
  assert.deepEqual([status, json.error.code], [503, 'key_unknown']);
});

test('what is not named in a change of the target stays, and null takes it back', async () => {
  const { id } = await make();
  const secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
  const change = async (body: object) => {
    const answer = await call('PATCH', `/tokens/${id}/target`, body);
    assert.equal(answer.status, 200, answer.text);
    const { url: at, events, timeout_seconds, is_signed, keep_signature } = await shown(id);
    return { at, events, timeout_seconds, is_signed, keep_signature };
  };
  const none = await call('PATCH', `/tokens/${id}/target`, { events: ['push'] });
  assert.deepEqual([none.status, none.json.error.fields[0].path], [400, '/url']);
  const first = { at: 'http://127.0.0.1:9/a', events: ['push'], timeout_seconds: 7 };
  const all = { ...first, is_signed: true, keep_signature: true };
  assert.deepEqual(
    await change({
      url: first.at,
      events: ['push'],
      timeout_seconds: 7,
      secret,
      keep_signature: true,
    }),
    all,
  );
  const at = 'http://127.0.0.1:9/b';
  assert.deepEqual(await change({ url: at }), { ...all, at });
  assert.deepEqual(await change({ secret: null }), { ...all, at, is_signed: false });
  const [sealed] = await sql`select from webhook.signing_secrets where token_id = ${id}`;
  assert.equal(sealed, undefined);
  // Two changes at once: none of them is lost.
  await Promise.all([
    change({ events: null }),
    change({ timeout_seconds: null }),
    change({ keep_signature: false }),
  ]);
  assert.deepEqual(await change({}), {
    at,
    events: null,
    timeout_seconds: null,
    is_signed: false,
    keep_signature: false,
  });
});

test('a test event goes to the target with its signature, is not stored, and its answer is shown', async () => {
  const target = await startRecorder({ after });
  target.answer(reply(422, { message: 'not today' }));
  const { id } = await make();
  assert.equal((await call('POST', `/tokens/${id}/test`)).status, 409, 'no target');
  const secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
  await call('PATCH', `/tokens/${id}/target`, { url: target.url, secret });
  const events = Number((await sql`select count(*)::int as n from webhook.events`)[0]?.n);
  const { status, json } = await call('POST', `/tokens/${id}/test`);
  assert.equal(status, 200);
  assert.match(json.error, /^the target answered 422/);
  assert.deepEqual([json.answer_status, typeof json.duration_ms], [422, 'number']);
  assert.match(json.answer, /not today/);
  assert.equal(json.target, `forward ${new URL(target.url).origin}`);
  const [sent] = target.received;
  assert.equal(sent?.headers['gatehouse-event'], 'gatehouse.test');
  assert.ok(sent?.headers['webhook-signature']);
  assert.equal(Number((await sql`select count(*)::int as n from webhook.events`)[0]?.n), events);
});

test('a handshake and a refused request are shown at their sender, with reason and address', async () => {
  const { id, token } = await make({ source: 'github', signing_secret: SIGNING_SECRETS.github });
  const { headers, body } = SAMPLES.github();
  const text = JSON.stringify(body);
  const signed = { ...headers, ...signatureOf('github', SIGNING_SECRETS.github, text) };
  const ping = await post(token, { ...signed, 'x-github-event': 'ping' }, text);
  assert.equal(ping.json.status, 'pong');
  const last = async () => {
    const { last_handshake, last_refusal, last_refusal_detail, last_refused_from } =
      await shown(id);
    return [last_handshake, last_refusal, last_refusal_detail, last_refused_from].join(' ');
  };
  await untilSql(async () => (await last()).startsWith('ping  '), 'the handshake');
  await post(token, headers, text);
  const missing =
    /unauthorized The request lacks the header x-hub-signature-256\. .* 127\.0\.0\.1$/;
  await untilSql(async () => missing.test(await last()), 'the missing header');
  await post(token, { ...signed, 'x-hub-signature-256': `sha256=${'0'.repeat(64)}` }, text);
  await untilSql(async () => (await last()).includes('The signature is wrong.'), 'the wrong one');
  const rows = (await call('GET', '/events/refused')).json;
  const [row] = rows.filter((one: { token_id: string }) => one.token_id === id);
  assert.deepEqual([row.count, row.address], [2, '127.0.0.1'], 'the handshake is none of them');
});

test('the page learns who is signed in, and whether they may use it', async () => {
  const visitor = async (headers: Record<string, string>) =>
    (await ask('GET', `${url}/inbox/user`, { headers })).json;
  assert.deepEqual(await visitor(as('alice')), { user: 'alice', problem: null, sign_in: null });
  const problem =
    'You are signed in as mallory, who may not use the inbox. INBOX_USERS lists who may.';
  assert.deepEqual(await visitor(as('mallory')), { user: 'mallory', problem, sign_in: null });
  assert.deepEqual(await visitor({}), { user: null, problem: null, sign_in: null });
  const refused = await ask('GET', `${url}/events`, { headers: as('mallory') });
  assert.deepEqual([refused.status, refused.json.error.message], [401, problem]);
  const { token } = await make();
  assert.match((await inbox.call('GET', '/events', token)).json.error.message, /of a sender/);
});
