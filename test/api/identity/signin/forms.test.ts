/**
 * What forms of the pages say, for whom they act, and the keys of users. A form that is shown again
 * after a mistake keeps each choice: every form of every page is tried.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { factorsOf } from '../../../support/factors.ts';
import { type Attributes, type Field, type Form, formsOn } from '../../../support/forms.ts';
import { startProvider } from '../../../support/oidc.ts';
import { cookieFrom, ORIGIN, OWN, signInFor } from '../../../support/portal.ts';
import { isOpen, PASSWORD } from '../../../support/users.ts';

const provider = await startProvider({ after });
const { identity, sql, call, add, addSignedIn, visit, show, post, enterPassword } = provider;
const { addEnrolled, events, freshCode, makeTemporary, startTotp } = factorsOf(provider);
const { host: chief } = await addSignedIn({ super_admin: true });

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
      const { status, text } = await post(path, chief, typed);
      assert.equal(status, 400, `${path} ${name}: ${text}`);
      assert.ok(messageOf(text, name), `${path} ${name}: ${text}`);
      for (const [other, value] of Object.entries(fields).filter(([other]) => other !== name))
        assert.equal(text.includes(`value="${value}"`), !other.includes('password'), other);
    }
  }
});

test('a form that is sent twice at once creates one user, and says why not another', async () => {
  const fields = { username: 'twice', email: 'twice@example.org' };
  const send = () => post('/account/users', chief, fields);
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
    [{ host: 'login.example.org:99999' }, true],
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
  const entries = trail.map(({ entry }) => entry);
  assert.deepEqual(entries, ['key.created session', 'key.revoked session']);
});

test('a key with one right has no other', async () => {
  const { host } = await addSignedIn();
  const fields = { name: 'proxy', days: '30', rights: 'verify' };
  const { text } = await post('/account/keys', host, fields);
  const bearer = /<pre [^>]*>(key:[\w-]{49})<\/pre>/.exec(text)?.[1] ?? '';
  const statusOf = async (path: string) => (await call(bearer, 'GET', path)).status;
  assert.deepEqual(await Promise.all(['/api/auth/verify', '/api/user/'].map(statusOf)), [200, 403]);
  assert.match((await show('/account/keys', host)).text, /may: verify<br>/);
});

test('a key that expired is marked; that of a disabled user, which would work again, is not', async () => {
  const { id, host } = await addSignedIn();
  await createKey(host, 'one', '30');
  await sql`update identity.api_keys set expires_at = now() where user_id = ${id}`;
  await createKey(host, 'other', 'never');
  const EXPIRED = /other:[^]*expires: never[^]*one:[^]*<span class="badge">Expired<\/span>/;
  assert.match((await show('/account/keys', host)).text, EXPIRED);
  await sql`update identity.users set enabled = false where id = ${id}`;
  const { text } = await show(`/account/users/${id}`, chief);
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
  await provider.register('grafana');
  await createKey(ada.host, 'a key', '30');
  const inner = ['', '/factors', '/keys', '/users', `/users/${bob.id}`, '/programs'];
  const paths = [...inner, '/programs/grafana'];
  const pages = await Promise.all(paths.map((path) => show(`/account${path}`, ada.host)));
  pages.push(await post('/account/totp/start', ada.host));
  const forms = new Map(
    pages.flatMap(({ text }) => formsOn(text)).map((form) => [form.action, form]),
  );
  const out = forms.get('/logout') ?? assert.fail();
  forms.delete('/logout');
  assert.ok(forms.size >= 23, [...forms.keys()].join(' '));
  const count = () => sql`select count(*) from identity.audit`;
  const before = await count();
  for (const [action, form] of forms) {
    const refused = await send(form, bob.host);
    assert.equal(refused.status, 409, `${action} ${refused.text}`);
    assert.ok(refused.text.includes(`Now you are signed in as ${bob.username}.`), action);
  }
  assert.deepEqual(await count(), before);
  // Whoever signs out means this browser.
  assert.equal((await send(out, bob.host)).headers.get('location'), '/login');
  assert.equal((await show('/account', bob.host)).status, 303);
});

test('a step of the sign-in is not taken for the account of another tab', async () => {
  const ada = await addEnrolled();
  const bob = await addEnrolled();
  const other = await add();
  await makeTemporary(other.id);
  const first = await enterPassword(ada.username);
  const pages = [first, await enterPassword(other.username)];
  const second = await enterPassword(bob.username);
  const code = await freshCode(ada);
  const forms = pages.flatMap(({ text }) => formsOn(text));
  assert.equal(forms.length, 3);
  for (const form of forms) {
    const typed = { code, credential: '{}', password: OWN, repeated: OWN };
    const refused = await send(form, second.pending, typed);
    assert.equal(refused.status, 409, refused.text);
    // The page that is shown is that of the code, for bob.
    const alerts = refused.text.match(/role="alert"[^>]*>[^<]*</g) ?? [];
    assert.equal(alerts.length, 1, form.action);
    assert.match(alerts[0] ?? '', new RegExp(`has begun to sign in as ${bob.username}\\.`));
  }
  assert.equal(await events(bob.id, 'factor.failed'), 0, 'no wrong code of the other account');
  const own = await send(forms[0] ?? assert.fail(), first.pending, { code });
  assert.notEqual(own.host, '');
});

// --- Forms that are shown again

const isSecret = ({ name, attributes }: Field) =>
  attributes.type === 'password' || ['repeated', 'code', 'token'].includes(name);
const isText = ({ options, attributes }: Field) =>
  options.length === 0 && attributes.type !== 'checkbox';

/** Every page with a form. */
const PAGES: Array<Readonly<{ cookie: string; text: string }>> = [];

