/** How one session ends, at every replica, and how tokens and ids are told apart meanwhile. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { startIdentity } from '../../../support/api-users.ts';
import { ask, assertStatus, logIn, startGatehouse } from '../../../support/gatehouse.ts';
import { meanwhile } from '../../../support/meanwhile.ts';
import { exchangeAtOnce, headOf } from '../../../support/socket.ts';
import {
  assertError,
  assertRevoked,
  assertSession,
  assertSuccess,
  isOpen,
  PASSWORD,
  sessionOf,
} from '../../../support/users.ts';

const { identity, databaseUrl, sql, admin, call, enter, key } = await startIdentity(
  { after },
  { TRUSTED_PROXIES: '127.0.0.1' },
);
const there = (await startGatehouse({ after }, ['identity'], databaseUrl)).url.identity;

/** A user with a session that is known to be open at both replicas. */
async function openSession() {
  const user = await enter();
  const { id: session } = await sessionOf(there, user.token);
  assert.equal(await isOpen(identity, user.token), true);
  return { ...user, session };
}
type Open = Awaited<ReturnType<typeof openSession>>;

const logOut = (session: string) => call(null, 'POST', '/api/auth/logout', { session });
const revoke = (path: string) => call(admin.token, 'DELETE', `/api/session/${path}`);
const expire = ({ session }: Open) =>
  sql`update identity.sessions set expires_at = now() where id = ${session}`;

const ENDS: Readonly<Record<string, (open: Open) => PromiseLike<unknown>>> = {
  'its time is up': expire,
  'it is deleted': ({ session }) =>
    sql`update identity.sessions set deleted_at = now() where id = ${session}`,
  'its user is disabled': ({ id }) =>
    sql`update identity.users set enabled = false where id = ${id}`,
  'its user is deleted': ({ id }) =>
    sql`update identity.users set deleted_at = now() where id = ${id}`,
  'it logs out': ({ token }) => logOut(token),
  'it is revoked by its token': ({ token }) => revoke(`revoke?session=${token}`),
  'it is revoked by its token in Base64': ({ token }) =>
    revoke(`revoke?session=${encodeURIComponent(btoa(token))}`),
  'it is revoked by its id': ({ session }) => revoke(`${session}/revoke`),
  'its user revokes it by its id in capitals': ({ token, session }) =>
    call(token, 'DELETE', `/api/session/${session.toUpperCase()}/revoke`),
  'all of its user are revoked': ({ id }) => revoke(`revoke/all/user?user=${id}`),
};

for (const [when, end] of Object.entries(ENDS)) {
  test(`a session has ended at once, at every replica, when ${when}`, async () => {
    const open = await openSession();
    const other = await logIn(identity, open.username, PASSWORD);
    await end(open);
    for (const url of [identity, there]) {
      const lookUp = await ask('POST', `${url}/api/auth/session`, {
        body: { session: open.token },
      });
      assertError(lookUp, 401, 'invalid_session');
      assertError(
        await ask('GET', `${url}/api/test/`, { bearer: open.token }),
        401,
        'unauthorized',
      );
    }
    assert.equal(await isOpen(there, other), !/user is|all of/.test(when));
  });
}

const AFTER_ENDS: ReadonlyArray<
  readonly [what: string, end: (open: Open) => PromiseLike<unknown>, flags: boolean[], count: 0 | 1]
> = [
  ['a revocation', ({ session }) => revoke(`${session}/revoke`), [true, false, false], 0],
  ['a logout', ({ token }) => logOut(token), [false, true, false], 1],
  ['its expiry', expire, [false, false, true], 1],
];

for (const [what, end, flags, count] of AFTER_ENDS) {
  test(`after ${what}, a session keeps its flags through a logout, and ends once`, async () => {
    const open = await openSession();
    await end(open);
    const info = () => call(admin.token, 'GET', `/api/session/info?session=${open.token}`);
    for (const look of [info, () => logOut(open.token).then(info)]) {
      const answer = await look();
      assertSuccess(answer);
      assertSession(answer.json.data);
      const { revoked, logged_out, expires_at, created_at, updated_at } = answer.json.data;
      assert.deepEqual([revoked, logged_out, Date.parse(expires_at) < Date.now()], flags);
      assert.equal(updated_at > created_at, what !== 'its expiry');
    }
    assertRevoked(
      await revoke(`revoke?session=${open.token}`),
      `${count} session${count === 1 ? '' : 's'} revoked.`,
    );
    assertRevoked(await revoke(`${open.session}/revoke`), '0 sessions revoked.');
  });
}

