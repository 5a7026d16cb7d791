/**
 * A form that is shown again after a mistake keeps each choice. Every form of every page is tried.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { factorsOf, PENDING } from '../../../support/factors.ts';
import { type Attributes, type Field, type Form, formsOn } from '../../../support/forms.ts';
import { cookieFrom, type Page, startPortal } from '../../../support/portal.ts';
import { PASSWORD } from '../../../support/users.ts';

const portal = await startPortal({ after });
const { sql, admin, add, call, visit, signIn } = portal;
const { enrol: addApp } = factorsOf(portal);

const isSecret = ({ name, attributes }: Field) =>
  attributes.type === 'password' || ['repeated', 'code', 'token'].includes(name);

/** Every page with a form, by its name. */
const PAGES: Array<readonly [name: string, cookie: string, text: string]> = [];

before(async () => {
  const open = async (path: string, cookie = '') => {
    PAGES.push([path, cookie, (await visit(path, cookie === '' ? {} : { cookie })).text]);
  };
  const guarded = await add();
  await addApp(guarded.username);
  const { host } = await signIn((await add({ super_admin: true })).username);
  await open('/login');
  await open('/link');
  for (const path of ['', '/factors', '/keys', '/users', `/users/${guarded.id}`]) {
    await open(`/account${path}`, host);
  }
  const keys = { name: 'a key', days: '30' };
  await visit('/account/keys', { fields: keys, cookie: host });
  await open('/account/keys', host);
  const enrol = await visit('/account/totp/start', { fields: { return_to: '' }, cookie: host });
  PAGES.push(['/account/totp/start', host, enrol.text]);
  const begin = async (username: string) => {
    const fields = { username, password: PASSWORD, return_to: '' };
    const page = await visit('/login', { fields });
    PAGES.push(['/login', cookieFrom(page, PENDING), page.text]);
  };
  await begin(guarded.username);
  const invited = await add();
  await sql`
    update identity.users set password_generated = true, password_set_at = now()
    where id = ${invited.id}`;
  await begin(invited.username);
});

/** Sends a form with a mistake that each form rejects, whatever its other fields hold. */
const sendWrong = (cookie: string, { action, hidden }: Form, typed: Attributes): Promise<Page> =>
  visit(action, {
    fields: { ...hidden, ...typed, repeated: 'not the same as the new password' },
    ...(cookie === '' ? {} : { cookie }),
  });

const sameForm = (text: string, form: Form): Form => {
  const found = formsOn(text).find(
    ({ action, fields }) => action === form.action && fields.length === form.fields.length,
  );
  assert.ok(found, `${form.action}: ${text}`);
  return found;
};

/** Calls back for each form that has fields. */
async function forEachForm(
  work: (cookie: string, form: Form, title: string) => Promise<void>,
): Promise<number> {
  let count = 0;
  for (const [, cookie, text] of PAGES) {
    const title = /<title>([^<]*) · /.exec(text)?.[1] ?? '';
    for (const form of formsOn(text).filter(({ fields }) => fields.length > 0)) {
      count += 1;
      await work(cookie, form, title);
    }
  }
  return count;
}

