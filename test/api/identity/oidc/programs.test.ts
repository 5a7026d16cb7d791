/**
 * The page of programs: what a person ends, and what an administrator registers. Programs are told
 * that a session has ended, once, and again if they did not hear it.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { stopClock } from '../../../support/clock.ts';
import { ADMIN_PASSWORD } from '../../../support/gatehouse.ts';
import { formsOn } from '../../../support/forms.ts';
import { CALLBACK, readToken, startProvider } from '../../../support/oidc.ts';
import { ORIGIN } from '../../../support/portal.ts';
import { reply, startRecorder } from '../../../support/recorder.ts';

const PATH = '/account/programs';
const provider = await startProvider({ after });
const { show, post, sql, call, admin } = provider;
const ada = await provider.addSignedIn();
const administrator = await provider.signIn('admin', { fields: { password: ADMIN_PASSWORD } });
const send = (path: string, fields = {}) => post(PATH + path, administrator.host, fields);

const NEW = {
  id: 'wiki',
  name: 'Wiki & <b>more</b>',
  redirect: `${CALLBACK}\r\nhttps://app.example.net/other`,
  consent: 'false',
  pkce: 'true',
  secret: 'true',
  id_token_seconds: '60',
};
const empty = await show(PATH, administrator.host);
const registered = await send('', NEW);
const program = await startRecorder({ after });
program.answer(reply(200, ''));
async function registerWithAddress(id: string, url: string) {
  const registered = await provider.register(id);
  // Only https is accepted; the test has no certificate.
  await sql`update identity.oidc_clients set backchannel_uri = ${`${url}/out`} where id = ${id}`;
  return registered;
}
const web = await registerWithAddress('web', program.url);

test('an administrator registers a program, whose secret is shown once and works', async () => {
  assert.match(empty.text, /class="empty">None yet\./);
  assert.match(registered.text, /The program is registered/);
  const secret = /<pre[^>]*>([0-9a-f]{64})<\/pre>/.exec(registered.text)?.[1] ?? '';
  const { text } = await show(PATH, administrator.host);
  assert.ok(!text.includes(secret));
  assert.match(text, /data-label="For">every user</);
  assert.doesNotMatch((await show(PATH, ada.host)).text, /Registered programs/);
  const { id_token } = await provider.tokensFor({ id: 'wiki', secret }, ada.host);
  const { iat, exp } = readToken(id_token).claims;
  assert.equal(Number(exp) - Number(iat), 60);
});

test('a program without a secret is registered, and has none', async () => {
  const { status, headers, text } = await send('', { ...NEW, id: 'phone', secret: 'false' });
  assert.deepEqual([status, headers.get('location'), text], [303, PATH, '']);
  assert.ok((await provider.tokensFor({ id: 'phone', secret: '' }, ada.host)).id_token);
  assert.doesNotMatch((await show(`${PATH}/phone`, administrator.host)).text, /New secret/);
});

test('each mistake stands beside its field, and nothing is stored', async () => {
  for (const [field, value] of [
    ['id', 'Wiki 2'],
    ['id', 'wiki'],
    ['name', ''],
    ['redirect', ''],
    ['redirect', 'javascript:alert(1)'],
    ['redirect', `${CALLBACK}\nnonsense`],
    ['redirect', `${CALLBACK}\n`.repeat(21)],
    ['logout_uri', 'nonsense'],
    ['backchannel_uri', 'http://127.0.0.1/out'],
    ['backchannel_uri', 'https://ada@app.example.net/out'],
    ['groups', 'Not A Group!'],
  ] as const) {
    const { status, text } = await send('', { ...NEW, id: 'wiki-2', [field]: value });
    assert.notEqual(status, 200, value);
    assert.match(text, new RegExp(`id="${field}-problem"`), value);
    assert.ok(text.includes('Wiki &#38; &#60;b&#62;more') || field === 'name');
  }
  assert.equal((await sql`select from identity.oidc_clients where id = 'wiki-2'`).length, 0);
});

test('the page of a program shows what is set, and changes it', async () => {
  const page = () => show(`${PATH}/wiki`, administrator.host);
  const { text } = await page();
  assert.match(text, /https:\/\/app\.example\.net\/other/);
  const stored = async () => {
    const [row] = await sql`select name, redirect, logout_uri, backchannel_uri, groups, consent,
      second_factor, refresh, pkce, id_token_seconds from identity.oidc_clients where id = 'wiki'`;
    return { ...row };
  };
  const given = { name: 'Notes', backchannel_uri: 'https://app.example.net/told?by=gatehouse' };
  const addresses = ['https://app.example.net/a', 'https://app.example.net/b'];
  const groups = ['admins', 'staff'];
  const edited = await send('/wiki/edit', {
    ...given,
    redirect: addresses.join(' '),
    logout_uri: addresses.join('\n'),
    groups: 'staff, admins',
    ...{ consent: 'true', second_factor: 'true', refresh: 'true', pkce: 'false' },
    id_token_seconds: '86400',
  });
  assert.equal(edited.status, 303, edited.text);
  const chosen = { consent: true, second_factor: true, refresh: true, pkce: false };
  const lists = { redirect: addresses, logout_uri: addresses, groups };
  const expected = { ...given, ...lists, ...chosen, id_token_seconds: 86_400 };
  assert.deepEqual(await stored(), expected);
  const form = formsOn((await page()).text).find(({ action }) => action.endsWith('/edit'));
  const shown = form?.fields.map(({ name, value }) => [name, value]) ?? [];
  assert.equal((await send('/wiki/edit', Object.fromEntries(shown))).status, 303);
  assert.deepEqual(await stored(), expected, 'sent as it was shown');
  const cleared = { logout_uri: '', backchannel_uri: '', groups: '' };
  assert.equal((await send('/wiki/edit', cleared)).status, 303);
  const none = { logout_uri: [], backchannel_uri: '', groups: [] };
  assert.deepEqual(await stored(), { ...expected, ...none });
  for (const [action, state, next] of [
    ['disable', 'Disabled', 'enable'],
    ['enable', 'Enabled', 'disable'],
  ] as const) {
    assert.equal((await send(`/wiki/${action}`)).status, 303);
    const { text } = await page();
    const offered = /"\/account\/programs\/wiki\/(enable|disable)"/.exec(text)?.[1];
    assert.deepEqual([/class="badge \w+">(\w+)</.exec(text)?.[1], offered], [state, next]);
  }
  assert.match((await send('/wiki/secret')).text, /<pre[^>]*>[0-9a-f]{64}<\/pre>/);
  await provider.register('public', '--public');
  assert.equal((await send('/public/secret')).status, 404);
});

test('a person ends what a program has, and nobody else does', async () => {
  const notes = await provider.register('notes', '--refresh');
  const tokens = await provider.tokensFor(notes, ada.host);
  const kept = await provider.tokensFor(await provider.register('kept'), ada.host);
  const other = await provider.addSignedIn();
  const end = (cookie: string) => post(`${PATH}/end`, cookie, { client_id: 'notes' });
  const statusOf = async (token: string) => (await provider.userinfo(token)).status;
  const statuses = () => Promise.all([tokens, kept].map((one) => statusOf(one.access_token)));
  await end(other.host);
  assert.doesNotMatch((await show(PATH, other.host)).text, /Program (notes|kept)/);
  assert.deepEqual(await statuses(), [200, 200]);
  await sql`
    insert into identity.oidc_consents (client_id, user_id, scopes)
    values ('kept', ${ada.id}, '{openid}'), ('notes', ${ada.id}, '{openid}'),
      ('notes', ${other.id}, '{openid}')`;
  assert.match((await show(PATH, ada.host)).text, /name="client_id" value="notes"/);
  assert.equal((await end(ada.host)).status, 303);
  assert.deepEqual(await statuses(), [401, 200]);
  assert.doesNotMatch((await show(PATH, ada.host)).text, /Program notes/);
  const consents = await sql`
    select client_id || ' ' || user_id as of from identity.oidc_consents order by client_id`;
  const left = consents.map((row) => row.of);
  assert.deepEqual(left, [`kept ${ada.id}`, `notes ${other.id}`]);
  await end(ada.host);
  const ended = await sql`select from identity.audit
    where event = 'grant.ended' and user_id = ${ada.id}`;
  assert.equal(ended.length, 1);
});

test('a program that is deleted is gone', async () => {
  await provider.register('brief');
  await send('/brief/delete');
  assert.equal((await show(`${PATH}/brief`, administrator.host)).status, 404);
  assert.equal((await send('/brief/delete')).status, 404);
});

// --- Notices of the end of a session

async function signedIn() {
  const user = await provider.addSignedIn();
  const { id_token } = await provider.tokensFor(web, user.host);
  return { ...user, sid: readToken(id_token).claims.sid };
}
const endSession = (id: string) =>
  sql`update identity.sessions set revoked = true where user_id = ${id}`;
let seen = 0;
/** Tells programs. @returns what they have been told */
async function told() {
  await provider.runJobs(/tell programs/);
  const all = program.received.slice(seen);
  seen += all.length;
  return all.map(({ target, body }) => {
    const token = new URLSearchParams(body).get('logout_token') ?? '';
    return { target, token, ...readToken(token) };
  });
}

