/** Programs are told that a session has ended, once, and again if they did not hear it. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { readToken, startProvider } from '../../../support/oidc.ts';
import { ORIGIN } from '../../../support/portal.ts';
import { reply, startRecorder } from '../../../support/recorder.ts';

const provider = await startProvider({ after });
const { sql, call, admin } = provider;
const web = await provider.register('web');
const program = await startRecorder({ after });
program.answer(reply(200, ''));
// Only https is accepted; the test has no certificate.
await sql`update identity.oidc_clients set backchannel_uri = ${`${program.url}/out`}`;

async function signedIn() {
  const user = await provider.addSignedIn();
  const { id_token } = await provider.tokensFor(web, user.host);
  return { ...user, sid: readToken(id_token).claims.sid };
}
const endSession = (id: string) =>
  sql`update identity.sessions set revoked = true where user_id = ${id}`;
let seen = 0;
/** Tells programs. @returns what they have been told */
async function told() {
  await provider.runJobs(/tell programs/);
  const all = program.received.slice(seen);
  seen += all.length;
  return all.map(({ target, body }) => {
    const token = new URLSearchParams(body).get('logout_token') ?? '';
    return { target, token, ...readToken(token) };
  });
}

test('a program learns of the end of a session, with its id, and once', async () => {
  const { id, sid } = await signedIn();
  assert.equal((await told()).length, 0);
  await endSession(id);
  const [notice = assert.fail(), ...more] = await told();
  assert.deepEqual([...more, ...(await told())], []);
  const { iat, exp, jti, ...claims } = notice.claims;
  assert.deepEqual(claims, {
    iss: ORIGIN,
    aud: 'web',
    sub: id,
    sid,
    events: { 'http://schemas.openid.net/event/backchannel-logout': {} },
  });
  assert.deepEqual([notice.head.typ, notice.target, typeof jti], ['logout+jwt', '/out', 'string']);
  assert.equal(Number(exp) - Number(iat), 120);
  // It is no hint of a sign-in.
  const { host } = await provider.addSignedIn();
  const page = await provider.show(`/oidc/logout?id_token_hint=${notice.token}`, host);
  assert.match(page.text, /asks you to sign out/);
});

test('not if it has never exchanged its code', async () => {
  const { id, host } = await provider.addSignedIn();
  await provider.codeFor(web, host);
  await endSession(id);
  assert.equal((await told()).length, 0);
});

test('also if all sessions end at once, or the person ends the access', async () => {
  const { id } = await signedIn();
  await call(admin.token, 'DELETE', `/api/session/revoke/all/user?user=${id}`);
  const { host } = await signedIn();
  await provider.post('/account/programs/end', host, { client_id: 'web' });
  assert.equal((await told()).length, 2);
});

for (const status of [500, 302]) {
  test(`a program that answers ${status} is asked three times`, async (t) => {
    program.answer(reply(status, '', { location: '/elsewhere' }));
    t.after(() => program.answer(reply(200, '')));
    await endSession((await signedIn()).id);
    const paths = [];
    for (let minute = 0; minute < 5; minute += 1) {
      paths.push(...(await told()).map(({ target }) => target));
      await sql`update identity.oidc_grants set notice_at = notice_at - interval '1 minute'`;
    }
    assert.deepEqual(paths, ['/out', '/out', '/out']);
  });
}
