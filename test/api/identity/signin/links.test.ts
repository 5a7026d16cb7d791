/** Links with which users set a password: invitations, and resets without e-mail. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, test } from 'node:test';
import { totpCode } from '../../../../src/identity/factors/codes.ts';
import { factorsOf, PENDING } from '../../../support/factors.ts';
import { logIn, startGatehouse } from '../../../support/gatehouse.ts';
import {
  cookieFrom,
  ORIGIN,
  type Options,
  PORTAL,
  startPortal,
  visitorOf,
} from '../../../support/portal.ts';
import { assertError, PASSWORD } from '../../../support/users.ts';
import { rounds } from '../../../support/rounds.ts';

const portal = await startPortal({ after });
const { identity, sql, admin, call, add, enter, key, visit, signIn } = portal;
const other = await startGatehouse({ after }, ['identity'], portal.databaseUrl, PORTAL);
const there = visitorOf(other.url.identity);
const { enrol, enter: enterCode, events, forgetSteps, stepNow } = factorsOf(portal);
const NEW = 'a-password-of-my-own';

const tokenOf = (link: string) => link.slice(link.indexOf('#') + 1);
async function makeLink(id: string, body = {}) {
  const { status, json, text } = await call(admin.token, 'POST', `/api/user/${id}/link`, body);
  assert.equal(status, 201, text);
  assert.match(json.data.link, /^https:\/\/login\.example\.org\/link#[\w-]{43}$/);
  return { token: tokenOf(json.data.link), expires: Date.parse(json.data.expires_at) };
}
const open = (token: string, more: Options = {}, at = visit) =>
  at('/link', { fields: { token }, ...more });
const choose = (cookie: string, password = NEW, at = visit) =>
  at('/login/password', { fields: { password, return_to: '' }, cookie });
/** The pending sign-in of a link whose user has no second factor. */
async function begin(token: string, at = visit) {
  const page = await open(token, {}, at);
  assert.equal(page.status, 200, page.text);
  return cookieFrom(page, PENDING);
}
const ENDED = /This link does not work\..* ask an administrator for a new link/;
async function assertEnded(token: string) {
  const page = await open(token);
  assert.equal(page.status, 401);
  assert.match(page.text, ENDED);
  assert.match(page.text, /<a href="\/login">Sign in<\/a>/);
  assert.equal(cookieFrom(page, PENDING), '');
}
const canLogIn = (username: string, password: string) =>
  logIn(identity, username, password).then(
    () => true,
    () => false,
  );

test('an invited user opens the link any number of times, sets a password once, and is signed in', async () => {
  const { id, username } = await add({ password: undefined });
  const { token, expires } = await makeLink(id);
  assert.ok(Math.abs(expires - Date.now() - 72 * 3_600_000) < 60_000);
  const page = await visit('/link');
  assert.equal(page.status, 200);
  assert.equal(page.headers.get('cache-control'), 'no-store');
  for (let time = 1; time <= 3; time += 1) {
    assert.ok((await open(token)).text.includes(`<strong>${username}</strong>`));
  }
  const cookie = await begin(token);
  const short = await choose(cookie, 'short');
  assert.equal(short.status, 400);
  assert.match(short.text, /Must have at least 8 characters/);
  const done = await choose(cookie);
  assert.equal(done.status, 200, done.text);
  const account = await visit('/account', { cookie: cookieFrom(done, '__Host-gatehouse') });
  assert.match(account.text, /Link used/);
  assert.equal(await canLogIn(username, NEW), true);
  await assertEnded(token);
  assert.deepEqual(
    [
      await events(id, 'link.created'),
      await events(id, 'link.used'),
      await events(id, 'link.late'),
    ],
    [1, 1, 1],
  );
  const [used] = await sql`select via, actor_id, detail from identity.audit
    where event = 'link.used' and user_id = ${id}`;
  assert.deepEqual({ ...used }, { via: 'link', actor_id: id, detail: '' });
});

test('a reset ends the earlier sessions and nothing else', async () => {
  const user = await enter();
  const own = await key(user);
  const { token } = await makeLink(user.id);
  assert.equal((await call(user.token, 'GET', '/api/test/')).status, 200);
  assert.equal((await choose(await begin(token))).status, 200);
  assert.equal((await call(user.token, 'GET', '/api/test/')).status, 401);
  assert.equal((await call(own.key, 'GET', '/api/test/')).status, 200);
  assert.equal(await canLogIn(user.username, PASSWORD), false);
});

