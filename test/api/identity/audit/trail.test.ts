/**
 * The audit trail has a line for everything that happens to users, sessions and keys: who did it,
 * to whom, from where.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { EVENTS } from '../../../../src/identity/store/audit.ts';
import { ADMIN_PASSWORD, ask, launch } from '../../../support/gatehouse.ts';
import { BEHIND_PROXY, loginFrom, newAddress } from '../../../support/logins.ts';
import { addUser, openIdentity, PASSWORD, sessionOf } from '../../../support/users.ts';

const { identity, sql, databaseUrl } = await launch(['identity'], BEHIND_PROXY);
const database = openIdentity({ after }, databaseUrl);
const ada = await addUser(database, 'ada');
const admin = String((await sql`select id from identity.users where username = 'admin'`)[0]?.id);

/** Everything that must not be found in the trail. */
const secrets = new Set([PASSWORD, ADMIN_PASSWORD]);
const noteSecret = (text: string) => {
  secrets.add(text);
  return text;
};

const LINE = {
  via: 'session',
  actor_id: null,
  key_id: null,
  user_id: null,
  target_id: null,
  count: 1,
  detail: '',
};
type Line = { event: string } & Record<keyof typeof LINE, string | number | null>;
const line = (event: string, more: Partial<Line>): Line => ({ ...LINE, event, ...more });
/** What ada does to herself. */
const ofAda = (event: string, more: Partial<Line> = {}): Line =>
  line(event, { actor_id: ada, user_id: ada, ...more });
const seen = new Set<string>();

interface Request {
  bearer?: string;
  body?: unknown;
}

/**
 * One request from an address of its own.
 * @returns its answer, and the lines it left, of which address and request id are checked
 */
async function send(method: string, path: string, status: number, request: Request = {}) {
  const address = newAddress();
  const [before] = await sql`select count(*)::int as n from identity.audit`;
  const answer = await ask(method, identity + path, {
    ...request,
    headers: { 'x-forwarded-for': address },
  });
  assert.equal(answer.status, status, `${method} ${path}: ${answer.text}`);
  const rows = await sql<Array<Line & { ip: string; recent: boolean }>>`
    select event, via, actor_id, key_id, user_id, target_id, count, detail, ip,
      created_at between now() - interval '1 minute' and now() as recent
    from identity.audit where request_id = ${answer.headers.get('x-request-id')} order by event`;
  const [now] = await sql`select count(*)::int as n from identity.audit`;
  assert.equal(rows.length, now?.n - before?.n, "a line without the request's id");
  for (const row of rows) {
    assert.deepEqual([row.ip, row.recent], [address, true]);
    seen.add(row.event);
  }
  const lines = rows.map(({ ip: _ip, recent: _recent, ...rest }) => rest);
  return { data: answer.json?.data, lines };
}

const endAll = () =>
  send('DELETE', `/api/session/revoke/all/user?user=${ada}`, 200, { bearer: root.token });

async function logIn(username: string, password = PASSWORD) {
  const { data, lines } = await send('POST', '/api/auth/login', 200, {
    body: { username, password },
  });
  noteSecret(data.session.slice('session:'.length));
  return { token: data.session, id: (await sessionOf(identity, data.session)).id, lines };
}

async function makeKey(bearer: string, body: Record<string, unknown>) {
  const { data, lines } = await send('POST', '/api/key/', 201, { bearer, body });
  noteSecret(data.key.slice('key:'.length));
  return { key: data.key, id: data.id, lines };
}

const root = await logIn('admin', ADMIN_PASSWORD);

test('entries name the command line as the actor', async () => {
  const [entry] = await sql`select event, via, actor_id, key_id, user_id, target_id, count, ip,
    request_id, detail from identity.audit where via = 'command' and user_id = ${ada}`;
  const made = line('user.created', { via: 'command', user_id: ada, target_id: ada });
  assert.deepEqual({ ...entry }, { ...made, ip: null, request_id: null });
});

