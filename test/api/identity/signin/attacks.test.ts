/**
 * What an attacker tries at the sign-in pages: one test for each way in that once was open, or
 * nearly.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import type { TransactionSql } from 'postgres';
import { totpCode } from '../../../../src/identity/factors/codes.ts';
import { createPasskey } from '../../../support/authenticator.ts';
import { untilLocked } from '../../../support/connections.ts';
import { ALONE, factorsOf, PENDING, secretOn, setupOn } from '../../../support/factors.ts';
import { assertStatus } from '../../../support/gatehouse.ts';
import { cookieFrom, type Page, startPortal } from '../../../support/portal.ts';
import { PASSWORD } from '../../../support/users.ts';

const portal = await startPortal({ after });
const { sql, add, visit, signIn } = portal;
const {
  events,
  stepNow,
  forgetSteps,
  enrol,
  start,
  enter,
  options,
  register,
  answer,
  send,
  newBrowser,
} = factorsOf(portal);

const factorPage = async (cookie: string) => (await visit('/account/factors', { cookie })).status;
const rowsOf = async (table: string, user: string) =>
  (await sql`select from ${sql(`identity.${table}`)} where user_id = ${user}`).length;

/** Sends a request that waits for a row, and makes a change before the request continues. */
async function meanwhile(
  lock: (sql: TransactionSql) => Promise<unknown>,
  request: () => Promise<Page>,
  change: (sql: TransactionSql) => Promise<unknown>,
): Promise<Page> {
  let page: Promise<Page> | null = null;
  await sql.begin(async (locking) => {
    await lock(locking);
    page = request();
    await untilLocked(locking, 1);
    await change(locking);
  });
  assert.ok(page);
  return page;
}

const startSetUp = (cookie: string) => visit('/account/totp/start', { fields: {}, cookie });

test('another session of the user neither learns nor replaces the secret of an app during set-up', async () => {
  const { username } = await add();
  const owner = await signIn(username);
  const thief = await signIn(username);
  const offered = await startSetUp(owner.host);
  const secret = secretOn(offered.text);
  const other = await visit('/account/totp', {
    fields: setupOn(offered.text, totpCode(secret, await stepNow())),
    cookie: thief.host,
  });
  assert.equal(other.status, 401, 'the key was shown to another session');
  assert.notDeepEqual(secretOn(other.text), secret);
  await startSetUp(thief.host);
  const confirmed = await visit('/account/totp', {
    fields: setupOn(offered.text, totpCode(secret, await stepNow())),
    cookie: owner.host,
  });
  assert.equal(confirmed.status, 200);
});

test('a copied cookie does not tell the secret that the owner is shown, before or after', async () => {
  const { username } = await add();
  const { host } = await signIn(username);
  const before = secretOn((await startSetUp(host)).text);
  const offered = await startSetUp(host);
  const after = secretOn((await startSetUp(host)).text);
  const secret = secretOn(offered.text);
  for (const known of [before, after]) {
    assert.notDeepEqual(known, secret);
    const wrong = await visit('/account/totp', {
      fields: setupOn(offered.text, totpCode(known, await stepNow())),
      cookie: host,
    });
    assert.equal(wrong.status, 401);
    assert.deepEqual(secretOn(wrong.text), secret, 'after a mistake, the same key');
  }
  for (const setup of ['', 'A'.repeat(65)]) {
    const invented = await visit('/account/totp', {
      fields: { code: '000000', setup },
      cookie: host,
    });
    assert.equal(invented.status, 400, setup);
  }
});

test('an app that is set up again after its removal has another secret', async () => {
  const { username } = await add();
  const { host, secret } = await enrol(username);
  await visit('/account/factors/remove', { fields: {}, cookie: host });
  assert.notDeepEqual(
    secretOn((await visit('/account/totp/start', { fields: {}, cookie: host })).text),
    secret,
  );
});

