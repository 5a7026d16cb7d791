/** Cookies that a neighbor plants, and a network that has guessed too often. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createPasskey } from '../../../support/authenticator.ts';
import { stopClock } from '../../../support/clock.ts';
import { ALONE, factorsOf, PENDING, SECOND } from '../../../support/factors.ts';
import { ask, startGatehouse } from '../../../support/gatehouse.ts';
import { cookieFrom, PORTAL, startPortal, visitorOf } from '../../../support/portal.ts';
import { PASSWORD } from '../../../support/users.ts';

const portal = await startPortal({ after });
const { identity, sql, call, add, visit, signIn } = portal;
const { enrol, start, enter, options, register, answer, send, newBrowser } = factorsOf(portal);

/** Bytes that `trim` of JavaScript removes. In a header, each is one character. */
const TRIMMED = ['\xa0', '\xa0\xa0', ' \xa0', '\xa0 '];

test('a cookie whose name begins with a byte that JavaScript trims is another cookie', async () => {
  const thief = await signIn((await add()).username);
  const victim = await signIn((await add()).username);
  for (const byte of TRIMMED) {
    const planted = byte + thief.host;
    assert.equal((await visit('/account', { cookie: planted })).status, 303, 'alone');
    for (const cookie of [`${planted}; ${victim.host}`, `${victim.host}; ${planted}`]) {
      const page = await visit('/account', { cookie });
      assert.ok(page.text.includes(victim.username), 'beside the real one');
    }
    const verified = await visit('/api/auth/verify', {
      cookie: `${byte}${thief.domain}; ${victim.domain}`,
    });
    assert.equal(verified.headers.get('x-auth-username'), victim.username);
  }
  const spaces = await visit('/account', { cookie: `a=b;  \t${victim.host} ` });
  assert.equal(spaces.status, 200);
});

test('a session whose row is marked as deleted opens no page', async () => {
  const { id, username } = await add();
  const { host } = await signIn(username);
  assert.equal((await visit('/account', { cookie: host })).status, 200);
  await sql`update identity.sessions set deleted_at = now() where user_id = ${id}`;
  assert.equal((await visit('/account', { cookie: host })).status, 303);
});

test('a planted cookie of a pending sign-in does not stop the second step', async () => {
  const { username } = await add();
  const { codes } = await enrol(username);
  const pending = await start(username);
  const planted = `\xa0${PENDING}=x; ${pending}`;
  assert.equal((await enter(planted, codes[0] ?? '')).status, 200);
});

test('a challenge that is bound to a planted cookie is not accepted', async () => {
  const { username, id } = await add();
  const passkey = createPasskey();
  await register((await signIn(username)).host, passkey);
  const chosen = '__Host-gatehouse-browser=chosen-by-the-attacker';
  const { challenge } = await options(ALONE, chosen);
  const response = answer(passkey, challenge, id, { counter: 5 });
  assert.equal((await send(response, `\xa0${chosen}`)).status, 401);
  const browser = await newBrowser();
  const own = await options(ALONE, browser);
  const right = answer(passkey, own.challenge, id, { counter: 6 });
  assert.equal((await send(right, browser)).status, 200);
});

/** Uses up what the network may guess. With time, it may guess again: the clock must stand still. */
async function guess(path = '/api/auth/verify', name = '__Secure-gatehouse') {
  for (let tries = 0; tries < 1_000; tries += 1) {
    const reply = await visit(path, { cookie: `${name}=${'x'.repeat(43)}` });
    if (reply.status === 429) return reply;
  }
  assert.fail('the network may guess without limit');
}

