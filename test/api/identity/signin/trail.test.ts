/** What is recorded: how each sign-in was proved, who did what, and what happens to factors. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { totpCode } from '../../../../src/identity/factors/codes.ts';
import { createPasskey } from '../../../support/authenticator.ts';
import {
  ALONE,
  codesOn,
  factorsOf,
  PENDING,
  SECOND,
  setupOn,
  secretOn,
} from '../../../support/factors.ts';
import { ask, ADMIN_PASSWORD, startGatehouse } from '../../../support/gatehouse.ts';
import { cookieFrom, startPortal, PORTAL, visitorOf } from '../../../support/portal.ts';
import { PASSWORD } from '../../../support/users.ts';
import { createDatabase } from '../../../support/database.ts';

const portal = await startPortal({ after });
const { identity, sql, admin, call, add, visit, signIn } = portal;
const factors = factorsOf(portal);
const { enrol, register, start, stepNow } = factors;
const ADMIN = { username: 'admin', password: ADMIN_PASSWORD, return_to: '' };

/** `via` and the detail of the newest login of a user. */
async function latestLogin(id: string) {
  const [row] = await sql`
    select via, detail from identity.audit
    where user_id = ${id} and event = 'login.succeeded'
    order by created_at desc limit 1`;
  return [row?.via, row?.detail];
}

test('a login by password, over the API or on the page', async () => {
  const { username, id } = await add();
  const body = { username, password: PASSWORD };
  assert.equal((await ask('POST', `${identity}/api/auth/login`, { body })).status, 200);
  assert.deepEqual(await latestLogin(id), ['password', 'password']);
  await signIn(username);
  assert.deepEqual(await latestLogin(id), ['password', 'password']);
});

test('a login by password and the code of an app, over the API or on the page', async () => {
  const { username, id } = await add();
  const { secret, codes } = await factors.enrol(username);
  const otp = async () => {
    await factors.forgetSteps(id);
    return totpCode(secret, await factors.stepNow());
  };
  const body = { username, password: PASSWORD, otp: await otp() };
  assert.equal((await ask('POST', `${identity}/api/auth/login`, { body })).status, 200);
  assert.deepEqual(await latestLogin(id), ['password', 'password, totp']);
  const recovered = await factors.enter(await factors.start(username), String(codes[0]));
  assert.equal(recovered.status, 200);
  assert.deepEqual(await latestLogin(id), ['password', 'password, recovery']);
  const entered = await factors.enter(await factors.start(username), await otp());
  assert.equal(entered.status, 200);
  assert.deepEqual(await latestLogin(id), ['password', 'password, totp']);
});

test('a login by passkey, alone or after the password', async () => {
  const { username, id } = await add();
  const passkey = createPasskey();
  await factors.register((await signIn(username)).host, passkey);
  const browser = await factors.newBrowser();
  const alone = await factors.options(ALONE, browser);
  await factors.send(factors.answer(passkey, alone.challenge, id), browser);
  assert.deepEqual(await latestLogin(id), ['passkey', 'passkey']);
  const pending = await factors.start(username);
  const second = await factors.options(SECOND, pending);
  await factors.send(factors.answer(passkey, second.challenge, id), pending, SECOND);
  assert.deepEqual(await latestLogin(id), ['password', 'password, passkey']);
});