test('the row of an app does not open in the row of another user', async () => {
  const one = await add();
  const other = await add();
  const { secret } = await enrol(one.username);
  await sql`update identity.totp set user_id = ${other.id}, last_step = 0 where user_id = ${one.id}`;
  await sql`update identity.users set second_factor = true where id = ${other.id}`;
  const page = await enter(await start(other.username), totpCode(secret, await stepNow()));
  assert.notEqual(page.status, 200);
});

test('a session by the password alone is no proof once the account has a second factor', async () => {
  const { username, id } = await add();
  const { host: old } = await signIn(username);
  const { host, domain } = await enrol(username);
  assert.equal(await factorPage(host), 200, 'this browser has just used the factor');
  assert.equal(
    (await visit('/api/auth/verify', { cookie: domain })).headers.get('x-auth-methods'),
    'password, totp',
  );
  assert.equal(await factorPage(old), 303);
  for (const path of ['/account/factors/remove', '/account/recovery']) {
    assert.equal((await visit(path, { fields: {}, cookie: old })).status, 303, path);
  }
  assert.equal(await events(id, 'factor.removed'), 0);
});

/** The ways to add a first factor. */
const WAYS = [
  async (username: string) => {
    const { before, host, domain } = await enrol(username);
    return { before, host, domain, methods: 'password, totp' };
  },
  async (username: string) => {
    const { host: before } = await signIn(username);
    const page = await register(before);
    return {
      before,
      host: cookieFrom(page, '__Host-gatehouse'),
      domain: cookieFrom(page, '__Secure-gatehouse'),
      methods: 'password, passkey',
    };
  },
];

test('a session that adds a factor gets new tokens, says so, and stays the same session', async () => {
  for (const begin of WAYS) {
    const { username, id } = await add();
    const { before, host, domain, methods } = await begin(username);
    assert.equal((await visit('/api/auth/verify', { cookie: before })).status, 401);
    assert.equal((await visit('/account', { cookie: before })).status, 303);
    assert.equal(
      (await visit('/api/auth/verify', { cookie: domain })).headers.get('x-auth-methods'),
      methods,
    );
    assert.equal(
      (await sql`select from identity.sessions where user_id = ${id} and not revoked`).length,
      1,
      'no second session',
    );
    assert.equal(await factorPage(host), 200);
    const second = await register(host);
    const latest = cookieFrom(second, '__Host-gatehouse');
    assertStatus(await visit('/account', { cookie: host }), 303, 'new tokens with every factor');
    assert.equal(
      (
        await visit('/api/auth/verify', { cookie: cookieFrom(second, '__Secure-gatehouse') })
      ).headers.get('x-auth-methods'),
      methods,
    );
    const shown = await visit('/account/factors', { cookie: latest });
    assert.match(shown.text, /Sign out everywhere else/);
    const removed = await visit('/account/factors/remove', { fields: {}, cookie: latest });
    assert.equal(removed.status, 303);
  }
});

test('a factor that was not added leaves the tokens as they are', async () => {
  const { username } = await add();
  const { host } = await signIn(username);
  const { text } = await startSetUp(host);
  const wrong = await visit('/account/totp', { fields: setupOn(text, '000000'), cookie: host });
  const rejected = await register(host, createPasskey(), { origin: 'https://app.example.org' });
  for (const page of [wrong, rejected]) assert.deepEqual(page.cookies, []);
  assert.equal((await visit('/account', { cookie: host })).status, 200);
});

test('a change of the password keeps how and when the session was proved', async () => {
  const { username } = await add();
  const { host } = await enrol(username);
  await sql`update identity.sessions set authenticated_at = now() - interval '11 minutes'
    where methods is not null`;
  const fields = { current_password: PASSWORD, new_password: 'another-long-password' };
  const changed = await visit('/account/password', { fields, cookie: host });
  const next = cookieFrom(changed, '__Host-gatehouse');
  const shared = cookieFrom(changed, '__Secure-gatehouse');
  assertStatus(await visit('/api/auth/verify?require=second_factor', { cookie: shared }), 200);
  assert.equal((await visit('/api/auth/verify?max_age=600', { cookie: shared })).status, 401);
  assert.equal(await factorPage(next), 303);
});

