/** Programs are told that a session has ended, once, and again if they did not hear it. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { readToken, startProvider } from '../../../support/oidc.ts';
import { ORIGIN } from '../../../support/portal.ts';
import { reply, startRecorder } from '../../../support/recorder.ts';

const provider = await startProvider({ after });
const { sql } = provider;
const web = await provider.register('web');

const program = await startRecorder({ after });
program.answer(reply(200, ''));
// Only https is accepted; the test has no certificate.
await sql`update identity.oidc_clients set backchannel_uri = ${`${program.url}/out`}`;

async function signedIn() {
  const user = await provider.enter();
  const { host } = await provider.signIn(user.username);
  const { id_token } = await provider.tokensFor(web, host);
  return { user, host, sid: readToken(id_token).claims.sid };
}
const tell = () => provider.runJobs(/tell programs/);

let seen = 0;
/** What the program has been told since the last call. */
function told() {
  const all = program.received.slice(seen);
  seen += all.length;
  return all.map(({ target, body }) => ({
    target,
    ...readToken(new URLSearchParams(body).get('logout_token') ?? ''),
  }));
}

const endSession = (id: string) => sql`update identity.sessions set revoked = true
  where user_id = ${id}`;

test('a program learns of the end of a session, with its id, and once', async () => {
  const { user, sid } = await signedIn();
  await tell();
  assert.equal(told().length, 0);
  await endSession(user.id);
  await tell();
  await tell();
  const [notice, ...more] = told();
  assert.equal(more.length, 0);
  assert.ok(notice);
  const { head, claims, target } = notice;
  const { iat, exp, jti, ...rest } = claims;
  assert.deepEqual(rest, {
    iss: ORIGIN,
    aud: 'web',
    sub: user.id,
    sid,
    events: { 'http://schemas.openid.net/event/backchannel-logout': {} },
  });
  assert.deepEqual([head.typ, target, typeof jti], ['logout+jwt', '/out', 'string']);
  assert.equal(Number(exp) - Number(iat), 120);
});

test('not if it has never exchanged its code', async () => {
  const user = await provider.enter();
  const { host } = await provider.signIn(user.username);
  await provider.codeFor(web, host);
  await endSession(user.id);
  await tell();
  assert.equal(told().length, 0);
});

test('also if all sessions end at once, or the person ends the access', async () => {
  const first = await signedIn();
  await provider.call(
    provider.admin.token,
    'DELETE',
    `/api/session/revoke/all/user?user=${first.user.id}`,
  );
  const second = await signedIn();
  const fields = { client_id: 'web' };
  await provider.visit('/account/programs/end', { cookie: second.host, fields });
  await tell();
  assert.equal(told().length, 2);
});

test('a program that fails, or sends the token on, is asked three times', async () => {
  for (const status of [500, 302]) {
    program.answer(reply(status, '', { location: '/elsewhere' }));
    const { user } = await signedIn();
    await endSession(user.id);
    for (let minute = 0; minute < 5; minute += 1) {
      await tell();
      await sql`update identity.oidc_grants set notice_at = notice_at - interval '1 minute'`;
    }
    const paths = told().map(({ target }) => target);
    assert.deepEqual(paths, ['/out', '/out', '/out']);
  }
  program.answer(reply(200, ''));
});

test('a logout token is no hint of a sign-in', async () => {
  const { user, host, sid } = await signedIn();
  assert.ok(sid);
  await endSession((await signedIn()).user.id);
  await tell();
  const body = program.received.at(-1)?.body ?? '';
  const id_token_hint = new URLSearchParams(body).get('logout_token') ?? '';
  const query = new URLSearchParams({ id_token_hint });
  const page = await provider.visit(`/oidc/logout?${query}`, { cookie: host });
  assert.match(page.text, /asks you to sign out/);
  assert.notEqual(user.id, '');
});