test('a login has an entry with its way, user and session', async () => {
  const { id, lines } = await logIn('ada');
  assert.deepEqual(lines, [
    ofAda('login.succeeded', { via: 'password', target_id: id, detail: 'password' }),
  ]);
});

test('a failed login, with its reason, and never the name that was tried', async () => {
  const disabled = await addUser(database, 'disabled-user', { enabled: false });
  const passwordless = await addUser(database, 'passwordless-user', { password: undefined });
  const attempts: ReadonlyArray<
    readonly [username: string, password: string, userId: string | null, detail: string]
  > = [
    ['ada', noteSecret('a-wrong-password-1'), ada, 'wrong password'],
    [noteSecret('a-name-that-nobody-has'), noteSecret('a-wrong-password-2'), null, 'no such user'],
    ['disabled-user', PASSWORD, disabled, 'disabled'],
    ['disabled-user', noteSecret('a-wrong-password-3'), disabled, 'wrong password'],
    ['passwordless-user', noteSecret('a-wrong-password-4'), passwordless, 'no password'],
  ];
  for (const [username, password, userId, detail] of attempts) {
    const { lines } = await send('POST', '/api/auth/login', 401, { body: { username, password } });
    assert.deepEqual(lines, [
      line('login.failed', { via: 'nobody', user_id: userId, target_id: userId, detail }),
    ]);
  }
});

test('the trail has one row where a delay begins, and none during the delay', async () => {
  const victim = await addUser(database, 'victim');
  const address = newAddress();
  const attempt = async () => {
    const { status, headers } = await loginFrom(identity, address, 'victim');
    const rows = await sql`select event, user_id, ip, detail from identity.audit
      where request_id = ${headers.get('x-request-id')} order by event`;
    return [status, ...rows];
  };
  const failed = { event: 'login.failed', user_id: victim, ip: address, detail: 'wrong password' };
  for (let count = 1; count <= 4; count += 1) assert.deepEqual(await attempt(), [401, failed]);
  const throttled = { ...failed, event: 'login.throttled', detail: 'for 15 s' };
  assert.deepEqual(await attempt(), [401, failed, throttled]);
  assert.deepEqual(await attempt(), [429]);
  seen.add('login.throttled');
});

test('a logout has an entry with the user and no actor', async () => {
  const { token, id } = await logIn('ada');
  const { lines } = await send('POST', '/api/auth/logout', 200, { body: { session: token } });
  // No credential is asked for: whose session it was is known, and who held its token is not.
  assert.deepEqual(lines, [line('session.logged_out', { user_id: ada, target_id: id })]);
});

test('a revocation of one session, by its token, by its id, and by an administrator', async () => {
  const own = await logIn('ada');
  const other = await logIn('ada');
  const last = await logIn('ada');
  const byToken = await send('DELETE', `/api/session/revoke?session=${other.token}`, 200, {
    bearer: own.token,
  });
  assert.deepEqual(byToken.lines, [ofAda('session.revoked', { target_id: other.id })]);
  const byId = await send('DELETE', `/api/session/${last.id}/revoke`, 200, { bearer: own.token });
  assert.deepEqual(byId.lines, [ofAda('session.revoked', { target_id: last.id })]);
  const byAdmin = await send('DELETE', `/api/session/${own.id}/revoke`, 200, {
    bearer: root.token,
  });
  assert.deepEqual(byAdmin.lines, [
    line('session.revoked', { actor_id: admin, user_id: ada, target_id: own.id }),
  ]);
});

test('a revocation of many sessions is one line with their number', async () => {
  await endAll();
  for (let count = 1; count <= 3; count += 1) await logIn('ada');
  const ofUser = await endAll();
  assert.deepEqual(ofUser.lines, [
    line('session.revoked', { actor_id: admin, user_id: ada, count: 3 }),
  ]);
  const two = await logIn('admin', ADMIN_PASSWORD);
  await logIn('ada');
  await logIn('ada');
  await sql`update identity.sessions set revoked = true where id = ${root.id}`;
  const open = (await ask('GET', `${identity}/api/session/?active=true`, { bearer: two.token }))
    .json._meta.pagination.total;
  const ofAll = await send('DELETE', '/api/session/revoke/all', 200, { bearer: two.token });
  assert.deepEqual(ofAll.lines, [line('session.revoked', { actor_id: admin, count: open })]);
  await sql`update identity.global_revocation set sessions_end_at = null`;
  await sql`update identity.sessions set revoked = false where id = ${root.id}`;
});