const ENDS: Readonly<Record<string, (id: string) => Promise<unknown>>> = {
  'a newer link': (id) => makeLink(id),
  'a password that is set': (id) =>
    call(admin.token, 'POST', `/api/user/${id}/password`, { password: NEW }),
  'the own change of the password': async (id) => {
    const [row] = await sql`select username from identity.users where id = ${id}`;
    const bearer = await logIn(identity, row?.username, PASSWORD);
    const body = { current_password: PASSWORD, new_password: NEW };
    assert.equal((await call(bearer, 'POST', '/api/auth/password', body)).status, 200);
  },
  'disabling, for good': async (id) => {
    await call(admin.token, 'PATCH', `/api/user/${id}`, { enabled: false });
    await call(admin.token, 'PATCH', `/api/user/${id}`, { enabled: true });
  },
  'a deletion': (id) => call(admin.token, 'DELETE', `/api/user/${id}`),
  'its own end': (id) => call(admin.token, 'DELETE', `/api/user/${id}/link`),
  'its time': (id) => sql`update identity.links set expires_at = now() where user_id = ${id}`,
};
for (const [what, end] of Object.entries(ENDS)) {
  test(`a link is ended by ${what}, also in a browser that has opened it`, async () => {
    const { id } = await add();
    const { token } = await makeLink(id);
    const cookie = await begin(token);
    await end(id);
    const late = await choose(cookie, 'another-password-of-mine');
    assert.equal(late.status, 401, late.text);
    assert.match(late.text, /This sign-in has ended/);
    await assertEnded(token);
    assert.equal(await events(id, 'link.used'), 0);
  });
}

const WITHOUT_RIGHTS: Readonly<Record<string, (id: string) => Promise<unknown>>> = {
  'no administrator': (id) => call(admin.token, 'PATCH', `/api/user/${id}`, { super_admin: false }),
  disabled: (id) => call(admin.token, 'PATCH', `/api/user/${id}`, { enabled: false }),
  deleted: (id) => call(admin.token, 'DELETE', `/api/user/${id}`),
};
for (const [what, change] of Object.entries(WITHOUT_RIGHTS)) {
  test(`a link ends when who made it is ${what}`, async () => {
    const chief = await enter({ super_admin: true });
    const { id, username } = await add();
    const made = await call(chief.token, 'POST', `/api/user/${id}/link`, { remove_factors: true });
    const token = tokenOf(made.json.data.link);
    const cookie = await begin(token);
    await change(chief.id);
    assert.equal((await choose(cookie)).status, 401);
    await assertEnded(token);
    assert.equal(await canLogIn(username, PASSWORD), true);
  });
}

test('a revoked link opens nothing with the code alone, even after its late use', async () => {
  const { id, username } = await add();
  const { secret } = await enrol(username);
  await forgetSteps(id);
  const { token } = await makeLink(id);
  const pending = cookieFrom(await open(token), PENDING);
  await call(admin.token, 'DELETE', `/api/user/${id}/link`);
  await assertEnded(token);
  const late = await enterCode(pending, totpCode(secret, await stepNow()));
  assert.equal(late.status, 401, late.text);
  assert.equal(cookieFrom(late, '__Host-gatehouse'), '');
});

test('the second factor is asked for before the password; a wrong code changes nothing', async () => {
  const { id, username } = await add();
  const { secret, codes } = await enrol(username);
  await forgetSteps(id);
  const { token } = await makeLink(id);
  const asked = await open(token);
  assert.match(asked.text, /autocomplete="one-time-code"/);
  assert.ok(asked.text.includes(`<strong>${username}</strong>`));
  const pending = cookieFrom(asked, PENDING);
  assert.equal((await choose(pending)).status, 401, 'no step is skipped');
  assert.equal((await enterCode(pending, '000000')).status, 401);
  assert.equal(await canLogIn(username, PASSWORD), false, 'the API asks for the code, too');
  const proven = await enterCode(
    cookieFrom(await open(token), PENDING),
    totpCode(secret, await stepNow()),
  );
  assert.match(proven.text, /autocomplete="new-password"/);
  assert.ok(proven.text.includes(`<strong>${username}</strong>`));
  assert.equal((await choose(cookieFrom(proven, PENDING))).status, 200);
  assert.equal(await events(id, 'factor.removed'), 0);
  const [row] = await sql`select password_hash, second_factor from identity.users where id = ${id}`;
  assert.equal(row?.second_factor, true);
  // A recovery code proves it as well.
  const again = await makeLink(id);
  const recovered = await enterCode(await begin(again.token), codes[0] ?? '');
  assert.match(recovered.text, /autocomplete="new-password"/);
});

