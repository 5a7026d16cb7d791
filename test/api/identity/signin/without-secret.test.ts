/** The sign-in pages without the settings that they can do without. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createRoutes } from '../../../../src/identity/routes.ts';
import { cookieFrom, startPortal } from '../../../support/portal.ts';
import { factorsOf } from '../../../support/factors.ts';
import { SITE } from '../../../support/service-context.ts';
import { ADMIN_PASSWORD } from '../../../support/gatehouse.ts';

const portal = await startPortal(
  { after },
  { IDENTITY_SECRET: '', COOKIE_DOMAIN: '', RETURN_ORIGINS: '' },
);
const { add, visit, signIn } = portal;
const { register } = factorsOf(portal);

test('without IDENTITY_SECRET, the page offers no app, and its forms say what is missing', async () => {
  const { host } = await signIn((await add()).username);
  const page = await visit('/account/factors', { cookie: host });
  assert.match(page.text, /Not available: the operator has not set IDENTITY_SECRET/);
  assert.doesNotMatch(page.text, /\/account\/totp/);
  for (const path of ['/account/totp/start', '/account/totp']) {
    const fields = { code: '000000', setup: 'A'.repeat(43) };
    const refused = await visit(path, { fields, cookie: host });
    assert.equal(refused.status, 409, path);
    assert.match(refused.text, /the operator has not set IDENTITY_SECRET/);
  }
  assert.equal((await register(host)).status, 200, 'a passkey needs no secret');
});

/** Of all forms, so that each has what it needs. */
const FIELDS = {
  username: 'admin',
  password: 'a password of my own',
  current_password: ADMIN_PASSWORD,
  new_password: ADMIN_PASSWORD,
  code: '000000',
  setup: 'A'.repeat(43),
  credential: '{}',
  token: 'A'.repeat(43),
  name: 'one',
  days: '30',
  email: 'one@example.org',
  first_name: '',
  last_name: '',
  role: 'user',
  first: 'link',
};

test('no route of the pages fails for want of a setting', async () => {
  const { id } = await add();
  const credentials = { username: 'admin', password: ADMIN_PASSWORD, return_to: '' };
  for (const { method, pattern } of await createRoutes(SITE)) {
    if (pattern.startsWith('/api/')) continue;
    const signedIn = await visit('/login', { fields: credentials });
    const cookie = cookieFrom(signedIn, '__Host-gatehouse');
    assert.notEqual(cookie, '', signedIn.text);
    const path = pattern.replace('{user_id}', id).replace('{file}', 'style.css');
    const fields = method === 'POST' ? { fields: FIELDS } : {};
    const { status, text } = await visit(path, { cookie, ...fields });
    assert.ok(status < 500, `${method} ${path}: ${status} ${text}`);
  }
});
