/** `user invite`, `user link`, `user secure` and `group list`. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { assertRefused, runCommand } from '../../support/commands.ts';
import { PENDING } from '../../support/factors.ts';
import { logIn } from '../../support/gatehouse.ts';
import { cookieFrom, ORIGIN, PORTAL, startPortal } from '../../support/portal.ts';

const { identity, databaseUrl, sql, add, visit } = await startPortal({ after });
const environment = { ...PORTAL, DATABASE_URL: databaseUrl };
const run = (words: readonly string[], more: Readonly<Record<string, string>> = environment) =>
  runCommand(words, more);
const invite = (username: string, ...words: readonly string[]) =>
  run(['user', 'invite', '--username', username, '--email', `${username}@example.org`, ...words]);

/** Standard output has the link and nothing else. @returns its token */
function tokenOf({ code, stdout, stderr }: Awaited<ReturnType<typeof run>>): string {
  assert.equal(code, 0, stderr);
  const [, token = ''] = new RegExp(`^${ORIGIN}/link#([\\w-]{43})\n$`).exec(stdout) ?? [];
  assert.notEqual(token, '', stdout);
  return token;
}
const open = (token: string) => visit('/link', { fields: { token } });

/** Opens the link and chooses a password. */
async function useLink(token: string, password: string): Promise<void> {
  const page = await open(token);
  assert.equal(page.status, 200, page.text);
  const fields = { password, return_to: '' };
  const done = await visit('/login/password', { fields, cookie: cookieFrom(page, PENDING) });
  assert.equal(done.status, 200, done.text);
}

test('user invite prints a link that sets the first password, once', async () => {
  const invited = await invite('grace', '--groups', 'staff,admins', '--first-name', 'Grace');
  const token = tokenOf(invited);
  assert.match(invited.stderr, /^Created user "grace" with id [0-9a-f-]{36}\.\nLink \(shown only/);
  assert.match(invited.stderr, /works once, within 72 hours\):\n$/);
  const [row] = await sql`
    select password_hash, groups, first_name, verified from identity.users
    where username = 'grace'`;
  assert.deepEqual(
    { ...row },
    { password_hash: null, groups: ['admins', 'staff'], first_name: 'Grace', verified: true },
  );
  await invite('nobody', '--unconfirmed');
  const [other] = await sql`select verified from identity.users where username = 'nobody'`;
  assert.equal(other?.verified, false);
  await useLink(token, 'chosen by the person');
  assert.ok(await logIn(identity, 'grace', 'chosen by the person'));
  assert.equal((await open(token)).status, 401, 'it counts once');
});

test('user link replaces the earlier link, and --revoke ends it', async () => {
  const { username } = await add();
  const first = tokenOf(await run(['user', 'link', username]));
  const second = tokenOf(await run(['user', 'link', username]));
  assert.equal((await open(first)).status, 401);
  assert.equal((await open(second)).status, 200);
  const revoked = await run(['user', 'link', username, '--revoke']);
  assert.deepEqual([revoked.code, revoked.stdout], [0, '']);
  assert.equal(revoked.stderr, `Ended the link of user "${username}".\n`);
  assert.equal((await open(second)).status, 401);
  const again = await run(['user', 'link', username, '--revoke']);
  assert.equal(again.stderr, `There is no open link of user "${username}".\n`);
});

test('user link says if it removes the second factors, and the trail has who made it', async () => {
  const { id, username } = await add();
  const made = await run(['user', 'link', username, '--remove-factors']);
  const [said] = made.stderr.split('\n');
  assert.equal(
    said,
    `With this link, user "${username}" chooses a new password, and removes the second factors.`,
  );
  assert.match((await open(tokenOf(made))).text, /It also removes the second factors/);
  const [entry] = await sql`
    select via, detail from identity.audit where user_id = ${id} and event = 'link.created'`;
  assert.deepEqual([entry?.via, /factors/.test(String(entry?.detail))], ['command', true]);
});

