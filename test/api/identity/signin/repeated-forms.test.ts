/**
 * A form that is shown again after a mistake keeps each choice. Every form of every page is tried.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startSignIn } from '../../../support/factors.ts';
import { type Attributes, type Field, type Form, formsOn } from '../../../support/forms.ts';
import { OWN } from '../../../support/portal.ts';

const portal = await startSignIn({ after });
const { add, addSignedIn, show, post, enterPassword } = portal;
const { addEnrolled, makeTemporary, startTotp } = portal;

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
  const { host } = await addSignedIn({ super_admin: true });
  await post('/account/keys', host, { name: 'a key', days: '30' });
  for (const path of ['/login', '/link']) PAGES.push({ cookie: '', ...(await show(path, '')) });
  for (const path of ['', '/factors', '/keys', '/users', `/users/${guarded.id}`])
    PAGES.push({ cookie: host, ...(await show(`/account${path}`, host)) });
  PAGES.push({ cookie: host, ...(await startTotp(host)) });
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

/** Each form that has fields. */
const forms = () =>
  PAGES.flatMap(({ cookie, text }) => {
    const title = /<title>([^<]*) · /.exec(text)?.[1] ?? '';
    const shown = formsOn(text).filter(({ fields }) => fields.length > 0);
    return shown.map((form) => ({ cookie, form, title }));
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
  for (const { cookie, form, title } of forms()) {
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
      const again = sameForm(page.text, form).fields;
      assert.deepEqual(
        again.map(({ name, value }) => [name, value]),
        expected,
        form.action,
      );
      assert.ok(!page.text.includes(secret), form.action);
      assert.ok(page.text.includes(`<title>${title}: try again · Gatehouse</title>`), form.action);
    }
  }
});

test('each field has a label and its message, and is left alone by keyboards and spelling checkers', async () => {
  for (const { cookie, form } of forms()) {
    const { text } = await sendWrong(cookie, form, {});
    for (const field of sameForm(text, form).fields) {
      const { name, attributes, options } = field;
      const { id = '', 'aria-describedby': described = '' } = attributes;
      assert.ok(form.html.includes(`<label for="${id}">`) || name === 'factors', id);
      assert.ok(described.split(' ').includes(`${name}-problem`), `${form.action} ${name}`);
      if (!isText(field) || options.length > 0 || /^(name|first_name|last_name)$/.test(name))
        continue;
      const { autocapitalize, autocorrect, spellcheck } = attributes;
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

test('every form that fails says so once, where it was sent or above everything', async () => {
  for (const { cookie, text } of PAGES) {
    for (const form of formsOn(text)) {
      const page = await sendWrong(cookie, form, {});
      assert.equal(page.status, 400, form.action);
      const [alert = '', ...more] = page.text.match(/role="alert"[^>]*>[^<]*</g) ?? [];
      assert.match(alert, /ust be the same as the new password\.<$/);
      assert.deepEqual(more, [], form.action);
    }
  }
});

test('the box that removes the factors stays as it was', async () => {
  const user = await addEnrolled({ enabled: true });
  const { host } = await addSignedIn({ super_admin: true });
  await post(`/account/users/${user.id}/disable`, host);
  for (const [fields, kept] of [
    [{ factors: 'remove' }, 'remove'],
    [{}, ''],
  ] as const) {
    const page = await post(`/account/users/${user.id}/link`, host, fields);
    assert.equal(page.status, 409, page.text);
    assert.match(page.text, /role="alert"[^>]*>The user is disabled\./);
    const form = formsOn(page.text).find(({ action }) => action.endsWith('/link'));
    assert.equal(form?.fields[0]?.value, kept);
  }
});

test('the audit trail shows the filters of the address', async () => {
  const { host } = await addSignedIn({ super_admin: true });
  const query = 'user=login.failed&event=user.created&from=2026-01-01&to=2026-02-01&limit=20';
  const [form] = formsOn((await show(`/account/audit?${query}`, host)).text, 'get');
  const values = form?.fields.map(({ name, value }) => `${name}=${value}`);
  assert.equal(values?.join('&'), query);
});

test('a mistake in a step of the sign-in shows the step again, and does not count', async () => {
  const { id, username } = await add();
  await makeTemporary(id);
  const cookie = (await enterPassword(username)).pending;
  const choose = (repeated: string) => post('/login/password', cookie, { password: OWN, repeated });
  for (let attempt = 0; attempt < 6; attempt += 1) {
    const { status, text } = await choose('another one');
    assert.equal(status, 400);
    assert.match(text, /<h1>Choose a password<[^]*id="repeated-problem">Must be the same/);
  }
  assert.match((await choose(OWN)).text, /You are signed in/);
});
