/** What forms of the pages say, for whom they act, and the keys of users. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { factorsOf } from '../../../support/factors.ts';
import { type Form, formsOn } from '../../../support/forms.ts';
import { begin, startProvider } from '../../../support/oidc.ts';
import { cookieFrom, ORIGIN, OWN, signInFor } from '../../../support/portal.ts';
import { isOpen, PASSWORD } from '../../../support/users.ts';

const provider = await startProvider({ after });
const { identity, sql, add, addSignedIn, visit, show, post, enterPassword } = provider;
const { addEnrolled, events, freshCode, makeTemporary } = factorsOf(provider);
const administrator = await addSignedIn({ super_admin: true });

const messageOf = (text: string, name: string) =>
  new RegExp(`id="${name}-problem">([A-Z][^<]+\\.)<`).exec(text)?.[1];

test('a form says at each field what is wrong, and keeps the others', async () => {
  const { id } = await add();
  for (const [path, fields] of Object.entries({
    '/account/name': { first_name: 'Ada', last_name: 'Byron' },
    '/account/password': { current_password: PASSWORD, new_password: OWN },
    [`/account/users/${id}/edit`]: { username: 'grace', email: 'grace@example.org' },
  })) {
    for (const name of Object.keys(fields)) {
      const typed = { ...fields, [name]: 'x'.repeat(5_000) };
      const { status, text } = await post(path, administrator.host, typed);
      assert.equal(status, 400, `${path} ${name}: ${text}`);
      assert.ok(messageOf(text, name), `${path} ${name}: ${text}`);
      for (const [other, value] of Object.entries(fields).filter(([other]) => other !== name))
        assert.equal(text.includes(`value="${value}"`), !other.includes('password'), other);
    }
  }
});

test('a form that is sent twice at once creates one user, and says why not another', async () => {
  const fields = { username: 'twice', email: 'twice@example.org' };
  const send = () => post('/account/users', administrator.host, fields);
  const pages = await Promise.all([send(), send()]);
  assert.deepEqual(pages.map(({ status }) => status).sort(), [200, 409]);
  const refused = pages.find(({ status }) => status === 409);
  assert.match(messageOf(refused?.text ?? '', 'username') ?? '', /taken/);
  assert.equal((await sql`select from identity.users where username = 'twice'`).length, 1);
});

test('the sign-in says where it leads, and why a signed-in person sees it', async () => {
  const to = async (address: string, more = '') => {
    const headers = { host: new URL(ORIGIN).host };
    const path = `/login?return_to=${encodeURIComponent(address)}${more}`;
    return (await visit(path, { headers })).text;
  };
  assert.match(await to('https://app.example.org/a'), /Sign in to continue to app\.example\.org\./);
  assert.doesNotMatch(await to('https://evil.example/a'), /Sign in to continue/);
  const again = await to(`${ORIGIN}/account/keys`, '&again=on');
  assert.match(again, /ended, or this page of login\.example\.org needs a recent/);
});

test('under another name, the sign-in page names its address, but not behind a proxy', async () => {
  for (const [headers, isNamed] of [
    [{ host: '127.0.0.1:3000' }, true],
    [{ host: 'login.example.org.' }, true],
    [{ host: 'LOGIN.example.org' }, false],
    [{ host: 'login.example.org:443' }, false],
    // Many proxies replace `Host` by the address of the service.
    [{ host: '127.0.0.1:3000', 'x-forwarded-for': '192.0.2.1' }, false],
  ] as const) {
    const { text } = await visit('/login', { headers });
    assert.equal(text.includes(`Sign in at <a href="${ORIGIN}/login">`), isNamed, headers.host);
  }
  const headers = { host: '127.0.0.1:3000', origin: 'http://127.0.0.1:3000' };
  const refused = await visit('/login', { fields: { username: 'a', password: 'b' }, headers });
  assert.equal(refused.status, 403);
  assert.ok(refused.text.includes(`Open ${ORIGIN}/login and try again.`));
});

test('the filters of a list outlast a sign-in', async () => {
  const path = '/account/audit?event=user.created&from=2026-01-01';
  assert.equal((await visit(path)).headers.get('location'), signInFor(path));
});

// --- Keys of users

const createKey = (cookie: string, name: string, days: string) =>
  post('/account/keys', cookie, { name, days });
const idsOn = (text: string) =>
  [...text.matchAll(/name="key_id" value="([^"]+)"/g)].map(([, id = '']) => id);

test('a key is shown whole once, to its user, acts for the user, and is revoked', async () => {
  const { id, username, host } = await addSignedIn();
  const made = await createKey(host, 'backup <b>', '90');
  const key = /<pre [^>]*>(key:[\w-]{49})<\/pre>/.exec(made.text)?.[1] ?? '';
  assert.ok(await isOpen(identity, key));
  const { text } = await show('/account/keys', host);
  const form = `backup &#60;b&#62;: <code>${key.slice(0, 12)}…</code>[^]*may: all<br>`;
  assert.match(text, new RegExp(`${form}last used: [^]*<br>created <time[^]+ by ${username}<`));
  assert.ok(!text.includes(key.slice(0, 16)));
  const other = await addSignedIn();
  assert.doesNotMatch((await show('/account/keys', other.host)).text, /backup/);
  const [row] = await sql`select round(extract(epoch from expires_at - now()) / 86400)::int as days
    from identity.api_keys where user_id = ${id}`;
  assert.equal(row?.days, 90);
  const revoked = await post('/account/keys/revoke', host, { key_id: String(idsOn(text)[0]) });
  assert.equal(revoked.headers.get('location'), '/account/keys');
  const notice = cookieFrom(revoked, '__Host-gatehouse-notice');
  const after = await show('/account/keys', `${host}; ${notice}`);
  assert.match(after.text, /role="status">The key is revoked\.</);
  assert.match(after.cookies.join(), /^__Host-gatehouse-notice=;.*Max-Age=0$/, 'said once');
  assert.match(after.text, /<span class="badge">Revoked<\/span>/);
  assert.deepEqual(idsOn(after.text), []);
  assert.equal(await isOpen(identity, key), false);
  const trail = await sql`select event || ' ' || via as entry from identity.audit
    where user_id = ${id} and event like 'key.%' order by created_at`;
  assert.deepEqual(
    trail.map(({ entry }) => entry),
    ['key.created session', 'key.revoked session'],
  );
});

test('a key that expired is marked; that of a disabled user, which would work again, is not', async () => {
  const { id, host } = await addSignedIn();
  await createKey(host, 'one', '30');
  await sql`update identity.api_keys set expires_at = now() where user_id = ${id}`;
  await createKey(host, 'other', 'never');
  const EXPIRED = /other:[^]*expires: never[^]*one:[^]*<span class="badge">Expired<\/span>/;
  assert.match((await show('/account/keys', host)).text, EXPIRED);
  await sql`update identity.users set enabled = false where id = ${id}`;
  const { text } = await show(`/account/users/${id}`, administrator.host);
  assert.match(text, EXPIRED);
  assert.equal(idsOn(text).length, 1);
});

// --- Two tabs of one browser, in which two people sign in

/** As the page made it, and with the cookies of now. */
const send = ({ action, hidden }: Form, cookie: string, typed: Record<string, string> = {}) =>
  post(action, cookie, { ...hidden, ...typed });

