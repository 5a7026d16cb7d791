/**
 * Cookies that a neighbor plants, loads that nobody asked for, and a network that guesses. And
 * staying signed in on a device: if the operator offers it and the person chooses it.
 */
import assert from 'node:assert/strict';
import { after, test, type TestContext } from 'node:test';
import { writeLastSeen } from '../../../../src/identity/store/housekeeping.ts';
import { createPasskey } from '../../../support/authenticator.ts';
import { stopClock } from '../../../support/clock.ts';
import { ALONE, PENDING, SECOND, startSignIn } from '../../../support/factors.ts';
import { logIn, startGatehouse } from '../../../support/gatehouse.ts';
import {
  cookieFrom,
  OWN,
  type Page,
  pagesOf,
  PORTAL,
  startPortal,
} from '../../../support/portal.ts';
import { isOpen, openIdentity, PASSWORD } from '../../../support/users.ts';

const MONTH = 30 * 86_400;
const settings = { SESSION_STAY_TTL: String(MONTH), SESSION_IDLE_TTL: '300' };
const portal = await startSignIn({ after }, settings);
const { identity, sql, databaseUrl, add, addSignedIn, visit, show, post, signIn } = portal;
const { addEnrolled, start, enterCode, freshCode, newBrowser } = portal;
const { options, register, answer, send, signInWith } = portal;

test('a cookie whose name begins with a byte that JavaScript trims is another cookie', async () => {
  const thief = await addSignedIn();
  const victim = await addSignedIn();
  for (const byte of ['\xa0', '\xa0\xa0', ' \xa0', '\xa0 ']) {
    const planted = byte + thief.host;
    assert.equal((await show('/account', planted)).status, 303, 'alone');
    for (const cookie of [`${planted}; ${victim.host}`, `${victim.host}; ${planted}`])
      assert.ok((await show('/account', cookie)).text.includes(victim.username));
    const verified = await show('/api/auth/verify', `${byte}${thief.domain}; ${victim.domain}`);
    assert.equal(verified.headers.get('x-auth-username'), victim.username);
  }
  assert.equal((await show('/account', `a=b;  \t${victim.host} `)).status, 200);
});

test('a planted cookie stops no second step, and no challenge is bound to it', async () => {
  const { id, username, codes, host } = await addEnrolled();
  const pending = `\xa0${PENDING}=x; ${await start(username)}`;
  assert.equal((await enterCode(pending, codes[0] ?? '')).status, 200);
  const passkey = createPasskey();
  await register(host, passkey);
  const chosen = '__Host-gatehouse-browser=chosen-by-the-attacker';
  const { challenge } = await options(ALONE, chosen);
  const response = answer(passkey, challenge, id, { counter: 5 });
  assert.equal((await send(response, `\xa0${chosen}`)).status, 401);
  assert.equal((await signInWith(passkey, id, { counter: 6 })).status, 200);
});

/**
 * Uses up what the network may guess. With time, it may guess again: the clock must stand still.
 */
async function guess(at: Pick<typeof portal, 'show'> = portal) {
  for (let tries = 0; tries < 1_000; tries += 1) {
    const { status } = await at.show('/api/auth/verify', `__Secure-gatehouse=${'x'.repeat(43)}`);
    if (status === 429) return;
  }
  assert.fail('the network may guess without limit');
}

test('from a network that has guessed too often, a sign-in works, and a sign-out ends it', async (t) => {
  stopClock(t);
  const earlier = await addSignedIn();
  await guess();
  const here = await signIn(earlier.username, { cookie: earlier.host });
  assert.equal((await show('/account', here.host)).status, 200);
  assert.equal((await show('/api/auth/verify', here.domain)).status, 200);
  assert.equal((await show('/account', earlier.host)).status, 303, 'replaced');
  const page = await post('/logout', here.host);
  const notice = cookieFrom(page, '__Host-gatehouse-notice');
  assert.match((await show('/login', notice)).text, /You are signed out/);
  const [row] = await sql`select bool_and(logged_out or revoked) as ended from identity.sessions
    where user_id = ${earlier.id}`;
  assert.equal(row?.ended, true);
  assert.notEqual((await show('/account', here.host)).status, 200);
  assert.ok(await isOpen(identity, await logIn(identity, earlier.username, PASSWORD)));
});