test('each choice of each form is kept, whatever the other fields hold', async () => {
  let choices = 0;
  await forEachForm(async (cookie, form) => {
    for (const { name, options } of form.fields) {
      for (const option of options) {
        for (const other of options.filter((one) => one !== option)) {
          const others = form.fields.filter((field) => field.options.length === 0);
          const typed = Object.fromEntries(others.map((field) => [field.name, other]));
          const { text } = await sendWrong(cookie, form, { ...typed, [name]: option });
          const again = sameForm(text, form).fields;
          const kept = Object.fromEntries(again.map((field) => [field.name, field.value]));
          assert.equal(kept[name], option, `${form.action} ${name}, others ${other}`);
          const texts = others.filter(
            (field) => !isSecret(field) && field.attributes.type !== 'checkbox',
          );
          for (const field of texts) assert.equal(kept[field.name], other, field.name);
          choices += 1;
        }
      }
    }
  });
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
  const forms = await forEachForm(async (cookie, form, title) => {
    const names = form.fields.map(({ name }) => name);
    for (const [at, text] of HOSTILE.entries()) {
      const secret = `secret-${at}`;
      const typed = Object.fromEntries(
        form.fields.map((field, index) => [
          field.name,
          isSecret(field) ? secret + text : text + String(index),
        ]),
      );
      const page = await sendWrong(cookie, form, typed);
      assert.equal(page.status, 400, form.action);
      const again = sameForm(page.text, form);
      assert.deepEqual(
        again.fields.map(({ name }) => name),
        names,
      );
      for (const field of again.fields) {
        const first = form.fields.find(({ name }) => name === field.name);
        // An unknown option or box is none: the default stays.
        const isText = field.options.length === 0 && field.attributes.type !== 'checkbox';
        const isKept = isText && !isSecret(field);
        assert.equal(field.value, isKept ? typed[field.name] : first?.value, field.name);
      }
      assert.ok(!page.text.includes(secret), form.action);
      assert.ok(page.text.includes(`<title>${title}: try again · Gatehouse</title>`), form.action);
    }
  });
  assert.ok(forms >= 12, String(forms));
});

test('each field has a label, its message, and at most one on the page the focus', async () => {
  await forEachForm(async (cookie, form) => {
    const page = await sendWrong(cookie, form, {});
    for (const { name, attributes } of sameForm(page.text, form).fields) {
      const { id = '', 'aria-describedby': described = '' } = attributes;
      assert.ok(form.html.includes(`<label for="${id}">`) || name === 'factors', id);
      assert.ok(described.split(' ').includes(`${name}-problem`), `${form.action} ${name}`);
      for (const other of described.split(' ').slice(1)) {
        assert.ok(page.text.includes(`id="${other}"`), other);
      }
    }
    assert.ok((page.text.match(/ autofocus\b/g) ?? []).length <= 1, form.action);
    const ids = [...page.text.matchAll(/ id="([^"]+)"/g)].map(([, id]) => id);
    assert.equal(new Set(ids).size, ids.length, `${form.action}: ${ids.join(' ')}`);
  });
});

test('keyboards change nothing in a name or secret, and no checker of spelling gets it', async () => {
  await forEachForm(async (_, form) => {
    for (const { name, attributes } of form.fields) {
      const isFree = /^(name|first_name|last_name)$/.test(name);
      if (isFree || form.html.includes(`<select id="${attributes.id}"`)) continue;
      if (attributes.type === 'checkbox') continue;
      const { autocapitalize, autocorrect, spellcheck } = attributes;
      const given = [autocapitalize, autocorrect, spellcheck];
      assert.deepEqual(given, ['none', 'off', 'false'], `${form.action} ${name}`);
    }
  });
});

/** What password managers fill in and keep (HTML, 4.10.18.7.1). */
const AUTOFILL: Readonly<Record<string, string>> = {
  '/login username': 'username webauthn',
  '/login password': 'current-password',
  '/login/code code': 'one-time-code',
  '/login/password username': 'username',
  '/login/password password': 'new-password',
  '/login/password repeated': 'new-password',
  '/account/name first_name': 'given-name',
  '/account/name last_name': 'family-name',
  '/account/password username': 'username',
  '/account/password current_password': 'current-password',
  '/account/password new_password': 'new-password',
  '/account/password repeated': 'new-password',
  '/account/totp code': 'one-time-code',
  '/account/users password': 'new-password',
  '/account/users/{id}/password ': 'username',
  '/account/users/{id}/password password': 'new-password',
};

test('each field says to password managers what it holds', () => {
  const found = PAGES.flatMap(([, , text]) =>
    formsOn(text).flatMap(({ action, controls }) =>
      controls.map(({ name, attributes: { autocomplete = 'off' } }) => {
        return [`${action.replace(/[0-9a-f-]{36}/, '{id}')} ${name}`, autocomplete] as const;
      }),
    ),
  );
  const kept = Object.fromEntries(found.filter(([, value]) => value !== 'off'));
  assert.deepEqual(kept, AUTOFILL);
});

