/** Links with which users set a password: invitations, and resets without e-mail. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { sha256Hex } from '../../../../src/platform/crypto/token.ts';
import { stopClock } from '../../../support/clock.ts';
import { startSignIn, tokenOf } from '../../../support/factors.ts';
import { logIn, startGatehouse } from '../../../support/gatehouse.ts';
import { ORIGIN, OWN, pagesOf, PORTAL } from '../../../support/portal.ts';
import { rounds } from '../../../support/rounds.ts';
import { assertError, isOpen, PASSWORD } from '../../../support/users.ts';

const portal = await startSignIn({ after });
const { identity, sql, admin, call, add, addSignedIn, enter, key, signIn } = portal;
const { visit, show, choosePassword } = portal;
const other = await startGatehouse({ after }, ['identity'], portal.databaseUrl, PORTAL);
const there = pagesOf(other.url.identity);
const { addEnrolled, enterCode, events, detailsOf, freshCode, rowsOf, makeTemporary } = portal;
const { makeLink, openLink, beginLink } = portal;
const asAdmin = (method: string, path: string, body?: object) =>
  call(admin.token, method, path, body);
const eventsOf = (id: string, ...names: string[]) =>
  Promise.all(names.map((name) => events(id, name)));

const ENDED = /This sign-in has ended/;
async function assertEnded(token: string) {
  const page = await openLink(token);
  assert.deepEqual([page.status, page.pending], [401, '']);
  assert.match(page.text, /This link does not work\..* ask an administrator for a new link/);
}
const canLogIn = async (username: string, password: string) =>
  (await portal.login(username, password)).status === 200;

test('an invited user opens the link any number of times, sets a password once, and is signed in', async () => {
  const { id, username } = await add({ password: undefined });
  const { status, json } = await asAdmin('POST', `/api/user/${id}/link`, {});
  const { link, expires_at } = json.data;
  assert.equal(status, 201);
  assert.match(link, /^https:\/\/login\.example\.org\/link#[\w-]{43}$/);
  assert.ok(Math.abs(Date.parse(expires_at) - Date.now() - 72 * 3_600_000) < 60_000);
  const empty = await visit('/link?utm_source=mail');
  assert.deepEqual([empty.status, empty.headers.get('cache-control')], [200, 'no-store']);
  const token = tokenOf(link);
  for (let time = 1; time <= 3; time += 1)
    assert.ok((await openLink(token)).text.includes(`<strong>${username}</strong>`));
  const cookie = await beginLink(token);
  assert.equal((await choosePassword(cookie, 'short')).status, 400);
  const done = await choosePassword(cookie);
  assert.match((await show('/account', done.host)).text, /Link used/);
  assert.equal(await canLogIn(username, OWN), true);
  await assertEnded(token);
  assert.deepEqual(await eventsOf(id, 'link.created', 'link.used', 'link.late'), [1, 1, 1]);
  const [used] = await sql`select via, actor_id, detail from identity.audit
    where event = 'link.used' and user_id = ${id}`;
  assert.deepEqual({ ...used }, { via: 'link', actor_id: id, detail: '' });
});

test('a reset ends the earlier sessions and nothing else', async () => {
  const user = await enter();
  const own = await key(user);
  assert.equal((await choosePassword(await beginLink(await makeLink(user.id)))).status, 200);
  assert.equal(await isOpen(identity, user.token), false);
  assert.equal(await isOpen(identity, own.key), true);
  assert.equal(await canLogIn(user.username, PASSWORD), false);
});

type End = (id: string, username: string) => PromiseLike<unknown>;
const ENDS: Readonly<Record<string, End>> = {
  'a newer link': (id) => makeLink(id),
  'a password that is set': (id) => asAdmin('POST', `/api/user/${id}/password`, { password: OWN }),
  async 'the own change of the password'(_, username) {
    const bearer = await logIn(identity, username, PASSWORD);
    const body = { current_password: PASSWORD, new_password: OWN };
    assert.equal((await call(bearer, 'POST', '/api/auth/password', body)).status, 200);
  },
  async 'disabling, for good'(id) {
    const setEnabled = (enabled: boolean) => asAdmin('PATCH', `/api/user/${id}`, { enabled });
    await setEnabled(false);
    assertError(await asAdmin('POST', `/api/user/${id}/link`, {}), 409, 'conflict');
    await setEnabled(true);
  },
  'a deletion': (id) => asAdmin('DELETE', `/api/user/${id}`),
  'its own end': (id) => asAdmin('DELETE', `/api/user/${id}/link`),
  'its time': (id) => sql`update identity.links set expires_at = now() where user_id = ${id}`,
};
/** What the trail says of each, in this order. */
const REASONS = [
  ...[['newer link'], ['new password'], ['new password'], ['user disabled'], ['user deleted']],
  ...[[''], []],
];
for (const [index, [what, end]] of Object.entries(ENDS).entries()) {
  test(`a link is ended by ${what}, also in a browser that has opened it`, async () => {
    const user = await add();
    const token = await makeLink(user.id);
    const cookie = await beginLink(token);
    await end(user.id, user.username);
    const late = await choosePassword(cookie, 'another-password-of-mine');
    assert.equal(late.status, 401);
    assert.match(late.text, ENDED);
    // The late use is recorded once: nobody can fill the trail with it.
    for (let time = 1; time <= 2; time += 1) await assertEnded(token);
    assert.equal(await events(user.id, 'link.used'), 0);
    assert.equal(await events(user.id, 'link.late'), what === 'a newer link' ? 0 : 1);
    assert.deepEqual(await detailsOf(user.id, 'link.revoked'), REASONS[index]);
  });
}