test('wrong input ends with what to do, and makes nobody and no link', async () => {
  const { id, username } = await add();
  await sql`update identity.users set enabled = false where id = ${id}`;
  const before = await sql`select (select count(*) from identity.users) as users,
    (select count(*) from identity.links) as links`;
  const tooMany = Array.from({ length: 65 }, (_, i) => `g${i}`).join();
  assertRefused(await run(['user', 'link', username]), 1, /disabled\. Enable the user first/);
  assertRefused(await run(['user', 'link', 'nobody-at-all']), 1, /./);
  assertRefused(await run(['user', 'link']), 2, /USER/);
  assertRefused(await run(['user', 'invite', '--username', 'ada']), 2, /--email/);
  assertRefused(await invite(username), 1, /taken/);
  assertRefused(await invite('ada', '--groups', 'Staff'), 2, /groups/);
  assertRefused(await invite('ada', '--groups', 'staff,staff'), 2, /groups/);
  assertRefused(await invite('ada', '--groups', tooMany), 2, /groups/);
  assertRefused(
    await run(['user', 'link', username], { DATABASE_URL: databaseUrl }),
    1,
    /set SIGNIN_PAGES=on and SIGNIN_ORIGIN as for the service/,
  );
  const now = await sql`select (select count(*) from identity.users) as users,
    (select count(*) from identity.links) as links`;
  assert.deepEqual([...now], [...before]);
});

test('group list counts the members of each group, as text and as JSON', async () => {
  await sql`update identity.users set groups = '{}'`;
  await invite('one', '--groups', 'a.team');
  await invite('two', '--groups', 'a.team,b_team');
  const listed = await run(['group', 'list']);
  assert.deepEqual([listed.code, listed.stderr], [0, '']);
  assert.match(listed.stdout, /^GROUP +USERS\na\.team +2\nb_team +1\n$/);
  const { stdout } = await run(['group', 'list', '--json']);
  assert.deepEqual(JSON.parse(stdout), [
    { name: 'a.team', users: 2 },
    { name: 'b_team', users: 1 },
  ]);
  const members = await run(['user', 'list', '--group', 'b_team', '--json']);
  const names = JSON.parse(members.stdout).map((user: { username: string }) => user.username);
  assert.deepEqual(names, ['two']);
});

test('user secure ends everything and prints a link, also for the only administrator', async () => {
  const { username: plain } = await add();
  const { id, username: other } = await add();
  for (const username of ['admin', plain]) {
    const secured = await run(['user', 'secure', username]);
    const [said] = secured.stderr.split('\n');
    assert.match(
      String(said),
      new RegExp(`^Secured the account of user "${username}"\\. \\d+ sessions? ended\\. Keys re`),
    );
    await useLink(tokenOf(secured), 'chosen after the theft');
    assert.ok(await logIn(identity, username, 'chosen after the theft'));
  }
  const { stdout, stderr } = await run(['user', 'secure', id, '--json']);
  const { link, ...data } = JSON.parse(stdout);
  assert.deepEqual([Object.keys(data), stderr], [['message', 'status', 'expires_at'], '']);
  assert.equal((await open(link)).status, 200);
  const entries = await sql`
    select event, via from identity.audit where user_id = ${id} and via = 'command'
    order by event`;
  assert.deepEqual(
    entries.map(({ event }) => event),
    ['link.created', 'user.secured'],
  );
  const bare = await run(['user', 'secure', other], { DATABASE_URL: databaseUrl });
  assert.deepEqual([bare.code, bare.stdout], [0, '']);
  assert.match(bare.stderr, /To give the user a new one: gatehouse user password user-/);
  assertRefused(await run(['user', 'secure', 'nobody-at-all']), 1, /there is no user with this id/);
  assertRefused(await run(['user', 'secure']), 2, /USER/);
});