test('every form that fails says so once, where it was sent or above everything', async () => {
  let forms = 0;
  for (const [, cookie, text] of PAGES) {
    for (const form of formsOn(text)) {
      forms += 1;
      const page = await sendWrong(cookie, form, {});
      assert.equal(page.status, 400, form.action);
      const alerts = page.text.match(/role="alert"/g) ?? [];
      assert.equal(alerts.length, 1, `${form.action}: ${page.text}`);
      const message = /role="alert"[^>]*>([^<]*)</.exec(page.text)?.[1];
      assert.match(message ?? '', /ust be the same as the new password\.$/);
    }
  }
  assert.ok(forms > 30, String(forms));
});

test('a user does not become an administrator by a corrected mistake', async () => {
  const { host } = await signIn((await add({ super_admin: true })).username);
  const [, , text] = PAGES.find(([path]) => path === '/account/users') ?? ['', '', ''];
  const blank = formsOn(text).find(({ action }) => action === '/account/users');
  assert.ok(blank);
  const words = ['administrator', 'password'];
  for (const [at, word] of words.entries()) {
    for (const name of ['username', 'first_name', 'last_name', 'groups']) {
      const username = name === 'username' ? word : `of-${word}-${name}`;
      const fields = {
        username,
        email: 'mail of the new one',
        first_name: '',
        last_name: '',
        groups: '',
        role: 'user',
        first: 'link',
        password: '',
        [name]: word,
      };
      const wrong = await visit('/account/users', { fields, cookie: host });
      assert.equal(wrong.status, 400);
      const shown = sameForm(wrong.text, blank).fields;
      const corrected = {
        ...Object.fromEntries(shown.map((field) => [field.name, field.value])),
        email: `new-${at}-${name}@example.org`,
      };
      const made = await visit('/account/users', { fields: corrected, cookie: host });
      assert.match(made.text, /The user is invited/);
      const rows = await sql`select super_admin from identity.users where username = ${username}`;
      assert.deepEqual([...rows], [{ super_admin: false }]);
    }
  }
});

test('the box that removes the factors stays as it was', async () => {
  const user = await add();
  await addApp(user.username);
  await call(admin.token, 'PATCH', `/api/user/${user.id}`, { enabled: false });
  const { host } = await signIn((await add({ super_admin: true })).username);
  const send = (fields: Record<string, string>) =>
    visit(`/account/users/${user.id}/link`, { fields, cookie: host });
  for (const fields of [{ factors: 'remove' }, {}]) {
    const page = await send(fields);
    assert.equal(page.status, 409, page.text);
    assert.match(page.text, /role="alert"[^>]*>The user is disabled\./);
    const [field] = formsOn(page.text).find(({ action }) => action.endsWith('/link'))?.fields ?? [];
    assert.equal(field?.value ?? '', fields.factors ?? '');
  }
});

test('the audit trail shows the filters of the address', async () => {
  const { host } = await signIn((await add({ super_admin: true })).username);
  const query = 'user=login.failed&event=user.created&from=2026-01-01&to=2026-02-01&limit=20';
  const page = await visit(`/account/audit?${query}`, { cookie: host });
  const [form] = formsOn(page.text, 'get');
  const values = form?.fields.map(({ name, value }) => `${name}=${value}`);
  assert.equal(values?.join('&'), query);
});

test('a mistake in a step of the sign-in shows the step again, and does not count', async () => {
  const user = await add();
  await sql`
    update identity.users set password_generated = true, password_set_at = now()
    where id = ${user.id}`;
  const begun = await visit('/login', {
    fields: { username: user.username, password: PASSWORD, return_to: '' },
  });
  const cookie = cookieFrom(begun, PENDING);
  const fields = { password: 'a new long passphrase', repeated: 'another one', return_to: '' };
  for (let attempt = 0; attempt < 6; attempt += 1) {
    const page = await visit('/login/password', { fields, cookie });
    assert.equal(page.status, 400);
    assert.match(page.text, /<h1>Choose a password<\/h1>/);
    assert.match(page.text, /id="repeated-problem">Must be the same as the new password\.</);
  }
  const right = { ...fields, repeated: fields.password };
  assert.match(
    (await visit('/login/password', { fields: right, cookie })).text,
    /You are signed in/,
  );
});