test('a link that removes the second factors says so, and asks for none', async () => {
  const { id, username } = await add();
  await enrol(username);
  const { token } = await makeLink(id, { remove_factors: true });
  const page = await open(token);
  assert.match(page.text, /It also removes the second factors/);
  const done = await choose(cookieFrom(page, PENDING));
  assert.equal(done.status, 200, done.text);
  assert.equal(await canLogIn(username, NEW), true);
  assert.equal(await events(id, 'factor.removed'), 1);
  const [made] = await sql`select detail from identity.audit
    where event = 'link.created' and user_id = ${id}`;
  assert.equal(made?.detail, 'removes the second factors');
  const [left] = await sql`
    select (select count(*) from identity.totp where user_id = ${id})
      + (select count(*) from identity.recovery_codes where user_id = ${id}) as count`;
  assert.equal(left?.count, '0');
});

test('a temporary password is not made permanent by a link', async () => {
  const { id } = await add();
  await sql`update identity.users set password_generated = true, password_set_at = now()
    where id = ${id}`;
  const { token } = await makeLink(id);
  const same = await choose(await begin(token), PASSWORD);
  assert.equal(same.status, 400);
  assert.equal((await choose(await begin(token))).status, 200);
});

test('where a second factor is required, it is set up after the password', async (t) => {
  const strict = { ...PORTAL, REQUIRE_SECOND_FACTOR: 'all' };
  const replica = await startGatehouse(t, ['identity'], portal.databaseUrl, strict);
  const at = visitorOf(replica.url.identity);
  const { id } = await add({ password: undefined });
  const { token } = await makeLink(id);
  const next = await choose(await begin(token, at), NEW, at);
  assert.match(next.text, /action="\/login\/enrol"/);
  assert.equal(cookieFrom(next, '__Host-gatehouse'), '');
});

test('of 16 browsers at two replicas that use a link at once, exactly one wins', async () => {
  for (let round = rounds(2, 4); round > 0; round -= 1) {
    const { id, username } = await add({ password: undefined });
    const { token } = await makeLink(id);
    const browsers = await Promise.all(
      Array.from({ length: 16 }, async (_, index) => {
        const at = index % 2 === 0 ? visit : there;
        return { at, cookie: await begin(token, at), password: `${NEW}-${index}` };
      }),
    );
    const pages = await Promise.all(
      browsers.map(({ at, cookie, password }) => choose(cookie, password, at)),
    );
    const winners = browsers.filter((_, index) => pages[index]?.status === 200);
    assert.equal(winners.length, 1, pages.map(({ status }) => status).join());
    for (const { status } of pages) assert.ok(status === 200 || status === 401, String(status));
    assert.equal(await canLogIn(username, winners[0]?.password ?? ''), true);
    assert.deepEqual(
      [
        await events(id, 'link.used'),
        await events(id, 'password.set'),
        await events(id, 'link.late'),
      ],
      [1, 1, 1],
    );
    const [row] = await sql`select count(*) from identity.sessions where user_id = ${id}
      and created_at > (select sessions_end_at from identity.users where id = ${id})`;
    assert.equal(row?.count, '2', 'the one of the winner, and the login above');
  }
});

test('the link of one user leaves that of another as it is', async () => {
  const first = await add();
  const second = await add();
  const { token } = await makeLink(first.id);
  const other = await makeLink(second.id);
  for (let opening = 0; opening < 20; opening += 1) await begin(other.token);
  assert.equal((await open(other.token)).status, 401, 'it was opened too often');
  const cookie = await begin(token);
  assert.equal((await choose(await begin((await makeLink(second.id)).token))).status, 200);
  assert.equal((await choose(cookie)).status, 200);
});

test('a revocation says whether there was an open link, and is recorded only then', async () => {
  const { id } = await add();
  const revoke = () => call(admin.token, 'DELETE', `/api/user/${id}/link`);
  assert.equal((await revoke()).json.data.message, 'The user has no open link.');
  await makeLink(id);
  assert.equal((await revoke()).json.data.message, 'Link revoked.');
  assert.equal((await revoke()).json.data.message, 'The user has no open link.');
  assert.equal(await events(id, 'link.revoked'), 1);
});

test('a late use is recorded once: nobody can fill the trail with it', async () => {
  const { id } = await add();
  const { token } = await makeLink(id);
  await sql`update identity.links set expires_at = now() where user_id = ${id}`;
  for (let time = 1; time <= 3; time += 1) await assertEnded(token);
  assert.equal(await events(id, 'link.late'), 1);
});

