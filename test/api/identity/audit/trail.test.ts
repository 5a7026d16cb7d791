/**
 * The audit trail has a line for everything that happens to users, sessions and keys: who did it,
 * to whom, from where. And a line stays as it is.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
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

/**
 * One request from an address of its own.
 * @returns its data, and the lines it left, of which address and request id are checked
 */
async function send(
  method: string,
  path: string,
  status: number,
  bearer: string | null,
  body?: unknown,
) {
  const address = newAddress();
  const [before] = await sql`select count(*)::int as n from identity.audit`;
  const answer = await ask(method, `${identity}/api/${path}`, {
    ...(bearer === null ? {} : { bearer }),
    ...(body === undefined ? {} : { body }),
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

async function assertLeaves(request: ReturnType<typeof send>, ...expected: readonly Line[]) {
  const { data, lines } = await request;
  assert.deepEqual(lines, expected);
  return data;
}

const endAll = () => send('DELETE', `session/revoke/all/user?user=${ada}`, 200, root.token);

async function logIn(username: string, password = PASSWORD) {
  const { data, lines } = await send('POST', 'auth/login', 200, null, { username, password });
  noteSecret(data.session.slice('session:'.length));
  return { token: data.session, id: (await sessionOf(identity, data.session)).id, lines };
}

async function makeKey(bearer: string, body: Record<string, unknown>) {
  const { data, lines } = await send('POST', 'key/', 201, bearer, body);
  noteSecret(data.key.slice('key:'.length));
  return { key: data.key, id: data.id, lines };
}

const root = await logIn('admin', ADMIN_PASSWORD);

test('a login with its way, and a failed one with its reason, never the name that was tried', async () => {
  const { id, lines } = await logIn('ada');
  const more = { via: 'password', target_id: id, detail: 'password' };
  assert.deepEqual(lines, [ofAda('login.succeeded', more)]);
  const disabled = await addUser(database, 'disabled-user', { enabled: false });
  const without = await addUser(database, 'passwordless-user', { password: undefined });
  const attempts: ReadonlyArray<
    readonly [username: string, password: string, userId: string | null, detail: string]
  > = [
    ['ada', noteSecret('a-wrong-password-1'), ada, 'wrong password'],
    [noteSecret('a-name-that-nobody-has'), noteSecret('a-wrong-password-2'), null, 'no such user'],
    ['disabled-user', PASSWORD, disabled, 'disabled'],
    ['disabled-user', noteSecret('a-wrong-password-3'), disabled, 'wrong password'],
    ['passwordless-user', noteSecret('a-wrong-password-4'), without, 'no password'],
  ];
  for (const [username, password, id, detail] of attempts) {
    const entry = line('login.failed', { via: 'nobody', user_id: id, target_id: id, detail });
    await assertLeaves(send('POST', 'auth/login', 401, null, { username, password }), entry);
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

test('an end of one session: by a logout, by its token, by its id, by an administrator', async () => {
  const out = await logIn('ada');
  const own = await logIn('ada');
  const other = await logIn('ada');
  const last = await logIn('ada');
  // No credential is asked for: whose session it was is known, and who held its token is not.
  await assertLeaves(
    send('POST', 'auth/logout', 200, null, { session: out.token }),
    line('session.logged_out', { user_id: ada, target_id: out.id }),
  );
  await assertLeaves(
    send('DELETE', `session/revoke?session=${other.token}`, 200, own.token),
    ofAda('session.revoked', { target_id: other.id }),
  );
  await assertLeaves(
    send('DELETE', `session/${last.id}/revoke`, 200, own.token),
    ofAda('session.revoked', { target_id: last.id }),
  );
  await assertLeaves(
    send('DELETE', `session/${own.id}/revoke`, 200, root.token),
    line('session.revoked', { actor_id: admin, user_id: ada, target_id: own.id }),
  );
});

test('a revocation of many sessions is one line with their number', async () => {
  const two = await logIn('admin', ADMIN_PASSWORD);
  await logIn('ada');
  await logIn('ada');
  await sql`update identity.sessions set revoked = true where id = ${root.id}`;
  const open = (await ask('GET', `${identity}/api/session/?active=true`, { bearer: two.token }))
    .json._meta.pagination.total;
  await assertLeaves(
    send('DELETE', 'session/revoke/all', 200, two.token),
    line('session.revoked', { actor_id: admin, count: open }),
  );
  await sql`update identity.global_revocation set sessions_end_at = null`;
  await sql`update identity.sessions set revoked = false where id = ${root.id}`;
});

test('a new password, by its user and by an administrator, with the ended sessions', async () => {
  await endAll();
  await logIn('ada');
  const own = await logIn('ada');
  const next = noteSecret('a-new-passphrase-1');
  const change = (current_password: string, status: number) =>
    send('POST', 'auth/password', status, own.token, { current_password, new_password: next });
  await assertLeaves(
    change(noteSecret('a-wrong-password-5'), 401),
    ofAda('password.failed', { target_id: ada, detail: 'wrong password' }),
  );
  await assertLeaves(
    change(PASSWORD, 200),
    ofAda('password.changed', { target_id: ada }),
    ofAda('session.revoked', { count: 2 }),
  );
  await logIn('ada', next);
  const byAdmin = { actor_id: admin, user_id: ada };
  await assertLeaves(
    send('POST', `user/${ada}/password`, 200, root.token, { password: PASSWORD }),
    line('password.set', { ...byAdmin, target_id: ada }),
    line('session.revoked', { ...byAdmin, count: 2 }),
  );
});

test('a user that is created, changed, disabled, and deleted with sessions and keys', async () => {
  const body = {
    username: 'brief-user',
    email: noteSecret('brief-user@example.org'),
    password: noteSecret('a-passphrase-of-brief'),
  };
  const created = await send('POST', 'user/', 201, root.token, body);
  const { id } = created.data;
  const of = (event: string, more: Partial<Line> = {}) =>
    line(event, { actor_id: admin, user_id: id, target_id: id, ...more });
  assert.deepEqual(created.lines, [of('user.created')]);
  const change = (members: object) => send('PATCH', `user/${id}`, 200, root.token, members);
  await assertLeaves(
    change({ first_name: noteSecret('Bernadette'), verified: true }),
    of('user.changed', { detail: 'first_name verified=true' }),
  );
  const session = await logIn('brief-user', body.password);
  await assertLeaves(
    change({ enabled: false }),
    of('session.revoked', { target_id: session.id }),
    of('user.changed', { detail: 'enabled=false' }),
  );
  await change({ enabled: true });
  const again = await logIn('brief-user', body.password);
  const own = await makeKey(again.token, {});
  assert.deepEqual(own.lines, [of('key.created', { actor_id: id, target_id: own.id })]);
  const given = await makeKey(root.token, { user_id: id });
  assert.deepEqual(given.lines, [of('key.created', { target_id: given.id })]);
  await assertLeaves(
    send('DELETE', `user/${id}`, 200, root.token),
    of('key.revoked', { target_id: null, count: 2 }),
    of('session.revoked', { target_id: again.id }),
    of('user.deleted'),
  );
});

test('an action of a key has the key in its entry, and its user if it has one', async () => {
  const session = await logIn('ada');
  const own = await makeKey(root.token, { user_id: ada, name: 'a name' });
  const program = await makeKey(root.token, { user_id: null });
  const made = line('key.created', { actor_id: admin, target_id: program.id });
  assert.deepEqual(program.lines, [made]);
  await assertLeaves(
    send('DELETE', `session/${session.id}/revoke`, 200, program.key),
    line('session.revoked', {
      via: 'key',
      key_id: program.id,
      user_id: ada,
      target_id: session.id,
    }),
  );
  const byOwn = { via: 'key', key_id: own.id };
  await assertLeaves(
    send('PATCH', `user/${ada}`, 200, own.key, { last_name: 'L.' }),
    ofAda('user.changed', { ...byOwn, target_id: ada, detail: 'last_name' }),
  );
  // Over the API, a line has the members of its row, and who created the key.
  const [shown] = (await send('GET', 'audit/?limit=1', 200, root.token)).data;
  const [row] = await sql`select * from identity.audit where id = ${shown.id}`;
  assert.deepEqual(
    { ...shown, created_at: new Date(shown.created_at) },
    { ...row, key_created_by: admin },
  );
  await assertLeaves(
    send('DELETE', `key/${own.id}/revoke`, 200, own.key),
    ofAda('key.revoked', { ...byOwn, target_id: own.id }),
  );
  await assertLeaves(
    send('DELETE', `key/${program.id}/revoke`, 200, root.token),
    line('key.revoked', { actor_id: admin, target_id: program.id }),
  );
});

test('a request that changes nothing leaves no entry', async () => {
  const { token, id } = await logIn('ada');
  await send('POST', 'auth/logout', 200, null, { session: token });
  await send('DELETE', `session/${id}/revoke`, 200, root.token);
  const own = await logIn('ada');
  const { id: key } = await makeKey(own.token, {});
  await send('DELETE', `key/${key}/revoke`, 200, own.token);
  const requests: ReadonlyArray<Parameters<typeof send>> = [
    ['POST', 'auth/logout', 200, null, { session: token }],
    ['POST', 'auth/session', 401, null, { session: token }],
    ['DELETE', `session/revoke?session=${token}`, 200, root.token],
    ['DELETE', `session/${id}/revoke`, 200, root.token],
    ['DELETE', `key/${key}/revoke`, 200, root.token],
    ['POST', 'user/', 409, root.token, { username: 'ADA', email: 'other@example.org' }],
    ['PATCH', `user/${admin}`, 409, root.token, { enabled: false }],
    ['DELETE', `user/${admin}`, 409, root.token],
    ['PATCH', `user/${ada}`, 403, own.token, { super_admin: true }],
    ['DELETE', 'session/revoke/all', 403, own.token],
    ['POST', 'auth/login', 400, null, { username: 'ada' }],
    ['GET', 'audit/', 200, root.token],
    ['GET', 'auth/verify', 200, root.token],
  ];
  for (const request of requests) await assertLeaves(send(...request));
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
  assert.ok(secrets.size > 15);
  for (const secret of secrets) {
    for (const form of ['utf8', 'base64', 'hex'] as const)
      assert.ok(!trail.includes(Buffer.from(secret).toString(form)), secret);
  }
});

test('one statement writes to the trail, and only retention removes rows', () => {
  const root = new URL('../../../../src/', import.meta.url);
  const source = readdirSync(root, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => readFileSync(new URL(name, root), 'utf8'))
    .join('\n')
    .replace(/\s+/g, ' ');
  const found = (pattern: RegExp) => [...source.matchAll(pattern)].map(([text]) => text);
  const writes =
    /(insert into|delete from|update|truncate|merge into|copy)( table)?( only)? identity\.audit\b/gi;
  assert.deepEqual(found(writes), ['insert into identity.audit']);
  assert.deepEqual(
    found(/\w*removal\w*\( ?'audit'[^)]*\)|removeBatch\( ?database, 'identity\.audit'/gi),
    ["removalOfOld('audit', 'id', 'created_at', auditSeconds)"],
  );
});
