/**
 * What each form of the pages does with fields, senders and sessions that it must not accept, and
 * API keys on the account page.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { cookieFrom, ORIGIN, signInFor, startPortal } from '../../../support/portal.ts';
import { PASSWORD } from '../../../support/users.ts';

const { sql, call, add, visit, signIn } = await startPortal({ after });
const user = await add();
const { host } = await signIn((await add({ super_admin: true })).username);
const ofUser = `/account/users/${user.id}`;

/** Each form, with what it needs. */
const FORMS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  '/account/name': { first_name: 'Ada', last_name: 'Byron' },
  '/account/password': { current_password: PASSWORD, new_password: 'a longer one than that' },
  '/account/totp': { code: '123456' },
  '/account/keys': { name: 'backup', days: '30' },
  '/account/program-keys': { name: 'sign-up', days: '30', verify: 'on' },
  '/account/users': { username: 'grace', email: 'grace@example.org' },
  [`${ofUser}/edit`]: { username: 'a', email: 'a@b.example', first_name: '', last_name: '' },
};

const messageOf = (text: string, name: string) =>
  new RegExp(`id="${name}-problem">([A-Z][^<]+\\.)<`).exec(text)?.[1];

for (const [path, fields] of Object.entries(FORMS)) {
  test(`${path.replace(user.id, '{user_id}')} says at each field what is wrong, and keeps the others`, async () => {
    for (const name of Object.keys(fields)) {
      const { [name]: _, ...others } = fields;
      for (const given of [others, { ...fields, [name]: 'x'.repeat(5_000) }]) {
        const { status, text } = await visit(path, { fields: given, cookie: host });
        assert.equal(status, 400, `${name}: ${text}`);
        if (name !== 'days') assert.ok(messageOf(text, name), `${name}: ${text}`);
        for (const [other, value] of Object.entries(others)) {
          if (value === '') continue;
          assert.equal(text.includes(`value="${value}"`), !/password|code/.test(other), other);
        }
      }
    }
  });
}

test('a form that is sent twice at once creates one user, and says why not another', async () => {
  const username = `twice-${randomUUID()}`;
  const fields = { username, email: `${username}@example.org` };
  const send = () => visit('/account/users', { fields, cookie: host });
  const pages = await Promise.all([send(), send()]);
  const refused = pages.find(({ status }) => status === 409);
  assert.deepEqual(pages.map(({ status }) => status).sort(), [200, 409]);
  assert.match(messageOf(refused?.text ?? '', 'username') ?? '', /taken/);
  const rows = await sql`select from identity.users where username = ${username}`;
  assert.equal(rows.length, 1);
});

test('the sign-in says where it leads, and why a signed-in person sees it', async () => {
  const to = (address: string, more = '') =>
    visit(`/login?return_to=${encodeURIComponent(address)}${more}`, {
      headers: { host: new URL(ORIGIN).host },
    });
  assert.match(
    (await to('https://app.example.org/a')).text,
    /Sign in to continue to app\.example\.org\./,
  );
  assert.doesNotMatch((await to('https://evil.example/a')).text, /Sign in to continue/);
  const again = await to(`${ORIGIN}/account/keys`, '&again=on');
  assert.match(
    again.text,
    /Your sign-in has ended, or this page of login\.example\.org needs a recent/,
  );
});

test('under another name, the sign-in page names its address, but not behind a proxy', async () => {
  const at = (headers: Record<string, string>) => visit('/login', { headers });
  const named = /Sign in at <a href="https:\/\/login\.example\.org\/login">/;
  assert.match((await at({ host: '127.0.0.1:3000' })).text, named);
  assert.match((await at({ host: 'login.example.org.' })).text, named, 'another origin');
  for (const host of ['LOGIN.example.org', 'login.example.org:443'])
    assert.doesNotMatch((await at({ host })).text, named, host);
  // Many proxies replace `Host` by the address of the service.
  const proxied = { host: '127.0.0.1:3000', 'x-forwarded-for': '192.0.2.1' };
  assert.doesNotMatch((await at(proxied)).text, named);
  const rejected = await visit('/login', {
    fields: { username: 'a', password: 'b', return_to: '' },
    headers: { host: '127.0.0.1:3000', origin: 'http://127.0.0.1:3000' },
  });
  assert.equal(rejected.status, 403);
  assert.ok(rejected.text.includes(`Open ${ORIGIN}/login and try again.`));
});