test('from a network that has guessed too often, a sign-in works, and a sign-out ends it', async (t) => {
  stopClock(t);
  const { username } = await add();
  const earlier = await signIn(username);
  await guess();
  const here = await signIn(username, { cookie: earlier.host });
  assert.equal((await visit('/account', { cookie: here.host })).status, 200);
  assert.equal((await visit('/api/auth/verify', { cookie: here.domain })).status, 200);
  const ended = async (cookie: string) => {
    const [row] = await sql`
      select bool_and(logged_out or revoked) as ended from identity.sessions s
        join identity.users u on u.id = s.user_id
      where u.username = ${username}`;
    return row?.ended === true && (await visit('/account', { cookie })).status !== 200;
  };
  assert.equal((await visit('/account', { cookie: earlier.host })).status, 303, 'replaced');
  const page = await visit('/logout', { fields: {}, cookie: here.host });
  const notice = cookieFrom(page, '__Host-gatehouse-notice');
  assert.match((await visit('/login', { cookie: notice })).text, /You are signed out/);
  assert.ok(await ended(here.host));
  const { json } = await ask('POST', `${identity}/api/auth/login`, {
    body: { username, password: PASSWORD },
  });
  assert.equal((await call(json.data.session, 'GET', '/api/test/')).status, 200);
});

test('a replica that a network has guessed at accepts what another one has issued to that network', async (t) => {
  stopClock(t);
  const { url } = await startGatehouse(t, ['identity'], portal.databaseUrl, PORTAL);
  const there = visitorOf(url.identity);
  const { username } = await add();
  const here = await signIn(username);
  const elsewhere = { headers: { 'x-forwarded-for': '192.0.2.7' } };
  const moved = await signIn(username, elsewhere);
  const guessThere = async () => {
    for (let tries = 0; tries < 1_000; tries += 1) {
      const made = `__Secure-gatehouse=${'x'.repeat(43)}`;
      if ((await there('/api/auth/verify', { cookie: made })).status === 429) return;
    }
    assert.fail('no limit');
  };
  await guessThere();
  assert.equal((await there('/api/auth/verify', { cookie: here.domain })).status, 200);
  await guessThere();
  assert.equal((await there('/account', { cookie: here.host })).status, 200);
  await guessThere();
  const { status } = await there('/account', { cookie: moved.host });
  assert.equal(status, 429, 'issued to another network');
});

test('a limited network gets a page that says when to try again, not the sign-in page', async (t) => {
  stopClock(t);
  const page = await guess('/account', '__Host-gatehouse');
  assert.equal(page.headers.get('location'), null);
  assert.match(page.headers.get('retry-after') ?? '', /^[1-9]/);
  assert.match(page.text, /Try again in \d+ second/);
});

test('a sign-out at a database that fails keeps the cookies', async (t) => {
  const other = await startPortal(t);
  const { host } = await other.signIn((await other.add()).username);
  await other.sql`alter table identity.sessions rename to sessions_away`;
  const page = await other.visit('/logout', { fields: {}, cookie: host });
  await other.sql`alter table identity.sessions_away rename to sessions`;
  assert.equal(page.status, 500);
  assert.equal(cookieFrom(page, '__Host-gatehouse'), '');
  assert.deepEqual(page.cookies, []);
});

test('recovery codes from before the first second factor do not exist, and are not accepted', async () => {
  const { username, id } = await add();
  const thief = await signIn(username);
  const refused = await visit('/account/recovery', { fields: {}, cookie: thief.host });
  assert.equal(refused.status, 409);
  assert.match(refused.text, /You have no second factor/);
  assert.equal((await sql`select from identity.recovery_codes where user_id = ${id}`).length, 0);
  // As if an earlier version had stored them.
  await sql`insert into identity.recovery_codes (digest, user_id) values ('\\x00'::bytea, ${id})`;
  const owner = await register((await signIn(username)).host, createPasskey());
  assert.match(owner.text, /<pre /, 'the first factor comes with codes');
  const [row] = await sql`
    select count(*)::int as all, count(*) filter (where digest = '\\x00'::bytea)::int as planted
    from identity.recovery_codes where user_id = ${id}`;
  assert.deepEqual({ ...row }, { all: 10, planted: 0 });
});