test('a pending sign-in takes its own step only: the factor first, then a generated password', async () => {
  const bare = await add();
  const strong = await add();
  const { secret } = await enrol(strong.username);
  const code = async () => totpCode(secret, await stepNow());
  const choose = (cookie: string) =>
    visit('/login/password', {
      fields: { password: 'a-password-of-my-own', return_to: '' },
      cookie,
    });
  const enrolled = (cookie: string) =>
    visit('/login/enrol', {
      fields: { code: '000000', setup: 'A'.repeat(43), return_to: '' },
      cookie,
    });
  const begin = async ({ username, id }: typeof bare, field: RegExp) => {
    await sql`update identity.users set password_generated = true, password_set_at = now() where id = ${id}`;
    await forgetSteps(id);
    const page = await visit('/login', { fields: { username, password: PASSWORD, return_to: '' } });
    assert.match(page.text, field);
    return cookieFrom(page, PENDING);
  };
  const newPassword = /id="new" name="password"/;
  for (const attempt of [async (cookie: string) => enter(cookie, await code()), enrolled]) {
    assert.match((await attempt(await begin(bare, newPassword))).text, /This sign-in has ended/);
  }
  for (const attempt of [choose, enrolled]) {
    const page = await attempt(await begin(strong, /name="code"/));
    assert.match(page.text, /This sign-in has ended/);
    assert.doesNotMatch(page.text, /<code>/);
  }
  const proven = await enter(await begin(strong, /name="code"/), await code());
  assert.match(proven.text, newPassword);
  assert.equal(cookieFrom(proven, '__Host-gatehouse'), '', 'no session yet');
  const done = await choose(cookieFrom(proven, PENDING));
  const domain = cookieFrom(done, '__Secure-gatehouse');
  const verified = await visit('/api/auth/verify', { cookie: domain });
  assert.deepEqual(
    [verified.status, verified.headers.get('x-auth-methods')],
    [200, 'password, totp'],
  );
});

test('a password that an administrator sets meanwhile is not replaced', async () => {
  const { username, id } = await add();
  await sql`update identity.users set password_generated = true, password_set_at = now() where id = ${id}`;
  const pending = cookieFrom(
    await visit('/login', { fields: { username, password: PASSWORD, return_to: '' } }),
    PENDING,
  );
  const page = await meanwhile(
    (locking) => locking`select from identity.users where id = ${id} for update`,
    () =>
      visit('/login/password', {
        fields: { password: 'the-thief-s-password', return_to: '' },
        cookie: pending,
      }),
    (locking) =>
      locking`update identity.users set password_hash = 'set meanwhile', updated_at = now() where id = ${id}`,
  );
  assert.notEqual(page.status, 200);
  assert.equal(
    (await sql`select password_hash from identity.users where id = ${id}`)[0]?.password_hash,
    'set meanwhile',
  );
});

test('a passkey that is removed during its sign-in opens nothing', async () => {
  const { username, id } = await add();
  const { host } = await signIn(username);
  const passkey = createPasskey();
  await register(host, passkey);
  const browser = await newBrowser();
  const credential = answer(passkey, (await options(ALONE, browser)).challenge, id);
  const page = await meanwhile(
    (locking) => locking`select from identity.users where id = ${id} for update`,
    () => send(credential, browser),
    async (locking) => {
      await locking`delete from identity.passkeys where user_id = ${id}`;
      await locking`update identity.users set second_factor = false, updated_at = now() where id = ${id}`;
    },
  );
  assert.equal(page.status, 401);
  assert.equal(cookieFrom(page, '__Host-gatehouse'), '');
});

test('an app that is replaced while its code is checked opens nothing, and stays the new one', async () => {
  const { username, id } = await add();
  const { secret } = await enrol(username);
  await forgetSteps(id);
  const pending = await start(username);
  const code = totpCode(secret, await stepNow());
  const page = await meanwhile(
    (locking) => locking`select from identity.totp where user_id = ${id} for update`,
    () => enter(pending, code),
    (locking) =>
      locking`update identity.totp set commitment = sha256('another app') where user_id = ${id}`,
  );
  assert.equal(page.status, 401);
  const [row] =
    await sql`select commitment = sha256('another app') as kept from identity.totp where user_id = ${id}`;
  assert.equal(row?.kept, true);
});