test("a change of one's own password, with the ended sessions, and a failed one", async () => {
  await endAll();
  await logIn('ada');
  const own = await logIn('ada');
  const change = (current_password: string, new_password: string, status: number) =>
    send('POST', '/api/auth/password', status, {
      bearer: own.token,
      body: { current_password, new_password },
    });
  const failed = await change(
    noteSecret('a-wrong-password-5'),
    noteSecret('a-new-passphrase-1'),
    401,
  );
  assert.deepEqual(failed.lines, [
    ofAda('password.failed', { target_id: ada, detail: 'wrong password' }),
  ]);
  const changed = await change(PASSWORD, 'a-new-passphrase-1', 200);
  assert.deepEqual(changed.lines, [
    ofAda('password.changed', { target_id: ada }),
    ofAda('session.revoked', { count: 2 }),
  ]);
});

test('a password that an administrator sets, with the sessions that it ended', async () => {
  await endAll();
  for (let count = 1; count <= 2; count += 1) await logIn('ada', 'a-new-passphrase-1');
  const set = await send('POST', `/api/user/${ada}/password`, 200, {
    bearer: root.token,
    body: { password: PASSWORD },
  });
  assert.deepEqual(set.lines, [
    line('password.set', { actor_id: admin, user_id: ada, target_id: ada }),
    line('session.revoked', { actor_id: admin, user_id: ada, count: 2 }),
  ]);
});

test('a user that is created, changed, disabled, and deleted with sessions and keys', async () => {
  const body = {
    username: 'brief-user',
    email: noteSecret('brief-user@example.org'),
    password: noteSecret('a-passphrase-of-brief'),
  };
  const created = await send('POST', '/api/user/', 201, { bearer: root.token, body });
  const { id } = created.data;
  const of = (event: string, more: Partial<Line> = {}) =>
    line(event, { actor_id: admin, user_id: id, target_id: id, ...more });
  assert.deepEqual(created.lines, [of('user.created')]);

  const named = await send('PATCH', `/api/user/${id}`, 200, {
    bearer: root.token,
    body: { first_name: noteSecret('Bernadette'), verified: true },
  });
  assert.deepEqual(named.lines, [of('user.changed', { detail: 'first_name verified=true' })]);
  const session = await logIn('brief-user', body.password);
  const disabled = await send('PATCH', `/api/user/${id}`, 200, {
    bearer: root.token,
    body: { enabled: false },
  });
  assert.deepEqual(disabled.lines, [
    of('session.revoked', { target_id: session.id }),
    of('user.changed', { detail: 'enabled=false' }),
  ]);
  await send('PATCH', `/api/user/${id}`, 200, { bearer: root.token, body: { enabled: true } });

  const again = await logIn('brief-user', body.password);
  const keys = [await makeKey(again.token, {}), await makeKey(root.token, { user_id: id })];
  assert.deepEqual(
    keys.map((key) => key.lines),
    [
      [of('key.created', { actor_id: id, target_id: keys[0]?.id })],
      [of('key.created', { target_id: keys[1]?.id })],
    ],
  );
  const deleted = await send('DELETE', `/api/user/${id}`, 200, { bearer: root.token });
  assert.deepEqual(deleted.lines, [
    of('key.revoked', { target_id: null, count: 2 }),
    of('session.revoked', { target_id: again.id }),
    of('user.deleted'),
  ]);
});