/** What browsers send with a load that no person asked for. */
const HIDDEN_LOADS: ReadonlyArray<Readonly<Record<string, string>>> = [
  ...['image', 'iframe', 'frame', 'embed', 'object', 'empty', 'script', 'style', 'video'].map(
    (target) => ({ 'sec-fetch-dest': target }),
  ),
  { 'sec-fetch-dest': 'document', 'sec-purpose': 'prefetch' },
  { 'sec-fetch-dest': 'document', 'sec-purpose': 'prefetch;prerender' },
  { 'sec-fetch-dest': 'document', 'sec-purpose': 'prefetch;anonymous-client-ip' },
  { 'sec-purpose': 'prefetch' },
];
const OPENED: ReadonlyArray<Readonly<Record<string, string>>> = [
  {},
  { 'sec-fetch-dest': 'document' },
];

test('a pending sign-in outlives the sign-in page, by whatever site it was opened', async () => {
  const { username } = await add();
  const { codes } = await enrol(username);
  const pending = await start(username);
  const opened = ['cross-site', 'same-site', 'same-origin', 'none'].map((site) => ({
    'sec-fetch-site': site,
    'sec-fetch-mode': 'navigate',
    'sec-fetch-dest': 'document',
  }));
  for (const headers of [...HIDDEN_LOADS, ...OPENED, ...opened]) {
    for (const path of ['/login', '/login?again=on']) {
      const page = await visit(path, { cookie: pending, headers });
      assert.ok(!page.cookies.some((text) => text.startsWith(PENDING)), JSON.stringify(headers));
    }
  }
  assert.equal((await enter(pending, String(codes[0]))).status, 200);
});

test('only a page that a person opens takes the notice', async () => {
  const { host } = await signIn((await add()).username);
  const renamed = await visit('/account/name', {
    fields: { first_name: 'Ada', last_name: 'Byron' },
    cookie: host,
  });
  const notice = cookieFrom(renamed, '__Host-gatehouse-notice');
  const removedBy = async (headers: Record<string, string>) => {
    const page = await visit('/account', { cookie: `${host}; ${notice}`, headers });
    assert.equal(page.status, 200);
    const removed = page.cookies.filter((text) => text.endsWith('Max-Age=0'));
    return removed.map((text) => text.split('=')[0]);
  };
  for (const headers of HIDDEN_LOADS) {
    assert.deepEqual(await removedBy(headers), [], JSON.stringify(headers));
  }
  for (const headers of OPENED) {
    assert.deepEqual(await removedBy(headers), ['__Host-gatehouse-notice']);
  }
});

test('no page removes a cookie when it is loaded as a picture', async () => {
  const { username } = await add({ super_admin: true });
  const { host, domain } = await signIn(username);
  const others = '__Host-gatehouse-pending=x; __Host-gatehouse-browser=y';
  const cookie = `${host}; ${domain}; ${others}; __Host-gatehouse-notice=WA`;
  const pages = ['/login', '/login?again=on', '/link', '/logout', '/account', '/nowhere'];
  const inner = ['factors', 'keys', 'users', 'audit', 'audit.csv', 'passkeys'];
  for (const path of [...pages, ...inner.map((name) => `/account/${name}`), ALONE, SECOND]) {
    const page = await visit(path, { cookie, headers: { 'sec-fetch-dest': 'image' } });
    assert.deepEqual(page.cookies, [], path);
  }
});

test('no pattern is replaced in a cookie that has many spaces within', async () => {
  const { replace } = String.prototype;
  let longest = 0;
  Object.defineProperty(String.prototype, 'replace', {
    configurable: true,
    writable: true,
    value(this: string, ...given: Parameters<typeof replace>) {
      if (/ {100}/.test(this)) longest = Math.max(longest, this.length);
      return replace.apply(this, given);
    },
  });
  try {
    const cookie = `a${' '.repeat(15_000)}b`;
    for (const path of ['/login', '/account', '/api/auth/verify']) {
      const { status } = await visit(path, { cookie });
      assert.ok(status < 500, `${path}: ${status}`);
    }
  } finally {
    Object.defineProperty(String.prototype, 'replace', {
      configurable: true,
      writable: true,
      value: replace,
    });
  }
  assert.equal(longest, 0);
});