test('a login by link, without and with a second factor', async () => {
  const { username, id } = await add();
  const open = async () => {
    const made = await portal.call(portal.admin.token, 'POST', `/api/user/${id}/link`, {});
    const token = String(made.json.data.link).replace(/^.*#/, '');
    return visit('/link', { fields: { token } });
  };
  const choose = (cookie: string, password: string) =>
    visit('/login/password', {
      fields: { password, repeated: password, return_to: '' },
      cookie,
    });
  const plain = await choose(cookieFrom(await open(), PENDING), PASSWORD);
  assert.equal(plain.status, 200, plain.text);
  assert.deepEqual(await latestLogin(id), ['link', 'link']);
  const { codes } = await factors.enrol(username);
  const entered = await factors.enter(cookieFrom(await open(), PENDING), String(codes[0]));
  await choose(cookieFrom(entered, PENDING), `${PASSWORD} again`);
  assert.deepEqual(await latestLogin(id), ['link', 'link, recovery']);
});

test('a set-up of an app leaves an entry only when it is finished', async () => {
  const { username, id } = await add();
  const { host } = await signIn(username);
  const countEntries = async () =>
    (await sql`select from identity.audit where user_id = ${id}`).length;
  const before = await countEntries();
  const { text } = await visit('/account/totp/start', { fields: {}, cookie: host });
  const wrong = await visit('/account/totp', { fields: setupOn(text, '000000'), cookie: host });
  assert.equal(wrong.status, 401);
  assert.equal(await countEntries(), before);
  assert.equal(codesOn(wrong.text)[0], '');
});

test('the audit trail names users, and gives the ids of erased ones', async () => {
  const user = await add();
  const gone = await add();
  await sql`update identity.users set username = '', username_key = ${gone.id}, deleted_at = now() where id = ${gone.id}`;
  const own = cookieFrom(await visit('/login', { fields: ADMIN }), '__Host-gatehouse');
  const { text } = await visit('/account/audit', { cookie: own });
  const rows = text.split('<tr>').filter((row) => row.includes('User created'));
  const cells = (name: string, id: string) =>
    `<a href="/account/users/${id}" title="${id}">${name}</a>`;
  const rowOf = (id: string) => rows.find((row) => row.includes(id)) ?? '';
  assert.ok(
    rowOf(user.id).includes(`${cells('admin', admin.id)} <span class="hint">in a browser</span>`),
    rowOf(user.id),
  );
  assert.ok(rowOf(user.id).includes(cells(user.username, user.id)));
  assert.ok(rowOf(gone.id).includes(cells('an erased user', gone.id)));
  assert.ok(text.includes(`${cells('admin', admin.id)} <span class="hint">by password</span>`));
});

test('the factors of a deleted user are erased at once, and the passkey is free', async () => {
  const { username, id } = await add();
  const { host } = await enrol(username);
  const passkey = createPasskey();
  await register(host, passkey);
  await start(username);
  assert.equal((await call(admin.token, 'DELETE', `/api/user/${id}`)).status, 200);
  for (const table of ['totp', 'passkeys', 'recovery_codes', 'pending_sign_ins']) {
    const rows = await sql`select from ${sql(`identity.${table}`)} where user_id = ${id}`;
    assert.equal(rows.length, 0, table);
  }
  const { host: other } = await signIn((await add()).username);
  assert.doesNotMatch((await register(other, passkey)).text, /was not accepted/);
});

test('what happens to second factors is counted and logged', async (context) => {
  const database = await createDatabase(context);
  const { url } = await startGatehouse(context, ['identity'], database.url, PORTAL);
  const to = visitorOf(url.identity);
  const first = cookieFrom(await to('/login', { fields: ADMIN }), '__Host-gatehouse');
  const offered = await to('/account/totp/start', { fields: {}, cookie: first });
  const secret = secretOn(offered.text);
  const confirmed = await to('/account/totp', {
    fields: setupOn(offered.text, totpCode(secret, await stepNow())),
    cookie: first,
  });
  const host = cookieFrom(confirmed, '__Host-gatehouse');
  const login = (otp: string) =>
    ask('POST', `${url.identity}/api/auth/login`, {
      body: { ...ADMIN, return_to: undefined, otp },
    });
  await login('000000');
  await database.sql`update identity.totp set last_step = 0`;
  assert.equal((await login(totpCode(secret, await stepNow()))).status, 200);
  await to('/account/factors/remove', { fields: {}, cookie: host });
  const metrics = (await ask('GET', `${url.metrics}/metrics`)).text;
  for (const event of ['added', 'wrong', 'right', 'removed']) {
    assert.match(
      metrics,
      new RegExp(`^gatehouse_factor_events_total\\{factor="totp",event="${event}"\\} 1$`, 'm'),
    );
  }
});