test('an action of a key has the key in its entry, and its user if it has one', async () => {
  const session = await logIn('ada');
  const own = await makeKey(session.token, { name: 'my own' });
  const program = await makeKey(root.token, { user_id: null });
  assert.deepEqual(program.lines, [
    line('key.created', { actor_id: admin, target_id: program.id }),
  ]);
  const byProgram = await send('DELETE', `/api/session/${session.id}/revoke`, 200, {
    bearer: program.key,
  });
  assert.deepEqual(byProgram.lines, [
    line('session.revoked', {
      via: 'key',
      key_id: program.id,
      user_id: ada,
      target_id: session.id,
    }),
  ]);
  const byOwn = await send('PATCH', `/api/user/${ada}`, 200, {
    bearer: own.key,
    body: { last_name: 'L.' },
  });
  assert.deepEqual(byOwn.lines, [
    ofAda('user.changed', { via: 'key', key_id: own.id, target_id: ada, detail: 'last_name' }),
  ]);
  const itself = await send('DELETE', `/api/key/${own.id}/revoke`, 200, { bearer: own.key });
  assert.deepEqual(itself.lines, [
    ofAda('key.revoked', { via: 'key', key_id: own.id, target_id: own.id }),
  ]);
  const byAdmin = await send('DELETE', `/api/key/${program.id}/revoke`, 200, {
    bearer: root.token,
  });
  assert.deepEqual(byAdmin.lines, [
    line('key.revoked', { actor_id: admin, target_id: program.id }),
  ]);
});

test('a request that changes nothing leaves no entry', async () => {
  const as = (bearer: string, body?: unknown) => ({ bearer, ...(body ? { body } : {}) });
  const { token, id } = await logIn('ada');
  await send('POST', '/api/auth/logout', 200, { body: { session: token } });
  await send('DELETE', `/api/session/${id}/revoke`, 200, as(root.token));
  const own = await logIn('ada');
  const { id: key } = await makeKey(own.token, {});
  await send('DELETE', `/api/key/${key}/revoke`, 200, as(own.token));
  const requests: ReadonlyArray<
    readonly [method: string, path: string, status: number, request?: Request]
  > = [
    ['POST', 'auth/logout', 200, { body: { session: token } }],
    ['POST', 'auth/session', 401, { body: { session: token } }],
    ['DELETE', `session/revoke?session=${token}`, 200, as(root.token)],
    ['DELETE', `session/${id}/revoke`, 200, as(root.token)],
    ['DELETE', `key/${key}/revoke`, 200, as(root.token)],
    ['POST', 'user/', 409, as(root.token, { username: 'ADA', email: 'other@example.org' })],
    ['PATCH', `user/${admin}`, 409, as(root.token, { enabled: false })],
    ['DELETE', `user/${admin}`, 409, as(root.token)],
    ['PATCH', `user/${ada}`, 403, as(own.token, { super_admin: true })],
    ['DELETE', 'session/revoke/all', 403, as(own.token)],
    ['POST', 'auth/login', 400, { body: { username: 'ada' } }],
    ...['user/', `user/${ada}`, 'session/', 'key/', 'audit/', 'test/', 'auth/verify'].map(
      (path) => ['GET', path, 200, as(root.token)] as const,
    ),
  ];
  for (const [method, path, status, request] of requests)
    assert.deepEqual((await send(method, `/api/${path}`, status, request)).lines, [], path);
});

test('the tests above caused every event, and no column contains a secret', async () => {
  // Events of second factors, links and programs are tested with the sign-in pages, login.unlocked
  // with its command, user.secured beside what it does.
  const elsewhere =
    /^(factor|recovery|link|client|grant|signing_key)\.|^login\.(pending|unlocked)$|^user\.secured$/;
  const others = EVENTS.filter((event) => !elsewhere.test(event));
  assert.deepEqual([...seen].sort(), [...others].sort());
  const trail = (await sql`select audit::text as text from identity.audit`)
    .map(({ text }) => String(text))
    .join('\n');
  const { text } = await ask('GET', `${identity}/api/audit/?limit=100`, { bearer: root.token });
  assert.ok(secrets.size > 15);
  for (const secret of secrets) {
    for (const form of [
      secret,
      Buffer.from(secret).toString('base64'),
      Buffer.from(secret).toString('hex'),
    ])
      assert.ok(!(trail + text).includes(form), form);
  }
});
