/** Two tabs of one browser, in which two people sign in: a form acts for the account of its page. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { totpCode } from '../../../../src/identity/factors/codes.ts';
import { factorsOf, PENDING } from '../../../support/factors.ts';
import { type Form, formsOn } from '../../../support/forms.ts';
import { begin, startProvider } from '../../../support/oidc.ts';
import { cookieFrom } from '../../../support/portal.ts';
import { PASSWORD } from '../../../support/users.ts';

const provider = await startProvider({ after });
const { sql, add, visit, signIn } = provider;
const { enrol, events, stepNow, forgetSteps } = factorsOf(provider);

/** As the page made it, and with the cookies of now. */
const send = ({ action, hidden }: Form, cookie: string, typed: Record<string, string> = {}) =>
  visit(action, { fields: { ...hidden, ...typed }, cookie });

test('each form of each page is refused if another account is signed in now', async () => {
  const ada = await add({ super_admin: true });
  const bob = await add({ super_admin: true });
  const { host: cookie } = await enrol(ada.username);
  const grafana = await provider.register('grafana');
  await visit('/account/keys', { fields: { name: 'a key', days: '30' }, cookie });
  const paths = ['', '/factors', '/keys', '/users', `/users/${bob.id}`, '/programs'];
  const pages = await Promise.all([
    ...[...paths, '/programs/grafana'].map((path) => visit(`/account${path}`, { cookie })),
    visit(begin(grafana, { prompt: 'consent' }).path, { cookie }),
    visit('/account/totp/start', { fields: { return_to: '' }, cookie }),
  ]);
  const forms = pages.flatMap(({ text }) => formsOn(text));
  const isSignOut = ({ action }: Form) => action === '/logout';
  const isConsent = ({ action }: Form) => action === '/oidc/consent';
  const { host } = await signIn(bob.username);
  const count = () => sql`
    select (select count(*) from identity.audit) as events,
      (select count(*) from identity.oidc_consents) as consents`;
  const before = await count();
  for (const form of forms.filter((one) => !isSignOut(one) && !isConsent(one))) {
    const refused = await send(form, host);
    assert.equal(refused.status, 409, `${form.action} ${refused.text}`);
    assert.ok(refused.text.includes(`Now you are signed in as ${bob.username}.`), form.action);
  }
  // Whoever is signed in now is asked for the consent.
  const consent = forms.find(isConsent);
  assert.ok(consent);
  const asked = await send(consent, host, { answer: 'allow' });
  assert.ok(formsOn(asked.text).some(isConsent), asked.text);
  assert.deepEqual(await count(), before);
  const actions = new Set(forms.map(({ action }) => action));
  assert.ok(actions.size >= 25, [...actions].join(' '));
  // Whoever signs out means this browser.
  const out = forms.find(isSignOut);
  assert.ok(out);
  assert.equal((await send(out, host)).headers.get('location'), '/login');
  assert.equal((await visit('/account', { cookie: host })).status, 303);
});

test('a step of the sign-in is not taken for the account of another tab', async () => {
  const ada = await add();
  const bob = await add();
  const { secret } = await enrol(ada.username);
  await enrol(bob.username);
  const begin = async (username: string) => {
    const page = await visit('/login', { fields: { username, password: PASSWORD, return_to: '' } });
    return { forms: formsOn(page.text), cookie: cookieFrom(page, PENDING) };
  };
  const first = await begin(ada.username);
  const second = await begin(bob.username);
  await forgetSteps(ada.id);
  const code = totpCode(secret, await stepNow());
  for (const form of first.forms) {
    const refused = await send(form, second.cookie, { code, credential: '{}' });
    assert.equal(refused.status, 409, refused.text);
    assert.ok(refused.text.includes(`has begun to sign in as ${bob.username}.`), form.action);
  }
  assert.equal(await events(bob.id, 'factor.failed'), 0, 'no wrong code of the other account');
  const [own] = first.forms;
  assert.ok(own);
  assert.match((await send(own, first.cookie, { code })).text, /You are signed in/);
});

test('a password that is chosen for one account is not set for another', async () => {
  const ada = await add();
  const bob = await add();
  await sql`update identity.users set password_generated = true, password_set_at = now()`;
  const begin = (username: string) =>
    visit('/login', { fields: { username, password: PASSWORD, return_to: '' } });
  const [form] = formsOn((await begin(ada.username)).text);
  assert.ok(form);
  const cookie = cookieFrom(await begin(bob.username), PENDING);
  const chosen = { password: 'a new long passphrase', repeated: 'a new long passphrase' };
  assert.equal((await send(form, cookie, chosen)).status, 409);
  assert.equal(await events(bob.id, 'password.changed'), 0);
  assert.match((await begin(bob.username)).text, /Choose a password/);
});

test('a page that was made before the account was named there still works', async () => {
  const { host } = await signIn((await add()).username);
  const fields = { first_name: 'Grace', last_name: '' };
  assert.equal((await visit('/account/name', { fields, cookie: host })).status, 303);
});
