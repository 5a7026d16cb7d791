/** The page of programs: what a person ends, and what an administrator registers. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { ADMIN_PASSWORD } from '../../../support/gatehouse.ts';
import { CALLBACK, startProvider } from '../../../support/oidc.ts';

const PATH = '/account/programs';
const provider = await startProvider({ after });
const { visit, show, post, sql } = provider;
const ada = await provider.addSignedIn();
const administrator = await provider.signIn('admin', { fields: { password: ADMIN_PASSWORD } });
const send = (path: string, fields = {}) => post(PATH + path, administrator.host, fields);

const NEW = {
  id: 'wiki',
  name: 'Wiki & <b>more</b>',
  redirect: `${CALLBACK}\r\nhttps://app.example.net/other`,
  consent: 'false',
  pkce: 'true',
  secret: 'true',
};
const registered = await send('', NEW);

test('an administrator registers a program, whose secret is shown once and works', async () => {
  assert.match(registered.text, /The program is registered/);
  const secret = /<pre[^>]*>([0-9a-f]{64})<\/pre>/.exec(registered.text)?.[1] ?? '';
  assert.ok(!(await show(PATH, administrator.host)).text.includes(secret));
  assert.ok((await provider.tokensFor({ id: 'wiki', secret }, ada.host)).id_token);
});

test('each mistake stands beside its field, and nothing is stored', async () => {
  for (const [field, value] of [
    ['id', 'Wiki 2'],
    ['id', 'wiki'],
    ['name', ''],
    ['redirect', ''],
    ['redirect', 'javascript:alert(1)'],
    ['redirect', `${CALLBACK}\nnonsense`],
    ['logout_uri', 'nonsense'],
    ['groups', 'Not A Group!'],
  ] as const) {
    const { status, text } = await send('', { ...NEW, id: 'wiki-2', [field]: value });
    assert.notEqual(status, 200, value);
    assert.match(text, new RegExp(`id="${field}-problem"`), value);
    assert.ok(text.includes('Wiki &#38; &#60;b&#62;more') || field === 'name');
  }
  assert.equal((await sql`select from identity.oidc_clients where id = 'wiki-2'`).length, 0);
});

test('the page of a program shows what is set, and changes it', async () => {
  const shown = await show(`${PATH}/wiki`, administrator.host);
  assert.match(shown.text, /https:\/\/app\.example\.net\/other/);
  const stored = async () => {
    const [row] = await sql`select groups, pkce, enabled from identity.oidc_clients
      where id = 'wiki'`;
    return { ...row };
  };
  const { secret: _, id: __, ...edit } = NEW;
  const groups = ['admins', 'staff'];
  for (const [action, fields, expected] of [
    ['edit', { ...edit, groups: 'staff, admins' }, { groups, pkce: true, enabled: true }],
    ['disable', {}, { groups, pkce: true, enabled: false }],
    ['enable', {}, { groups, pkce: true, enabled: true }],
  ] as const) {
    assert.equal((await send(`/wiki/${action}`, fields)).status, 303);
    assert.deepEqual(await stored(), expected);
  }
  assert.match((await send('/wiki/secret')).text, /<pre[^>]*>[0-9a-f]{64}<\/pre>/);
});

test('nobody else sees or changes what is registered', async () => {
  assert.doesNotMatch((await show(PATH, ada.host)).text, /Registered programs/);
  assert.equal((await show(`${PATH}/wiki`, ada.host)).status, 403);
  const headers = { origin: 'https://app.example.org', 'sec-fetch-site': 'same-site' };
  for (const path of ['', '/wiki/edit', '/wiki/secret', '/wiki/disable', '/wiki/delete']) {
    assert.equal((await post(PATH + path, ada.host, NEW)).status, 403, path);
    const forged = { cookie: administrator.host, fields: NEW, headers };
    assert.equal((await visit(PATH + path, forged)).status, 403, path);
  }
});

test('a person ends what a program has, and nobody else does', async () => {
  const notes = await provider.register('notes', '--refresh');
  const tokens = await provider.tokensFor(notes, ada.host);
  const kept = await provider.tokensFor(await provider.register('kept'), ada.host);
  const other = await provider.addSignedIn();
  await sql`
    insert into identity.oidc_consents (client_id, user_id, scopes)
    values ('kept', ${ada.id}, '{openid}')`;
  const end = (cookie: string) => post(`${PATH}/end`, cookie, { client_id: 'notes' });
  const statuses = async () => [
    (await provider.userinfo(tokens.access_token)).status,
    (await provider.userinfo(kept.access_token)).status,
  ];
  await end(other.host);
  assert.doesNotMatch((await show(PATH, other.host)).text, /Program (notes|kept)/);
  assert.deepEqual(await statuses(), [200, 200]);
  assert.match((await show(PATH, ada.host)).text, /name="client_id" value="notes"/);
  assert.equal((await end(ada.host)).status, 303);
  assert.deepEqual(await statuses(), [401, 200]);
  assert.doesNotMatch((await show(PATH, ada.host)).text, /Program notes/);
  const ended = await sql`select from identity.audit
    where event = 'grant.ended' and user_id = ${ada.id}`;
  assert.equal(ended.length, 1);
});

test('a program that is deleted is gone', async () => {
  await provider.register('brief');
  await send('/brief/delete');
  assert.equal((await show(`${PATH}/brief`, administrator.host)).status, 404);
  assert.equal((await send('/brief/delete')).status, 404);
});