const WITHOUT_RIGHTS: Readonly<Record<string, (id: string) => Promise<unknown>>> = {
  'no administrator': (id) => asAdmin('PATCH', `/api/user/${id}`, { super_admin: false }),
  disabled: (id) => asAdmin('PATCH', `/api/user/${id}`, { enabled: false }),
  deleted: (id) => asAdmin('DELETE', `/api/user/${id}`),
};
for (const [what, change] of Object.entries(WITHOUT_RIGHTS)) {
  test(`a link ends when who made it is ${what}`, async () => {
    const chief = await enter({ super_admin: true });
    const { id, username } = await add();
    const made = await call(chief.token, 'POST', `/api/user/${id}/link`, { remove_factors: true });
    const token = tokenOf(made.json.data.link);
    const cookie = await beginLink(token);
    await change(chief.id);
    assert.equal((await choosePassword(cookie)).status, 401);
    await assertEnded(token);
    assert.equal(await canLogIn(username, PASSWORD), true);
  });
}

test('a revoked link opens nothing with the code alone, even after its late use', async () => {
  const user = await addEnrolled();
  const token = await makeLink(user.id);
  const pending = await beginLink(token);
  await asAdmin('DELETE', `/api/user/${user.id}/link`);
  assert.match((await show('/login', pending)).text, /id="username"/);
  assert.equal(await events(user.id, 'link.late'), 0, 'a page that is loaded is no use');
  await assertEnded(token);
  const late = await enterCode(pending, await freshCode(user));
  assert.deepEqual([late.status, late.host], [401, '']);
});

test('the second factor is asked for before the password; a wrong code changes nothing', async () => {
  const user = await addEnrolled();
  const { id, username } = user;
  const token = await makeLink(id);
  const asked = await openLink(token);
  assert.match(asked.text, /autocomplete="one-time-code"/);
  const { pending } = asked;
  assert.equal((await choosePassword(pending)).status, 401, 'no step is skipped');
  assert.equal((await enterCode(pending, '000000')).status, 401);
  const proven = await enterCode(await beginLink(token), await freshCode(user));
  for (const page of [asked, proven]) assert.ok(page.text.includes(`<strong>${username}</strong>`));
  assert.match(proven.text, /autocomplete="new-password"/);
  assert.equal((await choosePassword(proven.pending)).status, 200);
  assert.equal(await events(id, 'factor.removed'), 0);
  assert.equal(await rowsOf('totp', id), 1);
  // A recovery code proves it as well.
  const recovered = await enterCode(await beginLink(await makeLink(id)), user.codes[0] ?? '');
  assert.match(recovered.text, /autocomplete="new-password"/);
  const entries = await sql`select detail from identity.audit
    where user_id = ${id} and event = 'login.pending' and via = 'link' order by created_at desc`;
  const details = entries.slice(0, 2).map(({ detail }) => detail);
  assert.deepEqual(details, ['new password needed', 'link opened']);
});