test('a pending sign-in makes one session, also by two right codes at once', async () => {
  const { username } = await add();
  const {
    codes: [first = '', second = ''],
  } = await enrol(username);
  const pending = await start(username);
  const both = await Promise.all([enter(pending, first), enter(pending, second)]);
  assert.deepEqual(both.map(({ status }) => status).sort(), [200, 401]);
});

test('credentials of the program behind the proxy do not hide the cookie', async () => {
  const { domain } = await signIn((await add()).username);
  const verify = async (headers: Record<string, string>) =>
    (await visit('/api/auth/verify', { cookie: domain, headers })).status;
  for (const authorization of ['Basic YTpi', 'Bearer eyJhbGciOiJub25lIn0.e30.', 'Bearer'])
    assert.equal(await verify({ authorization }), 200, authorization);
  assert.equal(await verify({ 'x-api-key': 'sk_live_51' }), 200);
  for (const wrong of ['session:wrong', 'key:wrong']) {
    const status = await verify({ authorization: `Bearer ${wrong}` });
    assert.equal(status, 401, 'only the first credential is checked');
  }
});

test('a session that ends during a change sends the browser to the sign-in page', async () => {
  const { username, id } = await add();
  const { host } = await signIn(username);
  const page = await meanwhile(
    (locking) => locking`select from identity.sessions where user_id = ${id} for update`,
    () => visit('/account/recovery', { fields: {}, cookie: host }),
    (locking) => locking`update identity.sessions set revoked = true where user_id = ${id}`,
  );
  assert.deepEqual([page.status, page.headers.get('location')], [303, '/login']);
  assert.equal(await rowsOf('recovery_codes', id), 0);
});

test('a session by the password alone changes no factor once the first one was added, even if it waited', async () => {
  const requests: Array<(host: string) => Promise<Page>> = [
    (host) => visit('/account/recovery', { fields: {}, cookie: host }),
    (host) => visit('/account/factors/remove', { fields: {}, cookie: host }),
    (host) => visit('/account/factors/remove', { fields: { passkey: 'AQ' }, cookie: host }),
    (host) => register(host),
  ];
  for (const request of requests) {
    const { username, id } = await add();
    const thief = await signIn(username);
    // The guard has let the request pass when the owner's change commits.
    const page = await meanwhile(
      (locking) => locking`select from identity.users where id = ${id} for update`,
      () => request(thief.host),
      async (locking) => {
        await locking`delete from identity.passkeys where id = '\\x01'`;
        await locking`
          insert into identity.passkeys
            (id, user_id, name, spki, counter, is_backup_eligible, signs_in_alone)
          values ('\\x01', ${id}, 'of the owner', '\\x00', 0, false, false)`;
        await locking`
          insert into identity.totp (user_id, key_id, client_key, commitment, blob, last_step)
          values (${id}, 'key', '\\x00', '\\x00', '\\x00', 0)`;
        await locking`
          update identity.users set second_factor = true, updated_at = now() where id = ${id}`;
      },
    );
    assert.deepEqual([page.status, page.headers.get('location')], [303, '/login']);
    const kept = [];
    for (const table of ['recovery_codes', 'passkeys', 'totp']) kept.push(await rowsOf(table, id));
    assert.deepEqual(kept, [0, 1, 1]);
    await sql`delete from identity.passkeys where user_id = ${id}`;
  }
});

test('a sign-in succeeds although the session before it ends at the same time', async () => {
  const { username, id } = await add();
  const { host } = await signIn(username);
  const page = await meanwhile(
    (locking) => locking`select from identity.sessions where user_id = ${id} for update`,
    async () => (await signIn(username, { cookie: host })).page,
    (locking) => locking`update identity.sessions set logged_out = true where user_id = ${id}`,
  );
  assert.equal(page.status, 200);
});