test('simultaneous revocations of one session count it once', async () => {
  const { token } = await openSession();
  const answers = await Promise.all(
    Array.from({ length: 5 }, () => revoke(`revoke?session=${token}`)),
  );
  const messages = answers.map(({ json }) => json.data.message).sort();
  assert.deepEqual(messages, [
    ...new Array<string>(4).fill('0 sessions revoked.'),
    '1 session revoked.',
  ]);
});

test('a logout that waits for another end of the session changes nothing and is not recorded', async () => {
  for (const end of ['revoked', 'logged_out']) {
    const { token, session } = await openSession();
    const [answer = assert.fail()] = await meanwhile(
      sql,
      (held) => held`update identity.sessions set ${held(end)} = true where id = ${session}`,
      () => [logOut(token)],
    );
    assertSuccess(answer);
    const [row] = await sql`
      select revoked, logged_out, (select count(*)::int from identity.audit
        where event = 'session.logged_out' and target_id = s.id) as recorded
      from identity.sessions s where id = ${session}`;
    const expected = { revoked: end === 'revoked', logged_out: end === 'logged_out', recorded: 0 };
    assert.deepEqual({ ...row }, expected);
  }
});

test('a logout needs no bearer, may be repeated, and takes only tokens', async () => {
  const { token, session, username } = await openSession();
  const other = await logIn(identity, username, PASSWORD);
  for (const known of [token, token, `session:${randomUUID()}`]) {
    const answer = await logOut(known);
    assertSuccess(answer);
    assert.equal(answer.json.data, null);
  }
  for (const wrong of [session, `session:${session.toUpperCase()}`, 'garbage', `${other}x`])
    assertError(await logOut(wrong), 400, 'invalid_body', ['/session']);
  assert.equal(await isOpen(identity, other), true);
});

test('a deleted session gets the same reply as an unknown one', async () => {
  const { token, session } = await openSession();
  await sql`update identity.sessions set deleted_at = now() where id = ${session}`;
  const info = await call(admin.token, 'GET', `/api/session/info?session=${token}`);
  assertError(info, 400, 'invalid_session_token');
  assertError(await revoke(`revoke?session=${token}`), 400, 'invalid_session_token');
  assertError(await revoke(`${session}/revoke`), 404, 'not_found');
});

test("only the database's clock counts, for the lifetime and for the end of a session", async (t) => {
  const { url } = await startGatehouse(t, ['identity'], databaseUrl, { SESSION_TTL: '90' });
  const token = await logIn(url.identity);
  const { id } = await sessionOf(identity, token);
  const [row] = await sql`select expires_at - created_at = interval '90 seconds' as exact
    from identity.sessions where id = ${id}`;
  assert.equal(row?.exact, true);
  await sql`update identity.sessions set expires_at = now() + interval '1 minute' where id = ${id}`;
  assert.equal(await isOpen(there, token), true);
});

test('a change of a user is visible at the next request, at every replica', async () => {
  const { token: bearer, id } = await openSession();
  const audit = () => ask('GET', `${there}/api/audit/`, { bearer });
  assertStatus(await audit(), 403);
  await sql`update identity.users set super_admin = true, first_name = 'Changed' where id = ${id}`;
  const { json } = await ask('GET', `${there}/api/test/`, { bearer });
  assert.equal(json.data.user.first_name, 'Changed');
  assertStatus(await audit(), 200);
});

test('credentials sent at the same moment are each answered for themselves', async () => {
  const one = await enter();
  const two = await enter();
  const out = await openSession();
  await logOut(out.token);
  const known: ReadonlyArray<readonly [credential: string, taken: string | number]> = [
    [one.token, one.username],
    [`session:${randomUUID()}`, 401],
    [(await key(one)).key, one.username],
    [out.token, 401],
    [two.token, two.username],
    [(await key(two)).key, two.username],
    [admin.token, 'admin'],
  ];
  // Each beside others before and behind it.
  const many = [...known, ...[...known].reverse(), ...known];
  const head = ['GET /api/test/ HTTP/1.1', 'Host: gatehouse', 'X-Forwarded-For: 192.0.2.9'];
  const answers = await exchangeAtOnce(
    identity,
    many.map(([credential]) => headOf([...head, `Authorization: Bearer ${credential}`])),
  );
  assert.deepEqual(
    answers.map(({ status, json }) => (status === 200 ? json.data.user.username : status)),
    many.map(([, taken]) => taken),
  );
});
