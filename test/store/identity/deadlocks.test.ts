/**
 * Changes that meet in the same rows take them in one order: none waits for the other until
 * PostgreSQL ends one of them.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import type { TransactionSql } from 'postgres';
import { connect } from '../../../scripts/postgres.ts';
import { sha256 } from '../../../src/platform/crypto/token.ts';
import { createApiKey, createSessionToken } from '../../../src/identity/token.ts';
import { untilSql } from '../../support/connections.ts';
import { createDatabase } from '../../support/database.ts';
import { type Answer, ask, startGatehouse } from '../../support/gatehouse.ts';
import { BEHIND_PROXY, newAddress } from '../../support/logins.ts';
import { meanwhile } from '../../support/meanwhile.ts';
import { rounds } from '../../support/rounds.ts';
import { type Person, storeUser } from '../../support/stored-users.ts';
import { PASSWORD } from '../../support/users.ts';

const ROUNDS = rounds(4, 24);

const { url, sql } = await createDatabase();
const gatehouses = [
  await startGatehouse({ after }, ['identity'], url, BEHIND_PROXY),
  await startGatehouse({ after }, ['identity'], url, BEHIND_PROXY),
];
const replicas = gatehouses.map((gatehouse) => gatehouse.url.identity);
const other = connect(url);
after(() => other.end());

type Meeting = Awaited<ReturnType<typeof createMeeting>>;
/** `what`: the method and the path. */
type Request = readonly [bearer: string | null, what: string, body?: unknown];

/** A user with eight further sessions and two further keys, and an administrator. */
async function createMeeting(isSuper: boolean) {
  const admin = await storeUser(sql, true);
  const user = await storeUser(sql, isSuper);
  const create = (count: number, createToken: () => string) =>
    Array.from({ length: count }, () => ({ id: randomUUID(), token: createToken() }));
  const sessions = create(8, createSessionToken);
  const keys = create(2, createApiKey);
  for (const { id, token } of sessions)
    await sql`insert into identity.sessions (id, token_digest, user_id, expires_at)
      values (${id}, ${sha256(token)}, ${user.user_id}, now() + interval '1 day')`;
  for (const { id, token } of keys)
    await sql`insert into identity.api_keys (id, key_digest, key_prefix, name, user_id)
      values (${id}, ${sha256(token)}, '', '', ${user.user_id})`;
  return { admin, user, sessions, keys };
}

/**
 * Requests that are sent together, in this order.
 * @param statuses what they may answer besides 200
 */
async function meet(
  statuses: readonly number[],
  requestsOf: (meeting: Meeting) => readonly Request[],
  isSuper = false,
): Promise<void> {
  for (let round = 0; round < ROUNDS; round += 1) {
    const requests = requestsOf(await createMeeting(isSuper));
    const headers = { 'x-forwarded-for': newAddress() };
    const answers = await Promise.all(
      requests.map(([bearer, what, body], index) => {
        // What is done together is done by one replica in one round, and by two in the next.
        const at = replicas[round % 2 === 1 ? index % 2 : 0];
        const [method = '', path = ''] = what.split(' ');
        const content = body === undefined ? {} : { body };
        const given = bearer === null ? content : { bearer, ...content };
        return ask(method, `${at}/api/${path}`, { ...given, headers });
      }),
    );
    for (const answer of answers)
      assert.ok(answer.status === 200 || statuses.includes(answer.status), answer.text);
  }
}

function changeOwn({ user }: Meeting): Request {
  const body = { current_password: PASSWORD, new_password: 'another passphrase' };
  return [user.session, 'POST auth/password', body];
}
const byAdmin =
  (method: string, more = '', body?: unknown) =>
  ({ admin, user }: Meeting): Request => [
    admin.session,
    `${method} user/${user.user_id}${more}`,
    body,
  ];
const CHANGES = {
  deleting: byAdmin('DELETE'),
  disabling: byAdmin('PATCH', '', { enabled: false }),
  promoting: byAdmin('PATCH', '', { super_admin: true }),
  securing: byAdmin('POST', '/secure'),
  'setting the password of': byAdmin('POST', '/password', { password: PASSWORD }),
  'by its own password, changing': changeOwn,
};

