/**
 * Credentials that are looked up together: each gets its own answer, and nothing is kept from one
 * statement to the next.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { ask } from '../../../support/gatehouse.ts';
import { startIdentity } from '../../../support/api-users.ts';
import { exchangeAtOnce, headOf } from '../../../support/socket.ts';
import { isOpen, sessionOf } from '../../../support/users.ts';
import { rounds } from '../../../support/rounds.ts';
import { until } from '../../../support/until.ts';

const started = await startIdentity({ after }, { TRUSTED_PROXIES: '127.0.0.1' });
const { identity, sql, admin, call, enter, key } = started;

/** @returns who each is taken for, or the status of its refusal */
async function inOneTurn(
  credentials: readonly string[],
  network: number,
): Promise<Array<string | number>> {
  // Each from a network of its own: wrong credentials are limited by network.
  const lines = [
    'GET /api/test/ HTTP/1.1',
    'Host: gatehouse',
    `X-Forwarded-For: 192.0.2.${network}`,
  ];
  const answers = await exchangeAtOnce(
    identity,
    credentials.map((one) => headOf([...lines, one])),
  );
  return answers.map(({ status, json }) =>
    status === 200 ? String(json.data.user.username) : status,
  );
}

const bearer = (token: string) => `Authorization: Bearer ${token}`;

test('credentials sent at the same moment are each answered for themselves', async () => {
  const people = [await enter(), await enter(), await enter()];
  const one = people[0] ?? assert.fail();
  const two = people[1] ?? assert.fail();
  const three = people[2] ?? assert.fail();
  const revoked = await enter();
  const expired = await enter();
  const loggedOut = await enter();
  const deleted = await enter();
  await call(admin.token, 'DELETE', `/api/session/revoke?session=${revoked.token}`);
  await sql`update identity.sessions set expires_at = now() - interval '1 second'
    where id = ${(await sessionOf(identity, expired.token)).id}`;
  await ask('POST', `${identity}/api/auth/logout`, { body: { session: loggedOut.token } });
  await sql`update identity.sessions set deleted_at = now()
    where id = ${(await sessionOf(identity, deleted.token)).id}`;
  const ofOne = await key(one);
  const ofTwo = await key(two);
  const ofNobody = await key(null);
  const revokedKey = await key(one);
  const expiredKey = await key(one);
  await call(admin.token, 'DELETE', `/api/key/${revokedKey.id}/revoke`);
  await sql`update identity.api_keys set expires_at = now() - interval '1 second'
    where id = ${expiredKey.id}`;
  const unknown = `session:${randomUUID()}`;
  const known: ReadonlyArray<readonly [header: string, taken: string | number]> = [
    [bearer(one.token), one.username],
    [bearer(unknown), 401],
    [bearer(revoked.token), 401],
    [bearer(ofOne.key), one.username],
    [bearer(expired.token), 401],
    [bearer(two.token), two.username],
    [bearer(revokedKey.key), 401],
    [`X-API-Key: ${ofTwo.key}`, two.username],
    [bearer(loggedOut.token), 401],
    [bearer(expiredKey.key), 401],
    [bearer(one.token), one.username],
    [bearer('session:garbage'), 401],
    [bearer(deleted.token), 401],
    // Known, but of no user, whom this answer would be about.
    [bearer(ofNobody.key), 403],
    [bearer(three.token), three.username],
    ['X-Nothing: at all', 401],
    [bearer(admin.token), 'admin'],
  ];
  // Turned by one each time, so that each is once the first, the last, and beside every other.
  for (let first = 0; first < known.length; first += 1) {
    const turned = [...known.slice(first), ...known.slice(0, first)];
    const many = [...turned, ...turned.slice().reverse()];
    assert.deepEqual(
      await inOneTurn(
        many.map(([header]) => header),
        first,
      ),
      many.map(([, taken]) => taken),
    );
  }
});

/** Clients that ask without a pause until they are told to stop. */
function clients(tokens: readonly string[]) {
  let isRunning = true;
  const answered = { open: 0, refused: 0, other: 0 };
  const one = async (token: string) => {
    while (isRunning) {
      const { status } = await ask('GET', `${identity}/api/test/`, { bearer: token });
      if (status === 200) answered.open += 1;
      else if (status === 401) answered.refused += 1;
      else answered.other += 1;
    }
  };
  const all = Promise.all(tokens.map(one));
  return {
    answered,
    async stop() {
      isRunning = false;
      await all;
    },
  };
}

test('a revoked session or key is rejected after the reply, under concurrent use', async () => {
  const people = await Promise.all(Array.from({ length: 4 }, () => enter()));
  const others = clients(people.map(({ token }) => token));
  for (let round = 0; round < rounds(4, 12); round += 1) {
    const person = await enter();
    const own = await key(person);
    // The one that is revoked is asked for all the time, so that a statement with it is always
    // under way.
    const [credential, path] =
      round % 2 === 0
        ? [person.token, `/api/session/revoke?session=${person.token}`]
        : [own.key, `/api/key/${own.id}/revoke`];
    const withIt = clients([credential, credential, credential]);
    while (withIt.answered.open < 10) assert.equal(await isOpen(identity, credential), true);
    assert.equal((await call(admin.token, 'DELETE', path)).status, 200);
    const statuses = await Promise.all(
      Array.from({ length: 20 }, async () => isOpen(identity, credential)),
    );
    assert.deepEqual(statuses, Array<boolean>(20).fill(false), `round ${round}`);
    await withIt.stop();
    assert.equal(withIt.answered.other, 0);
  }
  await until(() => others.answered.open > 200, 'the others were asked for as well');
  await others.stop();
  assert.deepEqual(
    [others.answered.refused, others.answered.other],
    [0, 0],
    'no other credential was rejected',
  );
});
