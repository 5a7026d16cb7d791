/** API keys on the account page. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { cookieFrom, startPortal } from '../../../support/portal.ts';

const { sql, call, add, visit, signIn } = await startPortal({ after });
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
      `created <time[^]+ by ${username}, may: all, last used: (never|<time[^]+), expires: <time datetime="20`,
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
