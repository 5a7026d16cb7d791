/** The audit trail says how each sign-in was proved. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { totpCode } from '../../../../src/identity/factors/codes.ts';
import { createPasskey } from '../../../support/authenticator.ts';
import { ALONE, codesOn, factorsOf, PENDING, SECOND, setupOn } from '../../../support/factors.ts';
import { ask } from '../../../support/gatehouse.ts';
import { cookieFrom, startPortal } from '../../../support/portal.ts';
import { PASSWORD } from '../../../support/users.ts';

const portal = await startPortal({ after });
const { identity, sql, add, visit, signIn } = portal;
const factors = factorsOf(portal);

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
