/**
 * What an attacker tries at the sign-in pages: one test for each way in that once was open, or
 * nearly.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import type { TransactionSql } from 'postgres';
import { createPasskey } from '../../../support/authenticator.ts';
import { ALONE, secretOn, startSignIn } from '../../../support/factors.ts';
import { meanwhile } from '../../../support/meanwhile.ts';
import type { Page } from '../../../support/portal.ts';

const portal = await startSignIn({ after });
const { sql, add, addSignedIn, show, post, signIn, enterPassword, choosePassword } = portal;
const { rowsOf, makeTemporary, codeNow, freshCode, startTotp, confirmTotp } = portal;
const { addEnrolled, start, enterCode, register, newBrowser, options, answer, send } = portal;

const statusOf = async (path: string, cookie: string) => (await show(path, cookie)).status;
const methodsOf = async (domain: string) =>
  (await show('/api/auth/verify', domain)).headers.get('x-auth-methods');
const locationOf = ({ status, headers }: Page) => [status, headers.get('location')];

/** A request that waits for a row of the user, and a change before it continues. */
async function during(
  table: 'users' | 'sessions' | 'totp',
  userId: string,
  request: () => Promise<Page>,
  change: (sql: TransactionSql) => PromiseLike<unknown>,
): Promise<Page> {
  const column = sql(table === 'users' ? 'id' : 'user_id');
  const hold = (held: TransactionSql) =>
    held`select from ${sql(`identity.${table}`)} where ${column} = ${userId} for update`;
  const [page = assert.fail()] = await meanwhile(sql, hold, () => [request()], change);
  return page;
}

test('another session of the user neither learns nor replaces the secret of an app during set-up', async () => {
  const owner = await addSignedIn();
  const thief = await signIn(owner.username);
  const { text } = await startTotp(owner.host);
  const secret = secretOn(text);
  const other = await confirmTotp(thief.host, text, await codeNow(secret));
  assert.equal(other.status, 401, 'the key was shown to another session');
  assert.notDeepEqual(secretOn(other.text), secret);
  await startTotp(thief.host);
  assert.equal((await confirmTotp(owner.host, text, await codeNow(secret))).status, 200);
});

test('a copied cookie does not tell the secret that the owner is shown, before or after', async () => {
  const { host } = await addSignedIn();
  const before = secretOn((await startTotp(host)).text);
  const { text } = await startTotp(host);
  const secret = secretOn(text);
  for (const known of [before, secretOn((await startTotp(host)).text)]) {
    assert.notDeepEqual(known, secret);
    const wrong = await confirmTotp(host, text, await codeNow(known));
    assert.equal(wrong.status, 401);
    assert.deepEqual(secretOn(wrong.text), secret, 'after a mistake, the same key');
  }
  for (const setup of ['', 'A'.repeat(65)])
    assert.equal((await post('/account/totp', host, { code: '000000', setup })).status, 400);
});

test('after the removal of an app, an open form sets up nothing, and a new one has another secret', async () => {
  const { id, host, secret } = await addEnrolled();
  const { text } = await startTotp(host);
  assert.equal((await post('/account/factors/remove', host)).status, 303);
  const late = await confirmTotp(host, text, await codeNow(secretOn(text)));
  assert.equal(late.status, 401);
  assert.equal(await rowsOf('totp', id), 0);
  assert.notDeepEqual(secretOn((await startTotp(host)).text), secret);
});

test('the row of an app does not open in the row of another user', async () => {
  const { id, secret } = await addEnrolled();
  const other = await add();
  await sql`update identity.totp set user_id = ${other.id}, last_step = 0 where user_id = ${id}`;
  await sql`update identity.users set second_factor = true where id = ${other.id}`;
  const page = await enterCode(await start(other.username), await codeNow(secret));
  assert.notEqual(page.status, 200);
});

for (const kind of ['totp', 'passkey']) {
  test(`a session that adds a first ${kind} gets new tokens, says so, and stays the same session`, async () => {
    const { id, host: before } = await addSignedIn();
    const { text } = await startTotp(before);
    const confirm = async () => confirmTotp(before, text, await codeNow(secretOn(text)));
    const added = kind === 'totp' ? await confirm() : await register(before);
    const { host } = added;
    assert.equal(await statusOf('/account', before), 303);
    assert.equal(await methodsOf(added.domain), `password, ${kind}`);
    assert.equal(await rowsOf('sessions', id), 1, 'no second session');
    const second = await register(host);
    assert.equal(await statusOf('/account', host), 303, 'new tokens with every factor');
    assert.equal(await methodsOf(second.domain), `password, ${kind}`);
    assert.equal((await post('/account/factors/remove', second.host)).status, 303);
  });
}