test('a program learns of the end of a session, with its id, and once', async () => {
  const { id, sid } = await signedIn();
  assert.equal((await told()).length, 0);
  await endSession(id);
  const [notice = assert.fail(), ...more] = await told();
  assert.deepEqual([...more, ...(await told())], []);
  const { iat, exp, jti, ...claims } = notice.claims;
  assert.deepEqual(claims, {
    iss: ORIGIN,
    aud: 'web',
    sub: id,
    sid,
    events: { 'http://schemas.openid.net/event/backchannel-logout': {} },
  });
  assert.deepEqual([notice.head.typ, notice.target, typeof jti], ['logout+jwt', '/out', 'string']);
  assert.equal(Number(exp) - Number(iat), 120);
  // It is no hint of a sign-in.
  const { host } = await provider.addSignedIn();
  const page = await provider.show(`/oidc/logout?id_token_hint=${notice.token}`, host);
  assert.match(page.text, /asks you to sign out/);
});

test('a program that has never exchanged its code is not told', async () => {
  const { id, host } = await provider.addSignedIn();
  await provider.codeFor(web, host);
  await endSession(id);
  assert.equal((await told()).length, 0);
});

test('a program is told however the access ends, and one without an address is not', async () => {
  const { id } = await signedIn();
  await call(admin.token, 'DELETE', `/api/session/revoke/all/user?user=${id}`);
  const { host } = await signedIn();
  await provider.post('/account/programs/end', host, { client_id: 'web' });
  const { id: disabledId } = await signedIn();
  await sql`update identity.users set enabled = false where id = ${disabledId}`;
  const other = await signedIn();
  await provider.tokensFor(await provider.register('silent'), other.host);
  await endSession(other.id);
  assert.equal((await told()).length, 4);
  const tries = await sql`
    select from identity.oidc_grants where client_id = 'silent' and notices_left < 3`;
  assert.equal(tries.length, 0);
});

