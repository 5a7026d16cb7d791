/** API keys by command: shown once, good at the service until they end, and never shown again. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { assertRefused, runCommand } from '../../support/commands.ts';
import { createDatabase } from '../../support/database.ts';
import { type Answer, ask, logIn, startGatehouse, variables } from '../../support/gatehouse.ts';
import { addUser, assertUser, openIdentity, PASSWORD } from '../../support/users.ts';

const file = await createDatabase();
const environment = { DATABASE_URL: file.url, PASSWORD_SCRYPT: variables().PASSWORD_SCRYPT ?? '' };
const UNKNOWN = '00000000-0000-4000-8000-000000000000';
const { identity } = (await startGatehouse({ after }, ['identity'], file.url)).url;
const database = openIdentity({ after }, file.url);
const administrator = await logIn(identity);

const run = (words: readonly string[], given: Readonly<Record<string, string>> = environment) =>
  runCommand(words, given);

/** @returns the key and its id, after a look at what was printed where */
async function create(
  name: string,
  ...more: readonly string[]
): Promise<{ key: string; id: string }> {
  const { code, stdout, stderr } = await run(['key', 'create', '--name', name, ...more]);
  assert.equal(code, 0, stderr);
  assert.match(stdout, /^key:[A-Za-z0-9_-]{49}\n$/);
  const [, said, id = ''] =
    /^Created key "(.*)" with id ([0-9a-f-]{36})\.\nKey \(shown only once\):\n$/.exec(stderr) ?? [];
  assert.equal(said, name, stderr);
  return { key: stdout.trim(), id };
}

async function listed(...more: readonly string[]): Promise<Array<Record<string, unknown>>> {
  const { code, stdout, stderr } = await run(['key', 'list', '--json', ...more]);
  assert.deepEqual([code, stderr], [0, '']);
  return JSON.parse(stdout);
}

const useOf = (key: string): Promise<Answer> =>
  ask('GET', `${identity}/api/test/`, { bearer: key });
const lineOf = async (id: string) =>
  (await run(['key', 'list'])).stdout
    .split('\n')
    .find((line) => line.startsWith(id))
    ?.split(/ {2,}/) ?? [];
const count = async () =>
  (
    await file.sql<
      [{ n: number }]
    >`select (select count(*) from identity.api_keys)::int + (select count(*)
      from identity.audit)::int as n`
  )[0].n;

test("a user's key has the user's rights until it is revoked, and revoking it twice is no error", async () => {
  const userId = await addUser(database, 'keeper');
  const { key, id } = await create('for tests', '--user', 'KEEPER');
  assert.equal((await useOf(key)).json.data.user.id, userId);
  assert.equal(
    (await ask('GET', `${identity}/api/test/`, { headers: { 'x-api-key': key } })).status,
    200,
  );
  assert.deepEqual(await run(['key', 'revoke', id]), {
    code: 0,
    signal: null,
    stdout: '',
    stderr: `Revoked key ${id}.\n`,
  });
  assert.equal((await useOf(key)).status, 401);
  const revokedAt = await file.sql`select updated_at from identity.api_keys where id = ${id}`;
  assert.deepEqual(await run(['key', 'revoke', id]), {
    code: 0,
    signal: null,
    stdout: '',
    stderr: `Key ${id} was revoked before.\n`,
  });
  assert.deepEqual(
    await file.sql`select updated_at from identity.api_keys where id = ${id}`,
    revokedAt,
  );
});

test('a key is made for a user by id, too, and ends with the user', async () => {
  const userId = await addUser(database, 'short-lived');
  const { key, id } = await create('', '--user', userId);
  assert.equal((await useOf(key)).json.data.user.id, userId);
  assert.equal((await run(['user', 'set', 'short-lived', '--enabled', 'false'])).code, 0);
  assert.equal((await useOf(key)).status, 401);
  assert.equal((await run(['user', 'set', 'short-lived', '--enabled', 'true'])).code, 0);
  assert.equal((await useOf(key)).status, 200);
  assert.equal((await run(['user', 'delete', 'short-lived'])).code, 0);
  assert.equal((await useOf(key)).status, 401);
  assert.equal((await lineOf(id)).at(-1), 'revoked');
});

test('a key without a user reads users, and has no user itself', async () => {
  const { key, id } = await create('a program', '--without-user');
  assert.equal((await ask('GET', `${identity}/api/user/`, { bearer: key })).status, 200);
  assert.equal((await useOf(key)).status, 403);
  assert.deepEqual((await lineOf(id)).slice(1, 4), [`${key.slice(0, 12)}…`, 'a program', '–']);
});