before(async () => {
  const guarded = await addEnrolled();
  const temporary = await add();
  await makeTemporary(temporary.id);
  await createKey(chief, 'a key', '30');
  for (const path of ['/login', '/link']) PAGES.push({ cookie: '', ...(await show(path, '')) });
  await provider.register('wiki');
  const paths = ['', '/factors', '/keys', '/program-keys', '/users', `/users/${guarded.id}`];
  for (const path of [...paths, '/programs', '/programs/wiki'])
    PAGES.push({ cookie: chief, ...(await show(`/account${path}`, chief)) });
  PAGES.push({ cookie: chief, ...(await startTotp(chief)) });
  for (const { username } of [guarded, temporary]) {
    const page = await enterPassword(username);
    PAGES.push({ cookie: page.pending, ...page });
  }
});

/** Sends a form with a mistake that each form rejects, whatever its other fields hold. */
const sendWrong = (cookie: string, { action, hidden }: Form, typed: Attributes) =>
  post(action, cookie, { ...hidden, ...typed, repeated: 'not the same as the new password' });

const sameForm = (text: string, form: Form): Form =>
  formsOn(text).find(
    ({ action, fields }) => action === form.action && fields.length === form.fields.length,
  ) ?? assert.fail(`${form.action}: ${text}`);

const forms = () =>
  PAGES.flatMap(({ cookie, text }) => {
    const title = /<title>([^<]*) · /.exec(text)?.[1] ?? '';
    return formsOn(text).map((form) => ({ cookie, form, title }));
  });

test('each choice of each form is kept, whatever the other fields hold', async () => {
  let choices = 0;
  for (const { cookie, form } of forms()) {
    for (const { name, options } of form.fields) {
      const pairs = options.flatMap((option) => options.map((other) => [option, other] as const));
      for (const [option, other] of pairs.filter(([one, two]) => one !== two)) {
        const others = form.fields.filter((field) => field.options.length === 0);
        const typed = Object.fromEntries(others.map((field) => [field.name, other]));
        const { text } = await sendWrong(cookie, form, { ...typed, [name]: option });
        const again = sameForm(text, form).fields;
        const kept = Object.fromEntries(again.map((field) => [field.name, field.value]));
        assert.equal(kept[name], option, `${form.action} ${name}, others ${other}`);
        for (const field of others.filter((one) => isText(one) && !isSecret(one)))
          assert.equal(kept[field.name], other, field.name);
        choices += 1;
      }
    }
  }
  assert.ok(choices > 15, String(choices));
});

const HOSTILE = [
  'a\0b',
  `"><option value="administrator" selected>'`,
  `$& $1 $' $\` $$`,
  '{{username}} {{new.role.administrator}}',
  '</form></title><details open> autofocus method="post" action="/account/users">',
  'ä & &amp; &#60;',
];

test('any text in any field is kept there, changes nothing else, and secrets are not kept', async () => {
  for (const { cookie, form, title } of forms().filter(({ form }) => form.fields.length > 0)) {
    for (const [at, text] of HOSTILE.entries()) {
      const secret = `secret-${at}`;
      const typed = form.fields.map(
        (field, index) => [field.name, (isSecret(field) ? secret : index) + text] as const,
      );
      const page = await sendWrong(cookie, form, Object.fromEntries(typed));
      assert.equal(page.status, 400, form.action);
      // An unknown option or box is none: the default stays.
      const expected = form.fields.map((field, index) => {
        const isKept = isText(field) && !isSecret(field);
        return [field.name, isKept ? typed[index]?.[1] : field.value];
      });
      const again = sameForm(page.text, form).fields.map(({ name, value }) => [name, value]);
      assert.deepEqual(again, expected, form.action);
      assert.ok(!page.text.includes(secret), form.action);
      assert.ok(page.text.includes(`<title>${title}: try again · Gatehouse</title>`), form.action);
    }
  }
});