test('the token is stored as its SHA-256 alone, and is in no line of the log', async () => {
  const { id } = await add();
  const { token } = await makeLink(id);
  const [row] = await sql`select encode(token_digest, 'hex') as digest, l::text as whole
    from identity.links l where user_id = ${id}`;
  assert.equal(row?.digest, createHash('sha256').update(token).digest('hex'));
  assert.ok(!row?.whole.includes(token));
  const logged = await startGatehouse({ after }, ['identity'], portal.databaseUrl, PORTAL);
  const at = visitorOf(logged.url.identity);
  assert.equal((await choose(await begin(token, at), NEW, at)).status, 200);
  assert.equal((await open(`${token.slice(1)}A`, {}, at)).status, 401);
  await logged.stop();
  assert.match(logged.stdout(), /"route":"POST \/link"/);
  assert.match(logged.stdout(), /"message":"credential refused"[^\n]*"credential":"link"/);
  assert.ok(!(logged.stdout() + logged.stderr()).includes(token.slice(1)));
  const [trail] =
    await sql`select count(*) from identity.audit a where a::text like ${`%${token}%`}`;
  assert.equal(trail?.count, '0');
});

test('a link that is cut short, wrong or of another service gets a page that says what to do', async () => {
  const { id } = await add();
  const { token } = await makeLink(id);
  for (const wrong of [token.slice(0, 42), `${token}x`, '', ' ', 'session:x', `${ORIGIN}/link`]) {
    const page = await open(wrong);
    assert.equal(page.status, 401, wrong);
    assert.match(page.text, /The link is not complete\. Copy all of it/);
    assert.ok(!page.text.includes(token.slice(0, 42)), 'the page does not repeat it');
  }
  await assertEnded('A'.repeat(43));
  const whole = `${ORIGIN}/link#${token}`;
  const mailed = [
    ` ${whole}\n`,
    `<${whole}>.`,
    `${whole}<${whole}>`,
    whole.replace('#', '%23'),
    `${whole.replace('#', '%2523')}&utm_source=mail`,
    whole.replace('#', '?utm_source=mail%23'),
    `https://safe.example/?url=${encodeURIComponent(whole)}&data=05%7C02`,
    `${whole.slice(0, -9)}=\r\n${whole.slice(-9)}`,
    `${token.slice(0, 20)} ${token.slice(20)}"`,
  ];
  for (const given of mailed) assert.equal((await open(given)).status, 200, given);
  assert.equal((await visit('/link?utm_source=mail')).status, 200);
  for (const headers of [{ origin: 'https://evil.example' }, { 'sec-fetch-site': 'same-site' }]) {
    assert.equal((await open(token, { headers })).status, 403);
  }
});

test('wrong tokens count as guesses of the network', async (t) => {
  const { visit: own } = await startPortal(t);
  const headers = { 'x-forwarded-for': '192.0.2.77' };
  const statuses = new Set<number>();
  for (let guess = 1; guess <= 110; guess += 1) {
    const page = await own('/link', { fields: { token: 'A'.repeat(43) }, headers });
    statuses.add(page.status);
    if (page.status === 429) assert.match(page.text, /Too many attempts\. Try again in/);
  }
  assert.deepEqual([...statuses], [401, 429]);
});

test('a browser that is signed in as another user is told so, and changes to the user of the link', async () => {
  const someone = await signIn((await add()).username);
  const { id, username } = await add();
  const { token } = await makeLink(id);
  const page = await open(token, { cookie: someone.host });
  assert.match(
    page.text,
    new RegExp(`You are signed in as ${someone.username}, and this link is for ${username}`),
  );
  const own = await signIn(username);
  assert.doesNotMatch((await open(token, { cookie: own.host })).text, /You are signed in as/);
  const done = await choose(`${cookieFrom(page, PENDING)}; ${someone.host}`);
  const account = await visit('/account', { cookie: cookieFrom(done, '__Host-gatehouse') });
  assert.match(account.text, new RegExp(`<dd>${username}</dd>`));
  assert.equal((await visit('/account', { cookie: someone.host })).status, 303);
});

test('a disabled user gets no link', async () => {
  const { id } = await add();
  const path = `/api/user/${id}/link`;
  await call(admin.token, 'PATCH', `/api/user/${id}`, { enabled: false });
  assertError(await call(admin.token, 'POST', path, {}), 409, 'conflict');
  const none = await call(admin.token, 'DELETE', path);
  assert.deepEqual(none.json.data, { message: 'The user has no open link.', status: 'REVOKED' });
  assert.equal(await events(id, 'link.created'), 0);
});