test('a link that removes the second factors says so, and asks for none', async () => {
  const { id, username } = await addEnrolled();
  const page = await openLink(await makeLink(id, { remove_factors: true }));
  assert.match(page.text, /It also removes the second factors/);
  assert.equal((await choosePassword(page.pending)).status, 200);
  assert.equal(await canLogIn(username, OWN), true);
  assert.deepEqual([await rowsOf('totp', id), await rowsOf('recovery_codes', id)], [0, 0]);
  assert.equal(await events(id, 'factor.removed'), 1);
  assert.deepEqual(await detailsOf(id, 'link.created'), ['removes the second factors']);
});

test('a temporary password is not made permanent by a link, and another one may be kept', async () => {
  const { id } = await add();
  await makeTemporary(id);
  const token = await makeLink(id);
  assert.equal((await choosePassword(await beginLink(token), PASSWORD)).status, 400);
  assert.equal((await choosePassword(await beginLink(token))).status, 200);
  const own = await beginLink(await makeLink((await add()).id));
  assert.equal((await choosePassword(own, PASSWORD)).status, 200);
});

test('of 16 browsers at two replicas that use a link at once, exactly one wins', async () => {
  for (let round = rounds(2, 4); round > 0; round -= 1) {
    const { id, username } = await add({ password: undefined });
    const token = await makeLink(id);
    const cookies = [];
    for (let browser = 0; browser < 16; browser += 1) cookies.push(await beginLink(token));
    const pages = await Promise.all(
      cookies.map((cookie, index) =>
        (index % 2 === 0 ? portal : there).choosePassword(cookie, `${OWN}-${index}`),
      ),
    );
    const statuses = pages.map(({ status }) => status);
    assert.deepEqual([...statuses].sort(), [200, ...Array<number>(15).fill(401)]);
    assert.equal(await canLogIn(username, `${OWN}-${statuses.indexOf(200)}`), true);
    assert.deepEqual(await eventsOf(id, 'link.used', 'password.set', 'link.late'), [1, 1, 1]);
    const sessions = await sql`select from identity.sessions where user_id = ${id}
      and created_at > (select sessions_end_at from identity.users where id = ${id})`;
    assert.equal(sessions.length, 2, 'the one of the winner, and the login above');
  }
});

test('a link opens 20 times, however many requests come at once', async () => {
  const { id } = await add();
  const token = await makeLink(id);
  const another = await makeLink((await add()).id);
  const pages = await Promise.all(Array.from({ length: 40 }, () => openLink(token)));
  const statuses = pages.map(({ status }) => status).sort();
  assert.deepEqual(statuses, [...Array<number>(20).fill(200), ...Array<number>(20).fill(401)]);
  assert.match((await openLink(token)).text, /have been opened 20 times/);
  assert.equal(await rowsOf('pending_sign_ins', id), 20);
  assert.equal(await events(id, 'login.pending'), 20);
  // The link of another user opens, and a sign-in that was begun goes on.
  const begun = pages.map(({ pending }) => pending).find((cookie) => cookie !== '') ?? '';
  for (const cookie of [await beginLink(another), begun])
    assert.equal((await choosePassword(cookie)).status, 200);
});