test('a mistake is said once, and each field has a label and its message, and is left as typed', async () => {
  for (const { cookie, form } of forms()) {
    const { status, text } = await sendWrong(cookie, form, {});
    assert.equal(status, 400, form.action);
    const alerts = text.match(/role="alert"[^>]*>[^<]*</g) ?? [];
    assert.equal(alerts.length, 1, form.action);
    const where = form.fields.some(({ name }) => name === 'repeated') ? 'repeated-' : '';
    const said = new RegExp(
      `id="${where}problem"[^>]*>[^<]*ust be the same as the new password\\.<$`,
    );
    assert.match(alerts[0] ?? '', said);
    for (const field of form.fields.length > 0 ? sameForm(text, form).fields : []) {
      const { name, attributes } = field;
      const { id = '', 'aria-describedby': described = '' } = attributes;
      assert.match(form.html, new RegExp(`<label\\s+for="${id}">`));
      // The rights of a key have one message.
      const isRight = /^(verify|read|revoke|provision)$/.test(name);
      assert.ok(isRight || described.split(' ').includes(`${name}-problem`), form.action + name);
      // Keyboards and spelling checkers may change the name of a person or of a thing.
      if (!isText(field) || /^(name|first_name|last_name)$/.test(name)) continue;
      const { autocapitalize, autocorrect, spellcheck, inputmode } = attributes;
      if (inputmode === 'numeric') continue;
      const given = [autocapitalize, autocorrect, spellcheck];
      assert.deepEqual(given, ['none', 'off', 'false'], `${form.action} ${name}`);
    }
    assert.ok((text.match(/ autofocus\b/g) ?? []).length <= 1, form.action);
    const ids = [...text.matchAll(/ id="([^"]+)"/g)].map(([, id]) => id);
    assert.equal(new Set(ids).size, ids.length, `${form.action}: ${ids.join(' ')}`);
  }
});

/** What password managers fill in and keep (HTML, 4.10.18.7.1). */
const AUTOFILL = `
  /login username: username webauthn
  /login password: current-password
  /login/code code: one-time-code
  /login/password username: username
  /login/password password: new-password
  /login/password repeated: new-password
  /account/name first_name: given-name
  /account/name last_name: family-name
  /account/password username: username
  /account/password current_password: current-password
  /account/password new_password: new-password
  /account/password repeated: new-password
  /account/totp code: one-time-code
  /account/users password: new-password
  /account/users/{id}/password : username
  /account/users/{id}/password password: new-password`;

test('each field says to password managers what it holds', () => {
  const found = PAGES.flatMap(({ text }) => formsOn(text)).flatMap(({ action, controls }) =>
    controls.map(({ name, attributes: { autocomplete = 'off' } }) => {
      return `${action.replace(/[0-9a-f-]{36}/, '{id}')} ${name}: ${autocomplete}`;
    }),
  );
  const kept = new Set(found.filter((line) => !line.endsWith(': off')));
  assert.deepEqual([...kept].sort(), AUTOFILL.trim().split(/\n */).sort());
});

test('the box that removes the factors stays as it was', async () => {
  const user = await addEnrolled({ enabled: true });
  await post(`/account/users/${user.id}/disable`, chief);
  for (const [fields, kept] of [
    [{ factors: 'remove' }, 'remove'],
    [{}, ''],
  ] as const) {
    const page = await post(`/account/users/${user.id}/link`, chief, fields);
    assert.equal(page.status, 409, page.text);
    assert.match(page.text, /role="alert"[^>]*>The user is disabled\./);
    const form = formsOn(page.text).find(({ action }) => action.endsWith('/link'));
    assert.equal(form?.fields[0]?.value, kept);
  }
});

test('the audit trail shows the filters of the address', async () => {
  const query = 'user=login.failed&event=user.created&from=2026-01-01&to=2026-02-01&limit=20';
  const [form] = formsOn((await show(`/account/audit?${query}`, chief)).text, 'get');
  const values = form?.fields.map(({ name, value }) => `${name}=${value}`);
  assert.equal(values?.join('&'), query);
});