test('key list shows the creator, and user set says how many of their keys without a user end', async () => {
  const userId = await addUser(database, 'creator', { super_admin: true });
  const bearer = await logIn(identity, 'creator', PASSWORD);
  const { id } = (
    await ask('POST', `${identity}/api/key/`, { bearer, body: { user_id: null, name: 'theirs' } })
  ).json.data;
  assert.deepEqual((await lineOf(id)).slice(2, 5), ['theirs', '–', 'creator']);
  const { code, stderr } = await run(['user', 'set', 'creator', '--super-admin', 'false']);
  assert.equal(code, 0, stderr);
  const revoked = 'Revoked 1 key without a user that they had created.';
  assert.equal(stderr, `Changed user "creator" with id ${userId}. ${revoked}\n`);
  assert.equal((await lineOf(id)).at(-1), 'revoked');
});

test('a key ends at the time that was given', async () => {
  const { key, id } = await create(
    'until then',
    '--user',
    'admin',
    '--expires-at',
    '2999-12-31T23:59:59+01:00',
  );
  assert.equal(
    (await listed()).find((one) => one.id === id)?.expires_at,
    '2999-12-31T22:59:59.000Z',
  );
  assert.equal((await useOf(key)).status, 200);
  assert.equal((await lineOf(id)).at(-1), 'live');
  await file.sql`update identity.api_keys set expires_at = now() where id = ${id}`;
  assert.equal((await useOf(key)).status, 401);
  assert.equal((await lineOf(id)).at(-1), 'expired');
});

test('the key is printed once, and is not in the database, a list or the trail', async () => {
  const { key, id } = await create('said once', '--user', 'admin');
  assert.equal((await useOf(key)).status, 200);
  const rows =
    await file.sql`select k::text as row from identity.api_keys k union all select a::text
      from identity.audit a`;
  const outputs = [rows.map(({ row }) => String(row)).join('\n')];
  for (const words of [
    ['key', 'list'],
    ['key', 'list', '--json'],
    ['audit', 'list'],
    ['audit', 'list', '--json'],
    ['user', 'list', '--json'],
  ])
    outputs.push((await run(words)).stdout);
  for (const output of outputs) assert.ok(!output.includes(key.slice(0, 16)));
  const trail = await file.sql`select event, via, actor_id, user_id, target_id from identity.audit
      where target_id = ${id}`;
  const [admin] = await file.sql`select id from identity.users where username = 'admin'`;
  assert.deepEqual(
    [...trail].map((row) => ({ ...row })),
    [{ event: 'key.created', via: 'command', actor_id: null, user_id: admin?.id, target_id: id }],
  );
  await run(['key', 'revoke', id]);
  const [last] =
    await file.sql`select via, target_id from identity.audit where event = 'key.revoked'
      order by created_at desc limit 1`;
  assert.deepEqual({ ...last }, { via: 'command', target_id: id });
});

test('key list has all keys, newest first, or those of one user', async () => {
  const userId = await addUser(database, 'collector');
  await file.sql`
    insert into identity.api_keys (id, key_digest, key_prefix, name, user_id, created_at)
    select gen_random_uuid(), sha256(n::text::bytea), 'key:abcdefgh', 'number ' || n, ${userId},
      now() - n * interval '1 minute' from generate_series(1, 230) n`;
  const all = await listed();
  const ofUser = await listed('--user', 'Collector');
  assert.deepEqual(
    ofUser.map(({ name }) => name),
    Array.from({ length: 230 }, (_, index) => `number ${index + 1}`),
  );
  assert.deepEqual(await listed('--user', userId), ofUser);
  const pages = await Promise.all(
    [1, 2, 3].map((page) =>
      ask('GET', `${identity}/api/key/?limit=100&page=${page}`, { bearer: administrator }),
    ),
  );
  // The last use of the earlier tests' keys may be written between the two.
  const lasting = (keys: Array<Record<string, unknown>>) =>
    keys.map((one) => ({ ...one, last_used_at: null }));
  assert.deepEqual(lasting(all), lasting(pages.flatMap(({ json }) => json.data)));
  assert.ok(all.length > ofUser.length);
  const [one] = ofUser;
  assert.deepEqual(Object.keys(one ?? {}), [
    'id',
    'key',
    'name',
    'user_id',
    'created_by',
    'created_by_username',
    'groups',
    'revoked',
    'expires_at',
    'last_used_at',
    'created_at',
    'updated_at',
    'deleted_at',
    'user',
  ]);
  assert.equal(one?.key, 'key:abcdefgh…');
  assertUser(JSON.parse(JSON.stringify(one.user)));
});

