/**
 * Changes that meet in the same rows take them in one order: none waits for the other until
 * PostgreSQL ends one of them.
 */
import assert from 'node:assert/strict';
import { after, test, type TestContext } from 'node:test';
import { connect } from '../../../scripts/postgres.ts';
import { createDatabase, type TestDatabase } from '../../support/database.ts';
import { type Answer, ask, logIn, startGatehouse } from '../../support/gatehouse.ts';
import { BEHIND_PROXY, loginFrom, newAddress } from '../../support/logins.ts';
import { untilSql, openConnections } from '../../support/connections.ts';
import { rounds } from '../../support/rounds.ts';
import { addUser, openIdentity, PASSWORD, sessionOf } from '../../support/users.ts';
import type { Database, Sql } from '../../../src/platform/db/pool.ts';
import type { Data } from '../../../src/platform/runtime/errors.ts';
import { takeNamedLock } from '../../../src/identity/store/rights.ts';

const ROUNDS = rounds(6, 24);

const { url, sql } = await createDatabase();
const gatehouses = [
  await startGatehouse({ after }, ['identity'], url, BEHIND_PROXY),
  await startGatehouse({ after }, ['identity'], url, BEHIND_PROXY),
];
const replicas = gatehouses.map(({ url: { identity } }) => identity);
const database = openIdentity({ after }, url);

interface Meeting {
  /** A replica. */
  at(): string;
  /** A super administrator's. */
  readonly bearer: string;
  readonly user: string;
  readonly name: string;
  readonly address: string;
  /** The user's sessions. */
  readonly tokens: readonly string[];
}

let meetings = 0;

/**
 * Requests that are sent together, in this order.
 * @param status what they may answer besides 200
 */
async function meet(
  status: readonly number[],
  requests: (meeting: Meeting) => Promise<ReadonlyArray<() => Promise<Answer>>>,
): Promise<void> {
  for (let round = 0; round < ROUNDS; round += 1) {
    // Both by turns: what is done together is done by one in one round, and by two in the next.
    let turn = 0;
    const at = () => {
      if (round % 2 === 1) turn += 1;
      return replicas[turn % 2] ?? '';
    };
    meetings += 1;
    const name = `user-${meetings}`;
    const address = newAddress();
    const user = await addUser(database, name);
    const tokens = await Promise.all(Array.from({ length: 8 }, () => logIn(at(), name, PASSWORD)));
    const answers = await Promise.all(
      (await requests({ at, bearer: await logIn(at()), user, name, address, tokens })).map((send) =>
        send(),
      ),
    );
    for (const answer of answers)
      assert.ok(answer.status === 200 || status.includes(answer.status), answer.text);
  }
}

type Send = (meeting: Meeting) => Promise<Answer>;
const change =
  (method: string, path: string, body?: unknown): Send =>
  ({ at, bearer, user }) =>
    ask(method, `${at()}/api/user/${user}${path}`, {
      bearer,
      ...(body === undefined ? {} : { body }),
    });
const changeOwn: Send = ({ at, address, tokens }) =>
  ask('POST', `${at()}/api/auth/password`, {
    bearer: tokens.at(-1) ?? '',
    body: { current_password: PASSWORD, new_password: 'another passphrase' },
    headers: { 'x-forwarded-for': address },
  });

const CHANGES: ReadonlyArray<readonly [what: string, send: Send]> = [
  ['deleting a user', change('DELETE', '')],
  ['disabling a user', change('PATCH', '', { enabled: false })],
  ['securing the account', change('POST', '/secure')],
  ['a promotion', change('PATCH', '', { super_admin: true })],
  ['setting a password', change('POST', '/password', { password: PASSWORD })],
  ['a change of the own password', changeOwn],
];

for (const [what, send] of CHANGES) {
  test(`${what} beside the end of the user's sessions and keys`, () =>
    meet([], async (meeting) => {
      const { at, bearer, user, tokens } = meeting;
      const ids = await Promise.all(tokens.map(async (token) => (await sessionOf(at(), token)).id));
      const keys = await Promise.all(
        [1, 2].map(
          async () =>
            (await ask('POST', `${at()}/api/key/`, { bearer, body: { user_id: user } })).json.data
              .id,
        ),
      );
      const revoke = (id: string) => () =>
        ask('DELETE', `${at()}/api/session/${id}/revoke`, { bearer });
      const revokeKey = (id: string) => () =>
        ask('DELETE', `${at()}/api/key/${id}/revoke`, { bearer });
      const logout = (session: string) => () =>
        ask('POST', `${at()}/api/auth/logout`, { body: { session } });
      // The last session comes from the change of the own password.
      return [
        ...ids.slice(0, 3).map(revoke),
        () => send(meeting),
        ...ids.slice(3, 5).map(revoke),
        ...keys.map(revokeKey),
        ...tokens.slice(5, 7).map(logout),
      ];
    }));
}

test('a change of the own password beside logins from the same network', () =>
  meet([401, 429], async (meeting) => {
    const login = (password: string) => () =>
      loginFrom(meeting.at(), meeting.address, meeting.name, password);
    return [login('wrong'), () => changeOwn(meeting), login('wrong'), login(PASSWORD)];
  }));

