/** What each form of the pages does with fields, senders and sessions that it must not accept. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { cookieFrom, ORIGIN, signInFor, startPortal } from '../../../support/portal.ts';
import { PASSWORD } from '../../../support/users.ts';

const { sql, add, visit, signIn } = await startPortal({ after });
const user = await add();
const { host } = await signIn((await add({ super_admin: true })).username);
const ofUser = `/account/users/${user.id}`;

/** Each form, with what it needs. */
const FORMS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  '/account/name': { first_name: 'Ada', last_name: 'Byron' },
  '/account/password': { current_password: PASSWORD, new_password: 'a longer one than that' },
  '/account/totp': { code: '123456' },
  '/account/keys': { name: 'backup', days: '30' },
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
