/** The page of programs: what a person ends, and what an administrator registers. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { ADMIN_PASSWORD } from '../../../support/gatehouse.ts';
import { CALLBACK, startProvider } from '../../../support/oidc.ts';

const PATH = '/account/programs';
const provider = await startProvider({ after });
const { visit, sql } = provider;
const ada = await provider.enter();
const { host: cookie } = await provider.signIn(ada.username);
const administrator = await provider.signIn('admin', { fields: { password: ADMIN_PASSWORD } });

const NEW = {
  id: 'wiki',
  name: 'Wiki & <b>more</b>',
  redirect: `${CALLBACK}\r\nhttps://app.example.net/other`,
  logout_uri: '',
  groups: '',
  consent: 'false',
  second_factor: 'false',
  refresh: 'false',
  pkce: 'true',
  secret: 'true',
};
const asAdministrator = (path: string, fields?: Record<string, string>) =>
  visit(path, { cookie: administrator.host, ...(fields && { fields }) });

test('an administrator registers a program, whose secret is shown once and works', async () => {
  const page = await asAdministrator(PATH, NEW);
  assert.equal(page.status, 200, page.text);
  assert.match(page.text, /The program is registered/);
  const secret = /<pre[^>]*>([0-9a-f]{64})<\/pre>/.exec(page.text)?.[1] ?? '';
  assert.ok(!(await asAdministrator(PATH)).text.includes(secret));
  const tokens = await provider.tokensFor({ id: 'wiki', secret }, cookie);
  assert.ok(tokens.id_token);
});

test('each mistake stands beside its field, and nothing is stored', async () => {
  const MISTAKES: ReadonlyArray<readonly [Partial<typeof NEW>, string]> = [
    [{ id: 'Wiki 2' }, 'id'],
    [{ id: '' }, 'id'],
    [{ id: 'wiki' }, 'id'],
    [{ name: '' }, 'name'],
    [{ redirect: '' }, 'redirect'],
    [{ redirect: 'http://app.example.net/callback' }, 'redirect'],
    [{ redirect: 'https://*.example.net/' }, 'redirect'],
    [{ redirect: 'https://app.example.net/#a' }, 'redirect'],
    [{ redirect: 'https://ada@app.example.net/' }, 'redirect'],
    [{ redirect: 'javascript:alert(1)' }, 'redirect'],
    [{ redirect: 'data:text/html,x' }, 'redirect'],
    [{ redirect: `${CALLBACK}\nnonsense` }, 'redirect'],
    [{ logout_uri: 'nonsense' }, 'logout_uri'],
    [{ groups: 'Not A Group!' }, 'groups'],
  ];
  for (const [mistake, field] of MISTAKES) {
    const page = await asAdministrator(PATH, { ...NEW, id: 'wiki-2', ...mistake });
    assert.notEqual(page.status, 200, JSON.stringify(mistake));
    assert.match(page.text, new RegExp(`id="${field}-problem"`), JSON.stringify(mistake));
    assert.ok(page.text.includes('Wiki &#38; &#60;b&#62;more') || field === 'name');
  }
  const [count] = await sql`select count(*)::int as n from identity.oidc_clients`;
  assert.equal(count?.n, 1);
});

test('the page of a program shows what is set, and changes it', async () => {
  const shown = await asAdministrator(`${PATH}/wiki`);
  assert.match(shown.text, /https:\/\/app\.example\.net\/other/);
  const { secret: _, id: __, ...edit } = NEW;
  const changed = await asAdministrator(`${PATH}/wiki/edit`, { ...edit, groups: 'staff, admins' });
  assert.equal(changed.status, 303, changed.text);
  const [row] = await sql`select groups, pkce from identity.oidc_clients where id = 'wiki'`;
  assert.deepEqual(row, { groups: ['admins', 'staff'], pkce: true });
  for (const [name, enabled] of [
    ['disable', false],
    ['enable', true],
  ] as const) {
    assert.equal((await asAdministrator(`${PATH}/wiki/${name}`, { x: '' })).status, 303);
    const [after] = await sql`select enabled from identity.oidc_clients where id = 'wiki'`;
    assert.equal(after?.enabled, enabled);
  }
  const fresh = await asAdministrator(`${PATH}/wiki/secret`, { x: '' });
  assert.match(fresh.text, /<pre[^>]*>[0-9a-f]{64}<\/pre>/);
});

test('nobody else sees or changes what is registered', async () => {
  const own = await visit(PATH, { cookie });
  assert.equal(own.status, 200);
  assert.ok(!own.text.includes('Registered programs'));
  assert.equal((await visit(`${PATH}/wiki`, { cookie })).status, 403);
  for (const path of [
    PATH,
    ...['edit', 'secret', 'disable', 'delete'].map((n) => `${PATH}/wiki/${n}`),
  ]) {
    assert.equal((await visit(path, { cookie, fields: NEW })).status, 403, path);
    const headers = { origin: 'https://app.example.org', 'sec-fetch-site': 'same-site' };
    const forged = await visit(path, { cookie: administrator.host, fields: NEW, headers });
    assert.equal(forged.status, 403, path);
  }
});

test('a person ends what a program has, and nobody else does', async () => {
  const program = await provider.register('notes', '--refresh');
  const scope = { scope: 'openid email offline_access' };
  const tokens = await provider.tokensFor(program, cookie, scope);
  const kept = await provider.tokensFor(await provider.register('kept'), cookie);
  const stranger = await provider.enter();
  const other = await provider.signIn(stranger.username);
  const fields = { client_id: 'notes' };
  await visit(`${PATH}/end`, { cookie: other.host, fields });
  await sql`
    insert into identity.oidc_consents (client_id, user_id, scopes)
    values ('kept', ${ada.id}, '{openid}')`;
  assert.doesNotMatch((await visit(PATH, { cookie: other.host })).text, /Program (notes|kept)/);
  assert.equal((await provider.userinfo(tokens.access_token)).status, 200);
  const page = await visit(PATH, { cookie });
  assert.match(page.text, /Program notes/);
  assert.match(page.text, /name="client_id" value="notes"/);
  assert.equal((await visit(`${PATH}/end`, { cookie, fields })).status, 303);
  assert.equal((await provider.userinfo(tokens.access_token)).status, 401);
  assert.equal((await provider.userinfo(kept.access_token)).status, 200);
  const [entry] = await sql`
    select user_id from identity.audit where event = 'grant.ended'
    order by created_at desc limit 1`;
  assert.equal(entry?.user_id, ada.id);
  assert.ok(!(await visit(PATH, { cookie })).text.includes('Program notes'));
});

test('a program that is deleted takes all with it', async () => {
  await asAdministrator(`${PATH}/wiki/delete`, { x: '' });
  assert.equal((await asAdministrator(`${PATH}/wiki`)).status, 404);
  assert.equal((await asAdministrator(`${PATH}/nonsense%00`)).status, 400);
});