test('a replica that a network has guessed at accepts what another one has issued to that network', async (t) => {
  stopClock(t);
  const { url } = await startGatehouse(t, ['identity'], portal.databaseUrl, PORTAL);
  const there = pagesOf(url.identity);
  const here = await addSignedIn();
  const moved = await signIn(here.username, { headers: { 'x-forwarded-for': '192.0.2.7' } });
  for (const [path, cookie, status] of [
    ['/api/auth/verify', here.domain, 200],
    ['/account', here.host, 200],
    // Issued to another network. A limited one is not sent to the sign-in page.
    ['/account', moved.host, 429],
  ] as const) {
    await guess(there);
    assert.equal((await there.show(path, cookie)).status, status, path);
  }
});

test('a sign-out at a database that fails keeps the cookies', async (t) => {
  const other = await startPortal(t);
  const { host } = await other.addSignedIn();
  await other.sql`alter table identity.sessions rename to sessions_away`;
  const page = await other.post('/logout', host);
  await other.sql`alter table identity.sessions_away rename to sessions`;
  assert.deepEqual([page.status, page.cookies], [500, []]);
});

/** What browsers send with a load that no person asked for, and with one of a person. */
const HIDDEN_LOADS = [
  { 'sec-fetch-dest': 'image' },
  { 'sec-fetch-dest': 'iframe' },
  { 'sec-fetch-dest': 'empty' },
  { 'sec-fetch-dest': 'document', 'sec-purpose': 'prefetch;prerender' },
  { 'sec-purpose': 'prefetch' },
];
const OPENED = [{}, { 'sec-fetch-dest': 'document', 'sec-fetch-site': 'cross-site' }];

test('only a page that a person opens takes the notice', async () => {
  const { host } = await addSignedIn();
  const cookie = `${host}; __Host-gatehouse-notice=WA`;
  for (const [loads, removed] of [
    [HIDDEN_LOADS, []],
    [OPENED, ['__Host-gatehouse-notice']],
  ] as const) {
    for (const headers of loads) {
      const { cookies } = await visit('/account', { cookie, headers: { ...headers } });
      const names = cookies.map((text) => text.split('=')[0]);
      assert.deepEqual(names, removed, JSON.stringify(headers));
    }
  }
});

test('no page removes a cookie when it is loaded as a picture', async () => {
  const { host, domain } = await addSignedIn({ super_admin: true });
  const names = ['pending=x', 'browser=y', 'notice=WA'].map((name) => `__Host-gatehouse-${name}`);
  const cookie = [host, domain, ...names].join('; ');
  const inner = ['', '/factors', '/keys', '/users', '/audit', '/audit.csv', '/passkeys'];
  const pages = ['/login', '/login?again=on', '/link', '/logout', '/nowhere', ALONE, SECOND];
  for (const path of [...pages, ...inner.map((name) => `/account${name}`)]) {
    const page = await visit(path, { cookie, headers: { 'sec-fetch-dest': 'image' } });
    assert.deepEqual(page.cookies, [], path);
  }
});

test('no pattern is replaced in a cookie that has many spaces within', async (t: TestContext) => {
  const { replace } = String.prototype;
  let longest = 0;
  t.mock.method(
    String.prototype,
    'replace',
    function (this: string, ...given: Parameters<typeof replace>) {
      if (/ {100}/.test(this)) longest = Math.max(longest, this.length);
      return replace.apply(this, given);
    },
  );
  for (const path of ['/login', '/account', '/api/auth/verify'])
    assert.ok((await show(path, `a${' '.repeat(15_000)}b`)).status < 500, path);
  assert.equal(longest, 0);
});

// --- Staying signed in

const WEEK = 7 * 86_400;
const database = openIdentity({ after }, databaseUrl);

const choose = (username: string, more: Record<string, string> = { stay: 'on' }, cookie = '') =>
  post('/login', cookie, { username, password: PASSWORD, ...more });
/** For how long the browser keeps both cookies. */
const agesOf = ({ cookies }: Page) =>
  cookies
    .filter((text) => /^__(Host|Secure)-gatehouse=/.test(text))
    .map((text) => /Max-Age=(\d+)/.exec(text)?.[1]);
const KEPT = [String(MONTH), String(MONTH)];
const NOT_KEPT = [undefined, undefined];
const cookiesOf = (page: Page) => `${page.host}; ${page.domain}`;
/** Of the newest session, in seconds from now. */
async function endsOf(userId: string) {
  const [row] = await sql`
    select id, round(extract(epoch from expires_at - now()))::int4 as end,
      round(extract(epoch from stays_until - now()))::int4 as until
    from identity.sessions where user_id = ${userId} order by created_at desc limit 1`;
  return { id: String(row?.id), end: Number(row?.end), until: row?.until as number | null };
}
const isAbout = (seconds: number | null, expected: number) =>
  assert.ok(Math.abs((seconds ?? 0) - expected) < 60, `${seconds} is not about ${expected}`);