for (const [what, change] of Object.entries(CHANGES)) {
  test(`${what} a user beside the end of its sessions and keys`, () =>
    meet([], (meeting) => {
      const { admin, sessions, keys } = meeting;
      const revokeAll = (kind: string, all: Meeting['keys']) =>
        all.map(({ id }): Request => [admin.session, `DELETE ${kind}/${id}/revoke`]);
      const ended = sessions.slice(6);
      return [
        ...revokeAll('session', sessions.slice(0, 3)),
        change(meeting),
        ...revokeAll('session', sessions.slice(3, 6)),
        ...revokeAll('key', keys),
        ...ended.map(({ token }): Request => [null, 'POST auth/logout', { session: token }]),
      ];
    }));
}

test('a change of the own password beside logins from the same network', () =>
  meet([401, 429], (meeting) => {
    const { username } = meeting.user;
    const login = (password: string): Request => [null, 'POST auth/login', { username, password }];
    return [login('wrong'), changeOwn(meeting), login('wrong'), login(PASSWORD)];
  }));

test('administrators change each other, and end the sessions and keys they act with', () => {
  const names = { last_name: 'Changed' };
  const requestsOf = ({ admin, user, sessions, keys }: Meeting): readonly Request[] => {
    const [one = '', two = '', three = '', four = '', five = ''] = sessions.map(
      ({ token }) => token,
    );
    const [own, other] = keys;
    assert.ok(own && other);
    return [
      ...[one, two, admin.session].map((bearer): Request => [
        bearer,
        `PATCH user/${user.user_id}`,
        names,
      ]),
      [three, `PATCH user/${admin.user_id}`, names],
      [four, 'POST key/', { user_id: admin.user_id }],
      [admin.session, 'POST key/', { user_id: user.user_id }],
      [one, `DELETE session/${sessions[1]?.id}/revoke`],
      [two, `DELETE session/${sessions[0]?.id}/revoke`],
      [own.token, `DELETE key/${other.id}/revoke`],
      [other.token, `DELETE key/${own.id}/revoke`],
      [admin.key, `DELETE session/${sessions[0]?.id}/revoke`],
      [three, `DELETE key/${admin.key_id}/revoke`],
      [five, `DELETE session/revoke/all/user?user=${admin.user_id}`],
      [five, 'DELETE session/revoke/all'],
      [admin.session, 'DELETE session/revoke/all'],
      [admin.session, `DELETE session/revoke/all/user?user=${user.user_id}`],
    ];
  };
  return meet([201, 401, 403], requestsOf, true);
});

const holding =
  ({ user_id }: Person) =>
  (held: TransactionSql) =>
    held`select from identity.users where id = ${user_id} for no key update`;

test('a session is revoked only under the lock of its user, by its token and by its id', async () => {
  const admin = await storeUser(sql, true);
  for (const place of ['token', 'id'] as const) {
    const user = await storeUser(sql);
    const path = place === 'id' ? `${user.session_id}/revoke` : `revoke?session=${user.session}`;
    const [answer] = await meanwhile(other, holding(user), () => [
      ask('DELETE', `${replicas[0]}/api/session/${path}`, { bearer: admin.session }),
    ]);
    assert.equal(answer?.json.data.message, '1 session revoked.');
  }
});

test('a change locks users by their ids, before what ends all sessions and its credential', async () => {
  for (let round = 0; round < 4; round += 1) {
    const people = [await storeUser(sql, true), await storeUser(sql, true)];
    const [low, high] = people.sort((one, two) => (one.user_id < two.user_id ? -1 : 1));
    assert.ok(low && high);
    for (const [actor, target] of [
      [low, high],
      [high, low],
    ] as const) {
      const body = { last_name: 'Changed' };
      const path = `${replicas[0]}/api/user/${target.user_id}`;
      const answers: Answer[] = await meanwhile(
        other,
        holding(low),
        () => [ask('PATCH', path, { bearer: actor.session, body })],
        async () => {
          await sql`select from identity.users where id = ${high.user_id} for update nowait`;
          await sql`select from identity.global_revocation for update nowait`;
          await sql`select from identity.sessions where id = ${actor.session_id} for update nowait`;
        },
      );
      assert.equal(answers[0]?.status, 200);
    }
  }
});

test('PostgreSQL ended none of them', async () => {
  // A connection hands in its numbers at its end.
  await Promise.all(gatehouses.map(({ stop }) => stop()));
  const services = () => sql`
    select from pg_stat_activity
    where application_name = 'gatehouse-identity' and datname = current_database()`;
  // That of this file may remain.
  await untilSql(async () => (await services()).length <= 1, 'the services have left');
  const [row] = await sql`
    select deadlocks::int as n from pg_stat_database where datname = current_database()`;
  assert.equal(row?.n, 0);
});