test('after a sign-out, the sign-in page says so once', async () => {
  const { host } = await signIn(user.username);
  const out = await visit('/logout', { fields: {}, cookie: host });
  assert.deepEqual([out.status, out.headers.get('location')], [303, '/login']);
  const shown = await visit('/login', { cookie: cookieFrom(out, '__Host-gatehouse-notice') });
  assert.match(shown.text, /role="status">You are signed out\.</);
  assert.ok(shown.cookies.some((cookie) => /^__Host-gatehouse-notice=;.*Max-Age=0$/.test(cookie)));
});

test('the filters of a list outlast a sign-in', async () => {
  const { headers } = await visit('/account/audit?event=user.created&from=2026-01-01');
  assert.equal(
    headers.get('location'),
    signInFor('/account/audit?event=user.created&from=2026-01-01'),
  );
});

const create = (cookie: string, fields: Record<string, string>) =>
  visit('/account/keys', { fields, cookie });

const keyOn = (text: string) => /<pre [^>]*>(key:[\w-]{49})<\/pre>/.exec(text)?.[1] ?? '';

const idsOn = (text: string) =>
  [...text.matchAll(/name="key_id" value="([^"]+)"/g)].map(([, id = '']) => id);

test('a key is shown whole once, acts for the user, and is revoked', async () => {
  const { username, id } = await add();
  const { host } = await signIn(username);
  assert.match(
    (await visit('/account', { cookie: host })).text,
    /<a href="\/account\/keys">API keys<\/a>/,
  );
  assert.match((await visit('/account/keys', { cookie: host })).text, />None yet\.</);
  const made = await create(host, { name: 'backup <b>', days: '90' });
  const key = keyOn(made.text);
  assert.equal((await call(key, 'GET', `/api/user/${id}`)).status, 200);
  const listed = await visit('/account/keys', { cookie: host });
  assert.match(listed.text, new RegExp(`backup &#60;b&#62;: <code>${key.slice(0, 12)}…</code>`));
  assert.doesNotMatch(listed.text, new RegExp(key.slice(0, 16)));
  assert.match(
    listed.text,
    new RegExp(
      `may: all<br>last used: (never|<time[^]+), expires: <time datetime="20[^]+<br>created <time[^]+ by ${username}<`,
    ),
  );
  const [row] =
    await sql`select round(extract(epoch from expires_at - now()) / 86400)::int as days from identity.api_keys where user_id = ${id}`;
  assert.equal(row?.days, 90);
  const [keyId = ''] = idsOn(listed.text);
  const revoked = await visit('/account/keys/revoke', { fields: { key_id: keyId }, cookie: host });
  assert.equal(revoked.headers.get('location'), '/account/keys');
  const cookie = `${host}; ${cookieFrom(revoked, '__Host-gatehouse-notice')}`;
  const after = await visit('/account/keys', { cookie });
  assert.match(after.text, /role="status">The key is revoked\.</);
  assert.match(after.cookies.join(), /^__Host-gatehouse-notice=;.*Max-Age=0$/, 'said once');
  assert.match(after.text, /<span class="badge">Revoked<\/span>/);
  assert.deepEqual(idsOn(after.text), []);
  assert.equal((await call(key, 'GET', `/api/user/${id}`)).status, 401);
  const events =
    await sql`select event, via from identity.audit where user_id = ${id} and event like 'key.%' order by created_at`;
  assert.deepEqual(
    events.map(({ event, via }) => `${event} ${via}`),
    ['key.created session', 'key.revoked session'],
  );
});

test('the key of a disabled user can be revoked: it would work again', async () => {
  const { username, id } = await add();
  const { host } = await signIn(username);
  await create(host, { name: 'suspended', days: 'never' });
  await sql`update identity.users set enabled = false where id = ${id}`;
  const { host: cookie } = await signIn((await add({ super_admin: true })).username);
  const { text } = await visit(`/account/users/${id}`, { cookie });
  assert.match(text, /suspended/);
  assert.doesNotMatch(text, /<span class="badge">Expired/);
  assert.equal(idsOn(text).length, 1);
});

test('a key that expired is marked, and one that never expires says so', async () => {
  const { username, id } = await add();
  const { host } = await signIn(username);
  await create(host, { name: 'one', days: '30' });
  await sql`update identity.api_keys set expires_at = now() where user_id = ${id}`;
  await create(host, { name: 'other', days: 'never' });
  const { text } = await visit('/account/keys', { cookie: host });
  assert.match(text, /other:[^]*expires: never[^]*one:[^]*<span class="badge">Expired<\/span>/);
});

test('a user does not see the keys of another user', async () => {
  const { host } = await signIn((await add()).username);
  await create(host, { name: 'of-the-owner', days: '30' });
  const { host: other } = await signIn((await add()).username);
  assert.doesNotMatch((await visit('/account/keys', { cookie: other })).text, /of-the-owner/);
});
