/** Staying signed in on a device: if the operator offers it and the person chooses it. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { writeLastSeen } from '../../../../src/identity/store/housekeeping.ts';
import { createPasskey } from '../../../support/authenticator.ts';
import { ALONE, startSignIn } from '../../../support/factors.ts';
import { OWN, type Page, startPortal } from '../../../support/portal.ts';
import { openIdentity, PASSWORD } from '../../../support/users.ts';

const WEEK = 7 * 86_400;
const MONTH = 30 * 86_400;
const settings = { SESSION_STAY_TTL: String(MONTH), SESSION_IDLE_TTL: '300' };
const portal = await startSignIn({ after }, settings);
const { sql, add, visit, show, post, databaseUrl } = portal;
const { addEnrolled, freshCode, register, newBrowser, options, answer } = portal;
const database = openIdentity({ after }, databaseUrl);

const signIn = (username: string, more: Record<string, string> = { stay: 'on' }, cookie = '') =>
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
  assert.deepEqual(agesOf(await signIn(username, {})), NOT_KEPT);
  assert.equal((await endsOf(id)).until, null);
  const staying = await signIn(username);
  assert.deepEqual(agesOf(staying), KEPT);
  const ends = await endsOf(id);
  isAbout(ends.end, WEEK);
  isAbout(ends.until, MONTH);
  const next = await signIn(username, {}, cookiesOf(staying));
  assert.deepEqual(agesOf(next), NOT_KEPT, 'not for the next');
});

test('it is kept through the second factor and by passkey', async () => {
  const user = await addEnrolled();
  const { pending } = await signIn(user.username);
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
  const first = await signIn(username);
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
  const cookie = cookiesOf(await signIn(username));
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