test('each form of each page is refused if another account is signed in now', async () => {
  const ada = await addEnrolled({ super_admin: true });
  const bob = await addSignedIn({ super_admin: true });
  const grafana = await provider.register('grafana');
  await createKey(ada.host, 'a key', '30');
  const inner = ['', '/factors', '/keys', '/users', `/users/${bob.id}`, '/programs'];
  const paths = [...inner, '/programs/grafana'].map((path) => `/account${path}`);
  const consents = begin(grafana, { prompt: 'consent' }).path;
  const pages = await Promise.all([...paths, consents].map((path) => show(path, ada.host)));
  pages.push(await post('/account/totp/start', ada.host));
  const forms = new Map(
    pages.flatMap(({ text }) => formsOn(text)).map((form) => [form.action, form]),
  );
  const take = (action: string) => {
    const form = forms.get(action) ?? assert.fail(action);
    forms.delete(action);
    return form;
  };
  const out = take('/logout');
  const consent = take('/oidc/consent');
  assert.ok(forms.size >= 23, [...forms.keys()].join(' '));
  const count = () => sql`
    select (select count(*) from identity.audit) as events,
      (select count(*) from identity.oidc_consents) as consents`;
  const before = await count();
  for (const [action, form] of forms) {
    const refused = await send(form, bob.host);
    assert.equal(refused.status, 409, `${action} ${refused.text}`);
    assert.ok(refused.text.includes(`Now you are signed in as ${bob.username}.`), action);
  }
  // Whoever is signed in now is asked for the consent.
  const asked = await send(consent, bob.host, { answer: 'allow' });
  assert.ok(asked.text.includes('action="/oidc/consent"'), asked.text);
  assert.deepEqual(await count(), before);
  // Whoever signs out means this browser.
  assert.equal((await send(out, bob.host)).headers.get('location'), '/login');
  assert.equal((await show('/account', bob.host)).status, 303);
});

test('a step of the sign-in is not taken for the account of another tab', async () => {
  const ada = await addEnrolled();
  const bob = await addEnrolled();
  const first = await enterPassword(ada.username);
  const second = await enterPassword(bob.username);
  const code = await freshCode(ada);
  const forms = formsOn(first.text);
  for (const form of forms) {
    const refused = await send(form, second.pending, { code, credential: '{}' });
    assert.equal(refused.status, 409, refused.text);
    assert.ok(refused.text.includes(`has begun to sign in as ${bob.username}.`), form.action);
  }
  assert.equal(await events(bob.id, 'factor.failed'), 0, 'no wrong code of the other account');
  const own = await send(forms[0] ?? assert.fail(), first.pending, { code });
  assert.notEqual(own.host, '');
});

test('a password that is chosen for one account is not set for another', async () => {
  const ada = await add();
  const bob = await add();
  for (const { id } of [ada, bob]) await makeTemporary(id);
  const [form = assert.fail()] = formsOn((await enterPassword(ada.username)).text);
  const cookie = (await enterPassword(bob.username)).pending;
  assert.equal((await send(form, cookie, { password: OWN, repeated: OWN })).status, 409);
  assert.equal(await events(bob.id, 'password.changed'), 0);
  assert.match((await enterPassword(bob.username)).text, /Choose a password/);
});