test('a session is revoked only under the lock of its user, by its token and by its id', async (t) => {
  const [identity = ''] = replicas;
  const user = await addUser(database, 'locked');
  const other = connect(url);
  t.after(() => other.end());
  const bearer = await logIn(identity);
  for (const place of ['token', 'id'] as const) {
    const session = await logIn(identity, 'locked', PASSWORD);
    const { id } = await sessionOf(identity, session);
    const path = place === 'id' ? `${id}/revoke` : `revoke?session=${session}`;
    let isAnswered = false;
    let answer: Promise<Answer> | undefined;
    await other.begin(async (held) => {
      await held`select from identity.users where id = ${user} for no key update`;
      const sent = ask('DELETE', `${identity}/api/session/${path}`, { bearer });
      answer = sent.finally(() => {
        isAnswered = true;
      });
      const waiting = () => sql`
        select from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'`;
      await untilSql(async () => isAnswered || (await waiting()).length > 0, 'it waits');
      assert.equal(isAnswered, false, `by its ${place}`);
    });
    assert.equal((await answer)?.json.data.message, '1 session revoked.');
  }
});

test('administrators change each other, and end the sessions and keys they act with', () =>
  meet([201, 401, 403], async ({ at, bearer, user, name }) => {
    const send = (as: string, method: string, path: string, body?: unknown) => () =>
      ask(method, `${at()}/api/${path}`, { bearer: as, ...(body === undefined ? {} : { body }) });
    await send(bearer, 'PATCH', `user/${user}`, { super_admin: true })();
    const admin = await sessionOf(at(), bearer);
    const enter = () => logIn(at(), name, PASSWORD);
    const tokens = await Promise.all([enter(), enter(), enter(), enter(), enter()]);
    const [one, two, three, four, five] = tokens;
    const first = (await sessionOf(at(), one)).id;
    const second = (await sessionOf(at(), two)).id;
    const key = async (as: string) => (await send(as, 'POST', 'key/', {})()).json.data;
    const own = await key(one);
    const other = await key(one);
    const admins = await key(bearer);
    const names = { last_name: 'Changed' };
    return [
      send(one, 'PATCH', `user/${user}`, names),
      send(two, 'PATCH', `user/${user}`, names),
      send(bearer, 'PATCH', `user/${user}`, names),
      send(three, 'PATCH', `user/${admin.user_id}`, names),
      send(four, 'POST', 'key/', { user_id: admin.user_id }),
      send(bearer, 'POST', 'key/', { user_id: user }),
      send(one, 'DELETE', `session/${second}/revoke`),
      send(two, 'DELETE', `session/${first}/revoke`),
      send(own.key, 'DELETE', `key/${other.id}/revoke`),
      send(other.key, 'DELETE', `key/${own.id}/revoke`),
      send(admins.key, 'DELETE', `session/${first}/revoke`),
      send(three, 'DELETE', `key/${admins.id}/revoke`),
      send(five, 'DELETE', `session/revoke/all/user?user=${admin.user_id}`),
      send(five, 'DELETE', 'session/revoke/all'),
      send(bearer, 'DELETE', 'session/revoke/all'),
      send(bearer, 'DELETE', `session/revoke/all/user?user=${user}`),
    ];
  }));

test('PostgreSQL ended none of them', async () => {
  // A connection hands in its numbers at its end.
  await Promise.all(gatehouses.map(({ stop }) => stop()));
  const services = () => sql`select from pg_stat_activity
    where application_name = 'gatehouse-identity' and datname = current_database()`;
  // Those of this file remain.
  await untilSql(async () => (await services()).length <= 2, 'the services have left');
  const [row] =
    await sql`select deadlocks::int as n from pg_stat_database where datname = current_database()`;
  assert.equal(row?.n, 0);
});

async function createTables(t: TestContext): Promise<TestDatabase> {
  const file = await createDatabase(t);
  await file.sql`create table identity.firsts (who integer)`;
  return file;
}

const open = (t: TestContext, { url }: TestDatabase) => openConnections(t, url, 'identity');

const withNamedLock = <T extends Data>(
  database: Database,
  name: string,
  work: (sql: Sql) => Promise<T>,
) =>
  database.transaction(async (sql) => {
    await takeNamedLock(sql, name);
    return work(sql);
  });

test('holders of a named lock see what the previous holder committed', async (t) => {
  const file = await createTables(t);
  const replicas = Array.from({ length: 6 }, () => open(t, file));
  const turn = (replica: number) => {
    const database = replicas[replica % replicas.length];
    assert.ok(database);
    return withNamedLock(database, 'first', async (sql) => {
      if ((await sql`select from identity.firsts`).length > 0) return false;
      await sql`insert into identity.firsts values (${replica})`;
      return true;
    });
  };
  // In the first round nobody has ever taken a turn; in the second, somebody has.
  for (const round of ['first', 'second']) {
    const wins = await Promise.all(Array.from({ length: 24 }, (_, index) => turn(index)));
    assert.equal(wins.filter(Boolean).length, 1, `${round} round`);
    assert.equal((await file.sql`delete from identity.firsts`).count, 1);
  }
});

test('a failed holder of a named lock leaves nothing behind and frees the lock', async (t) => {
  const file = await createTables(t);
  const database = open(t, file);
  const failed = withNamedLock(database, 'first', async (sql) => {
    await sql`insert into identity.firsts values (99)`;
    throw new RangeError('on purpose');
  });
  await assert.rejects(failed, RangeError);
  assert.equal((await file.sql`select from identity.firsts`).length, 0);
  assert.equal(await withNamedLock(database, 'first', async () => 'in'), 'in');
});