test('a program is told later if the signing key does not open now', async (t) => {
  const pass = stopClock(t);
  const alter = async () => {
    await sql`update identity.oidc_keys set blob = set_byte(blob, 20, get_byte(blob, 20) # 1)`;
    // For a minute, a process holds the keys that it has read.
    pass(61);
  };
  const { id } = await signedIn();
  await endSession(id);
  await alter();
  assert.equal((await told()).length, 0);
  await alter();
  await sql`update identity.oidc_grants set notice_at = notice_at - interval '1 minute'`;
  assert.equal((await told()).length, 1);
});

for (const status of [500, 302]) {
  test(`a program that answers ${status} is asked three times, another one once`, async (t) => {
    const deaf = await startRecorder(t);
    deaf.answer(reply(status, '', { location: '/elsewhere' }));
    const { host, id } = await signedIn();
    await provider.tokensFor(await registerWithAddress(`deaf-${status}`, deaf.url), host);
    await endSession(id);
    const counts: string[] = [];
    for (let minute = 0; minute < 5; minute += 1) {
      const heard = (await told()).length + (await told()).length;
      counts.push(`${heard} ${deaf.received.length}`);
      await sql`update identity.oidc_grants set notice_at = notice_at - interval '1 minute'`;
    }
    assert.deepEqual(counts, ['1 1', '0 2', '0 3', '0 3', '0 3']);
    assert.ok(deaf.received.every(({ target }) => target === '/out'));
  });
}
