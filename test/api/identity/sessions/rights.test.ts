/** Rights that end while a request is on its way. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { ask, startGatehouse } from '../../../support/gatehouse.ts';
import { startIdentity } from '../../../support/api-users.ts';
import { stopClock } from '../../../support/clock.ts';
import { connectTo, headOf } from '../../../support/socket.ts';
import { until } from '../../../support/until.ts';
import { assertError, assertSuccess, PASSWORD } from '../../../support/users.ts';
import { rounds } from '../../../support/rounds.ts';

const { identity, databaseUrl, sql, admin, call, add, enter } = await startIdentity({ after });

/** Sends the head of a request, lets its sender's rights end, and sends the body. */
async function lateBody(
  pass: (seconds: number) => void,
  bearer: string,
  path: string,
  body: object,
  end: () => Promise<unknown>,
): Promise<number> {
  const client = await connectTo(identity);
  const text = JSON.stringify(body);
  const head = [
    `POST ${path} HTTP/1.1`,
    'Host: a',
    `Authorization: Bearer ${bearer}`,
    `Content-Length: ${text.length}`,
    'Expect: 100-continue',
  ];
  client.send(headOf(head));
  assert.equal((await client.answer()).status, 100, 'the caller has been looked up');
  await end();
  // Longer than a caller who was looked up is taken for granted.
  pass(0.6);
  client.send(text);
  const { status } = await client.answer();
  client.leave();
  return status;
}

test('a caller who loses the right while the body arrives changes nothing', async (t) => {
  const pass = stopClock(t);
  const guest = { username: 'late', email: 'late@example.org', super_admin: true };
  const demoted = await enter({ super_admin: true });
  const disabled = await enter({ super_admin: true });
  const out = await enter({ super_admin: true });
  assert.equal(
    await lateBody(pass, demoted.token, '/api/user/', guest, () =>
      call(admin.token, 'PATCH', `/api/user/${demoted.id}`, { super_admin: false }),
    ),
    403,
  );
  assert.equal(
    await lateBody(pass, disabled.token, '/api/key/', {}, () =>
      call(admin.token, 'PATCH', `/api/user/${disabled.id}`, { enabled: false }),
    ),
    401,
  );
  assert.equal(
    await lateBody(pass, out.token, '/api/user/', guest, () =>
      call(null, 'POST', '/api/auth/logout', { session: out.token }),
    ),
    401,
  );
  assert.deepEqual([...(await sql`select id from identity.users where username = 'late'`)], []);
  assert.deepEqual(
    [...(await sql`select id from identity.api_keys where user_id = ${disabled.id}`)],
    [],
  );
});

test('a slow body is accepted if the caller still has the right', async (t) => {
  const pass = stopClock(t);
  assert.equal(
    await lateBody(pass, admin.token, '/api/key/', { name: 'slow' }, async () => {}),
    201,
  );
});

test('a key created while its user is deleted is revoked, or not created', async () => {
  for (let round = 0; round < rounds(4, 12); round += 1) {
    const user = await enter();
    const made = [0, 1, 2].map(() => call(admin.token, 'POST', '/api/key/', { user_id: user.id }));
    const [deleted, ...keys] = await Promise.all([
      call(admin.token, 'DELETE', `/api/user/${user.id}`),
      ...made,
    ]);
    assertSuccess(deleted);
    for (const answer of keys) if (answer.status !== 201) assertError(answer, 404, 'not_found');
    assert.deepEqual(
      [...(await sql`select id from identity.api_keys where user_id = ${user.id} and not revoked`)],
      [],
    );
  }
});

test('an administrator without a password does not count as one who can get in', async () => {
  const chief = await enter({ super_admin: true });
  const { id } = await add({ super_admin: true, password: undefined });
  const others =
    await sql`update identity.users set super_admin = false where id not in (${chief.id}, ${id})
      and super_admin returning id`;
  assertError(
    await call(chief.token, 'PATCH', `/api/user/${chief.id}`, { super_admin: false }),
    409,
    'conflict',
  );
  assertSuccess(await call(chief.token, 'DELETE', `/api/user/${id}`));
  await sql`update identity.users set super_admin = true
    where id in ${sql(others.map((row) => String(row.id)))}`;
});

test('a full hashing queue does not lock out a network known to the account', async (t) => {
  const { url } = await startGatehouse(t, ['identity'], databaseUrl, {
    PASSWORD_HASHES: '1',
    PASSWORD_SCRYPT: 'ln=13,r=8,p=1',
    TRUSTED_PROXIES: '127.0.0.1',
  });
  const attempt = (username: string, address: string, password = PASSWORD) =>
    ask('POST', `${url.identity}/api/auth/login`, {
      body: { username, password },
      headers: { 'x-forwarded-for': address },
    });
  const owner = await add();
  assertSuccess(await attempt(owner.username, '192.0.2.1'));
  // Until the flood is over, there are always more attempts than places in the queue.
  let isOver = false;
  const statuses = new Set<number>();
  const flood = Array.from({ length: 60 }, async (_, index) => {
    for (let turn = 0; !isOver; turn += 1)
      statuses.add((await attempt(`unknown-${index}-${turn}`, '198.51.100.7')).status);
  });
  await until(() => statuses.has(503));
  const answers = [];
  for (let turn = 0; turn < 3; turn += 1)
    answers.push((await attempt(owner.username, '192.0.2.1')).status);
  isOver = true;
  await Promise.all(flood);
  assert.deepEqual(answers, [200, 200, 200]);
});
