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

interface TestedForm {
  readonly path: string;
  /** Valid fields, and whether each is needed. */
  readonly fields: Readonly<Record<string, string>>;
  readonly needed: readonly string[];
  /** The page it belongs to. */
  readonly page: string;
}

const FORMS: readonly TestedForm[] = [
  {
    path: '/account/name',
    fields: { first_name: 'Ada', last_name: 'Byron' },
    needed: ['first_name', 'last_name'],
    page: '/account',
  },
  {
    path: '/account/password',
    fields: { current_password: PASSWORD, new_password: 'a longer one than that' },
    needed: ['current_password', 'new_password'],
    page: '/account',
  },
  {
    path: '/account/totp',
    fields: { code: '123456', setup: 'A'.repeat(43) },
    needed: ['code'],
    page: '/account/factors',
  },
  {
    path: '/account/keys',
    fields: { name: 'backup', days: '30' },
    needed: ['name', 'days'],
    page: '/account/keys',
  },
  {
    path: '/account/users',
    fields: { username: 'grace', email: 'grace@example.org', role: 'user' },
    needed: ['username', 'email'],
    page: '/account/users',
  },
  {
    path: `${ofUser}/edit`,
    fields: { username: 'a', email: 'a@b.example', first_name: '', last_name: '' },
    needed: ['username', 'email', 'first_name', 'last_name'],
    page: ofUser,
  },
];

const storedRows = () => sql`
  select (select json_agg(u order by id) from identity.users u)::text as users,
    (select count(*) from identity.api_keys) as keys, (select count(*) from identity.totp) as apps`;
const messageOf = (text: string, name: string) =>
  new RegExp(`id="${name}-problem">([A-Z][^<]+\\.)<`).exec(text)?.[1];

for (const { path, fields, needed, page } of FORMS) {
  test(`${path.replace(user.id, '{user_id}')} says at each field what is wrong, and stores nothing`, async () => {
    const before = await storedRows();
    for (const name of needed) {
      const given = { ...fields, [name]: 'x'.repeat(5_000) };
      const long = await visit(path, { fields: given, cookie: host });
      assert.equal(long.status, 400, `${name}: ${long.text}`);
      const { [name]: _, ...others } = fields;
      const missing = await visit(path, { fields: others, cookie: host });
      assert.equal(missing.status, 400, `${name}: ${missing.text}`);
      for (const { text } of [long, missing]) {
        if (name !== 'days') assert.ok(messageOf(text, name), `${name}: ${text}`);
        for (const [other, value] of Object.entries(others)) {
          const isSecret = /password|code/.test(other);
          assert.equal(text.includes(` value="${value}"`) && isSecret, false, other);
          if (!isSecret && value !== '') assert.ok(text.includes(`value="${value}"`), other);
        }
      }
    }
    const twice = `${new URLSearchParams(fields)}&${new URLSearchParams(fields)}`;
    const repeated = await visit(path, { fields: twice, cookie: host });
    assert.equal(repeated.status, 400);
    assert.match(repeated.text, />The form has a field twice\.</);
    const elsewhere = { origin: 'https://app.example.org' };
    assert.equal((await visit(path, { fields, cookie: host, headers: elsewhere })).status, 403);
    const ended = await visit(path, { fields });
    assert.deepEqual([ended.status, ended.headers.get('location')], [303, signInFor(page)]);
    assert.deepEqual(await storedRows(), before);
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