test('a revocation says whether there was an open link, and is recorded only then', async () => {
  const { id } = await add();
  const revoke = async () => (await asAdmin('DELETE', `/api/user/${id}/link`)).json.data.message;
  assert.equal(await revoke(), 'The user has no open link.');
  await makeLink(id);
  assert.equal(await revoke(), 'Link revoked.');
  assert.equal(await revoke(), 'The user has no open link.');
  await makeLink(id);
  await sql`update identity.links set expires_at = now() where user_id = ${id}`;
  assert.equal(await revoke(), 'The user has no open link.');
  await makeLink(id);
  assert.equal(await events(id, 'link.revoked'), 1);
});

test('the token is stored as its SHA-256 alone, and is in no line of the log', async (t) => {
  const { id } = await add();
  const token = await makeLink(id);
  const [row] = await sql`select encode(token_digest, 'hex') as digest, l::text as whole
    from identity.links l where user_id = ${id}`;
  assert.equal(row?.digest, sha256Hex(token));
  assert.ok(!row?.whole.includes(token));
  const logged = await startGatehouse(t, ['identity'], portal.databaseUrl, PORTAL);
  const at = pagesOf(logged.url.identity);
  const opened = await at.post('/link', '', { token });
  assert.equal((await at.choosePassword(opened.pending)).status, 200);
  assert.equal((await at.post('/link', '', { token: `${token.slice(1)}A` })).status, 401);
  await logged.stop();
  assert.match(logged.stdout(), /"route":"POST \/link"/);
  assert.match(logged.stdout(), /"message":"credential refused"[^\n]*"credential":"link"/);
  assert.ok(!(logged.stdout() + logged.stderr()).includes(token.slice(1)));
  const trail = await sql`select from identity.audit a where a::text like ${`%${token}%`}`;
  assert.equal(trail.length, 0);
});

test('a link is read as mail programs leave it, and an incomplete one says what to do', async () => {
  const token = await makeLink((await add()).id);
  for (const wrong of [token.slice(0, 42), `${token}x`, '', ' ', 'session:x', `${ORIGIN}/link`]) {
    const page = await openLink(wrong);
    assert.equal(page.status, 401, wrong);
    assert.match(page.text, /The link is not complete\. Copy all of it/);
    assert.ok(!page.text.includes(token.slice(0, 42)), 'the page does not repeat it');
  }
  await assertEnded('A'.repeat(43));
  const whole = `${ORIGIN}/link#${token}`;
  for (const given of [
    ` <${whole}>.\n`,
    `${whole}<${whole}>`,
    `${whole.replace('#', '%2523')}&utm_source=mail`,
    `https://safe.example/?url=${encodeURIComponent(whole)}&data=05%7C02`,
    `${whole.slice(0, -9)}=\r\n${whole.slice(-9)}`,
    `${token.slice(0, 20)} ${token.slice(20)}"`,
  ])
    assert.equal((await openLink(given)).status, 200, given);
});

test('wrong tokens count as guesses of the network', async (t) => {
  stopClock(t);
  const headers = { 'x-forwarded-for': '192.0.2.77' };
  const statuses = new Set<number>();
  for (let guess = 1; guess <= 110; guess += 1)
    statuses.add((await openLink('A'.repeat(43), { headers })).status);
  assert.deepEqual([...statuses], [401, 429]);
});

test('a browser that is signed in as another user is told so, and changes to the user of the link', async () => {
  const someone = await addSignedIn();
  const { id, username } = await add();
  const token = await makeLink(id);
  const page = await openLink(token, { cookie: someone.host });
  const said = `You are signed in as ${someone.username}, and this link is for ${username}`;
  assert.ok(page.text.includes(said), page.text);
  const own = await signIn(username);
  const { text } = await openLink(token, { cookie: own.host });
  assert.doesNotMatch(text, /You are signed in as/);
  const done = await choosePassword(`${page.pending}; ${someone.host}`);
  assert.ok((await show('/account', done.host)).text.includes(`<dd>${username}</dd>`));
  assert.equal((await show('/account', someone.host)).status, 303);
});