test('key list prints a table', async () => {
  const [one] = await listed('--user', 'Collector');
  assert.ok(one);
  const table = await run(['key', 'list', '--user', 'collector']);
  assert.deepEqual([table.code, table.stderr], [0, '']);
  const lines = table.stdout.trimEnd().split('\n');
  assert.match(
    lines[0] ?? '',
    /^ID +KEY +NAME +USER +CREATED BY +CREATED +LAST USED +EXPIRES +STATE$/,
  );
  assert.deepEqual(lines[1]?.split(/ {2,}/), [
    one.id,
    'key:abcdefgh…',
    'number 1',
    'collector',
    'command',
    one.created_at,
    '–',
    '–',
    'live',
  ]);
  assert.equal(lines.length, 231);
});

test('a user without keys has an empty list: a head and nothing below, or no element', async () => {
  await addUser(database, 'keyless');
  assert.match((await run(['key', 'list', '--user', 'keyless'])).stdout, /^ID .*STATE\n$/);
  assert.deepEqual(await listed('--user', 'keyless'), []);
});

const user = ['--user', 'admin'];
const wrong: ReadonlyArray<readonly [words: readonly string[], said: RegExp]> = [
  [
    ['create'],
    /^gatehouse: key create: give either --user or --without-user\. See: gatehouse key create --help\n$/,
  ],
  [['create', ...user, '--without-user'], /give either --user or --without-user/],
  [['create', 'admin'], /key create: /],
  [['create', '--user'], /key create: Option '--user <value>' argument missing/],
  [['create', '--without-user=yes'], /key create: /],
  [
    ['create', ...user, '--expires-at', '2020-01-01T00:00:00Z'],
    /key create: expires-at must be in the future/,
  ],
  [
    ['create', ...user, '--expires-at', 'tomorrow'],
    /key create: expires-at must be a date and time, such as /,
  ],
  [
    ['create', ...user, '--expires-at', '2999-02-30T00:00:00Z'],
    /expires-at must be a date and time/,
  ],
  [['create', ...user, '--expires-at', '2999-01-01'], /expires-at must be a date and time/],
  [['create', ...user, '--expires-at', ''], /expires-at must be a date and time/],
  [['create', ...user, '--name', 'a\nb'], /name must not contain control characters/],
  [['create', ...user, '--name', 'n'.repeat(256)], /name must have at most 255 characters/],
  [['create', ...user, '--json'], /key create: Unknown option '--json'/],
  [['list', 'admin'], /key list: /],
  [['revoke'], /key revoke takes ID/],
  [['revoke', UNKNOWN, UNKNOWN], /key revoke takes ID/],
  [['revoke', 'not-an-id'], /key revoke: ID must be a UUID from gatehouse key list/],
  [['revoke', `key:${'x'.repeat(49)}`], /key revoke: an argument holds a key/],
];

test('wrong usage is one line with exit code 2, and nothing is done', async () => {
  const before = await count();
  for (const [words, said] of wrong) {
    const finished = await run(['key', ...words]);
    assertRefused(finished, 2, said);
    assert.ok(!finished.stderr.includes('xxxx'), 'a key that was given by mistake is not repeated');
  }
  assert.equal(await count(), before);
});

test('an unknown user or key is an error with exit code 1, and nothing is done', async () => {
  const before = await count();
  for (const name of ['nobody', UNKNOWN, '']) {
    assertRefused(
      await run(['key', 'create', '--user', name]),
      1,
      /there is no user with this id or name; see: gatehouse user list/,
    );
    // A deleted user is found by id and still has a list.
    if (name !== UNKNOWN)
      assertRefused(
        await run(['key', 'list', '--user', name]),
        1,
        /there is no user with this id or name; see: gatehouse user list/,
      );
  }
  assertRefused(
    await run(['key', 'revoke', UNKNOWN]),
    1,
    /^gatehouse: there is no key with this id; see: gatehouse key list\n$/,
  );
  assert.equal(await count(), before);
});

test('without a database every command ends with exit code 78', async () => {
  for (const words of [['create', '--without-user'], ['list'], ['revoke', UNKNOWN]])
    assertRefused(await run(['key', ...words], {}), 78, /DATABASE_URL/);
});

test('keys of a disabled user are shown as such, those of a deleted one by id', async () => {
  const userId = await addUser(database, 'leaver');
  const { id, key } = await create('left behind', '--user', 'leaver');
  assert.equal((await run(['user', 'set', 'leaver', '--enabled', 'false'])).code, 0);
  assert.equal((await useOf(key)).status, 401);
  assert.match(
    (await run(['key', 'list', '--user', 'leaver'])).stdout,
    /left behind .* user disabled\n$/,
  );
  assert.equal((await run(['user', 'delete', 'leaver'])).code, 0);
  assert.deepEqual(
    (await listed('--user', userId.toUpperCase())).map((one) => [one.id, one.revoked]),
    [[id, true]],
  );
});