test('a pending sign-in takes its own step only: the factor first, then a generated password', async () => {
  const bare = await addSignedIn();
  const strong = await addEnrolled();
  await makeTemporary(bare.id);
  await makeTemporary(strong.id);
  const begin = async ({ username }: typeof bare | typeof strong) =>
    (await enterPassword(username)).pending;
  const enrolIn = (cookie: string) =>
    post('/login/enrol', cookie, { code: '000000', setup: 'A'.repeat(43) });
  const enterRight = async (cookie: string) => enterCode(cookie, await freshCode(strong));
  for (const page of [
    await enterRight(await begin(bare)),
    await enrolIn(await begin(bare)),
    await choosePassword(await begin(strong)),
    await enrolIn(await begin(strong)),
  ]) {
    assert.match(page.text, /This sign-in has ended/);
    assert.doesNotMatch(page.text, /<code>/);
  }
  const proven = await enterRight(await begin(strong));
  assert.match(proven.text, /id="new" name="password"/);
  assert.equal(proven.host, '', 'no session yet');
  const done = await choosePassword(proven.pending);
  assert.equal(await methodsOf(done.domain), 'password, totp');
});

// --- What changes while a request waits

test('a password that an administrator sets meanwhile is not replaced', async () => {
  const { username, id } = await add();
  await makeTemporary(id);
  const { pending } = await enterPassword(username);
  const choose = () => choosePassword(pending, 'the-thief-s-password');
  const set = (held: TransactionSql) => held`
    update identity.users set password_hash = 'set meanwhile', updated_at = now()
    where id = ${id}`;
  const page = await during('users', id, choose, set);
  assert.notEqual(page.status, 200);
  const [row] = await sql`select password_hash from identity.users where id = ${id}`;
  assert.equal(row?.password_hash, 'set meanwhile');
});

test('a passkey that is removed during its sign-in opens nothing', async () => {
  const { id, host } = await addSignedIn();
  const passkey = createPasskey();
  await register(host, passkey);
  const browser = await newBrowser();
  const credential = answer(passkey, (await options(ALONE, browser)).challenge, id);
  const enter = () => send(credential, browser);
  const page = await during('users', id, enter, async (held) => {
    await held`delete from identity.passkeys where user_id = ${id}`;
    await held`
      update identity.users set second_factor = false, updated_at = now() where id = ${id}`;
  });
  assert.deepEqual([page.status, page.host], [401, '']);
});

test('an app that is replaced while its code is checked opens nothing, and stays the new one', async () => {
  const user = await addEnrolled();
  const code = await freshCode(user);
  const pending = await start(user.username);
  const enter = () => enterCode(pending, code);
  const replace = (held: TransactionSql) => held`
    update identity.totp set commitment = sha256('another app') where user_id = ${user.id}`;
  const page = await during('totp', user.id, enter, replace);
  assert.equal(page.status, 401);
  const kept = await sql`select from identity.totp where commitment = sha256('another app')`;
  assert.equal(kept.length, 1);
});

for (const [what, request] of Object.entries({
  'makes recovery codes': (host: string) => post('/account/recovery', host),
  'removes the app': (host: string) => post('/account/factors/remove', host),
  'removes a passkey': (host: string) => post('/account/factors/remove', host, { passkey: 'AQ' }),
  'adds a passkey': (host: string) => register(host),
})) {
  test(`a session by the password alone never ${what} once the first factor was added, even if it waited`, async () => {
    const { id, host } = await addSignedIn();
    // The guard has let the request pass when the owner's change commits.
    const send = () => request(host);
    const page = await during('users', id, send, async (held) => {
      await held`
        insert into identity.passkeys
          (id, user_id, name, spki, counter, is_backup_eligible, signs_in_alone)
        values ('\\x01', ${id}, 'of the owner', '\\x00', 0, false, false)`;
      await held`
        insert into identity.totp (user_id, key_id, client_key, commitment, blob, last_step)
        values (${id}, 'key', '\\x00', '\\x00', '\\x00', 0)`;
      await held`
        update identity.users set second_factor = true, updated_at = now() where id = ${id}`;
    });
    assert.deepEqual(locationOf(page), [303, '/login']);
    const kept = ['recovery_codes', 'passkeys', 'totp'].map((table) => rowsOf(table, id));
    assert.deepEqual(await Promise.all(kept), [0, 1, 1]);
    await sql`delete from identity.passkeys where user_id = ${id}`;
  });
}

test('a sign-in succeeds although the session before it ends at the same time', async () => {
  const { id, username, host: cookie } = await addSignedIn();
  const enter = async () => (await signIn(username, { cookie })).page;
  const end = (held: TransactionSql) =>
    held`update identity.sessions set logged_out = true where user_id = ${id}`;
  const page = await during('sessions', id, enter, end);
  assert.equal(page.status, 200);
});