test('it is offered, unchecked, and chosen for one sign-in', async () => {
  const { text } = await visit('/login');
  assert.match(text, /<input type="checkbox" id="stay" name="stay" value="on" aria-[^>]*>/);
  assert.match(text, /For up to 30 days/);
  const { username, id } = await add();
  assert.deepEqual(agesOf(await choose(username, {})), NOT_KEPT);
  assert.equal((await endsOf(id)).until, null);
  const staying = await choose(username);
  assert.deepEqual(agesOf(staying), KEPT);
  const ends = await endsOf(id);
  isAbout(ends.end, WEEK);
  isAbout(ends.until, MONTH);
  const next = await choose(username, {}, cookiesOf(staying));
  assert.deepEqual(agesOf(next), NOT_KEPT, 'not for the next');
});

test('it is kept through the second factor and by passkey', async () => {
  const user = await addEnrolled();
  const { pending } = await choose(user.username);
  const page = await post('/login/code', pending, { code: await freshCode(user) });
  assert.deepEqual(agesOf(page), KEPT);
  isAbout((await endsOf(user.id)).until, MONTH);
  const passkey = createPasskey();
  await register(user.host, passkey);
  const browser = await newBrowser();
  const { challenge } = await options(ALONE, browser);
  const fields = { credential: answer(passkey, challenge, user.id), stay: 'on' };
  assert.deepEqual(agesOf(await post(ALONE, browser, fields)), KEPT);
});

test('new tokens and a new password keep it, and a sign-out ends it', async () => {
  const { username, id } = await add();
  const first = await choose(username);
  const others = await post('/account/sessions/end', cookiesOf(first), { keys: 'revoke' });
  assert.deepEqual(agesOf(others), KEPT);
  const fields = { current_password: PASSWORD, new_password: OWN };
  const changed = await post('/account/password', cookiesOf(others), fields);
  assert.deepEqual(agesOf(changed), KEPT);
  isAbout((await endsOf(id)).until, MONTH);
  assert.deepEqual(agesOf(await post('/logout', cookiesOf(changed))), ['0', '0']);
});

test('a use each week keeps the session, up to its own limit, without the idle limit', async () => {
  const { username, id } = await add();
  const cookie = cookiesOf(await choose(username));
  const session = await endsOf(id);
  const use = () => writeLastSeen({ database, idleSeconds: 300 }, [session.id]);
  const pass = (seconds: number) => sql`
    update identity.sessions set last_seen_at = last_seen_at - make_interval(secs => ${seconds}),
      expires_at = expires_at - make_interval(secs => ${seconds}),
      stays_until = stays_until - make_interval(secs => ${seconds})
    where id = ${session.id}`;
  const isOpen = async () => (await show('/account', cookie)).status === 200;
  await pass(3_600);
  assert.equal(await isOpen(), true, 'beyond SESSION_IDLE_TTL');
  await use();
  isAbout((await endsOf(id)).end, WEEK - 3_600);
  await pass(2 * 86_400);
  await use();
  isAbout((await endsOf(id)).end, WEEK);
  await pass(24 * 86_400 + 3_600);
  assert.equal(await isOpen(), false, 'a week without a use');
  await use();
  assert.equal(await isOpen(), false, 'a late use revives nothing');
  await sql`update identity.sessions set expires_at = now() + interval '1 hour',
    stays_until = now() + interval '2 hours', last_seen_at = now() - interval '1 day'
    where id = ${session.id}`;
  await use();
  isAbout((await endsOf(id)).end, 2 * 3_600);
});

test('where it is not offered, it is neither shown nor taken', async (t) => {
  const other = await startPortal(t);
  assert.doesNotMatch((await other.visit('/login')).text, /name="stay"/);
  const { id, username } = await other.add();
  const page = await other.post('/login', '', { username, password: PASSWORD, stay: 'on' });
  assert.deepEqual(agesOf(page), NOT_KEPT);
  const [row] = await other.sql`select stays_until from identity.sessions where user_id = ${id}`;
  assert.equal(row?.stays_until, null);
});
