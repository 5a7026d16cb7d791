/** Staying signed in on a device: if the operator offers it and the person chooses it. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { totpCode } from '../../../../src/identity/factors/codes.ts';
import { writeLastSeen } from '../../../../src/identity/store/housekeeping.ts';
import { factorsOf, PENDING } from '../../../support/factors.ts';
import { cookieFrom, type Page, startPortal } from '../../../support/portal.ts';
import { openIdentity, PASSWORD } from '../../../support/users.ts';

const MONTH = 30 * 86_400;
const WEEK = 7 * 86_400;
const portal = await startPortal(
  { after },
  { SESSION_STAY_TTL: String(MONTH), SESSION_IDLE_TTL: '300' },
);
const { sql, add, visit, databaseUrl } = portal;
const { stepNow, forgetSteps, enrol, register, newBrowser, options, answer } = factorsOf(portal);
const database = openIdentity({ after }, databaseUrl);

const signIn = (username: string, more: object = {}, cookie?: string) =>
  visit('/login', {
    fields: { username, password: PASSWORD, return_to: '', ...more },
    ...(cookie === undefined ? {} : { cookie }),
  });
const ageOf = ({ cookies }: Page, name: string) =>
  /Max-Age=(\d+)/.exec(cookies.find((one) => one.startsWith(`${name}=`)) ?? '')?.[1];
const agesOf = (page: Page) =>
  ['__Host-gatehouse', '__Secure-gatehouse'].map((name) => ageOf(page, name));
const KEPT = [String(MONTH), String(MONTH)];
/** The cookies as a browser sends them. */
const cookiesOf = (page: Page) =>
  ['__Host-gatehouse', '__Secure-gatehouse', PENDING]
    .map((name) => cookieFrom(page, name))
    .filter(Boolean)
    .join('; ');
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
  const usual = await signIn(username);
  assert.deepEqual(agesOf(usual), [undefined, undefined]);
  assert.equal((await endsOf(id)).until, null);
  const staying = await signIn(username, { stay: 'on' });
  assert.deepEqual(agesOf(staying), KEPT);
  const ends = await endsOf(id);
  isAbout(ends.end, WEEK);
  isAbout(ends.until, MONTH);
  const next = await signIn(username, {}, cookiesOf(staying));
  assert.deepEqual(agesOf(next), [undefined, undefined], 'not for the next');
});

test('it is kept through the second factor and by passkey', async () => {
  const { username, id } = await add();
  const { secret, host } = await enrol(username);
  const first = await signIn(username, { stay: 'on' });
  await forgetSteps(id);
  const code = totpCode(secret, await stepNow());
  const cookie = cookiesOf(first);
  const page = await visit('/login/code', { fields: { code, return_to: '' }, cookie });
  assert.deepEqual(agesOf(page), KEPT);
  isAbout((await endsOf(id)).until, MONTH);

  const { createPasskey } = await import('../../../support/authenticator.ts');
  const passkey = createPasskey();
  await register(host, passkey);
  const browser = await newBrowser();
  const { challenge } = await options('/login/passkey', browser);
  const fields = { credential: answer(passkey, challenge, id), return_to: '', stay: 'on' };
  assert.deepEqual(agesOf(await visit('/login/passkey', { fields, cookie: browser })), KEPT);
});

test('new tokens and a new password keep it, and a sign-out ends it', async () => {
  const { username, id } = await add();
  const cookie = cookiesOf(await signIn(username, { stay: 'on' }));
  const others = await visit('/account/sessions/end', { fields: { keys: 'revoke' }, cookie });
  assert.deepEqual(agesOf(others), KEPT);
  const fields = { current_password: PASSWORD, new_password: 'a longer one than that' };
  const changed = await visit('/account/password', { fields, cookie: cookiesOf(others) });
  assert.deepEqual(agesOf(changed), KEPT);
  isAbout((await endsOf(id)).until, MONTH);
  const out = await visit('/logout', { fields: { x: '' }, cookie: cookiesOf(changed) });
  assert.deepEqual(agesOf(out), ['0', '0']);
});

test('a use each week keeps the session, up to its own limit, without the idle limit', async () => {
  const { username, id } = await add();
  const page = await signIn(username, { stay: 'on' });
  const cookie = cookiesOf(page);
  const session = await endsOf(id);
  const use = () => writeLastSeen({ database, idleSeconds: 300 }, [session.id]);
  const pass = (seconds: number) => sql`
    update identity.sessions set last_seen_at = last_seen_at - make_interval(secs => ${seconds}),
      expires_at = expires_at - make_interval(secs => ${seconds}),
      stays_until = stays_until - make_interval(secs => ${seconds})
    where id = ${session.id}`;
  const isOpen = async () => (await visit('/account', { cookie })).status === 200;
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
  const { username } = await other.add();
  const fields = { username, password: PASSWORD, return_to: '', stay: 'on' };
  const page = await other.visit('/login', { fields });
  assert.equal(
    page.cookies.some((one) => /Max-Age=[1-9]/.test(one)),
    false,
  );
});
