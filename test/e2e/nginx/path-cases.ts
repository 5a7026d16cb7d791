/** Which paths every proxy opens to whom, in every spelling. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ask, logIn } from '../../support/gatehouse.ts';
import { type Access, bearer } from './access.ts';
import { identityOf, request } from './setup.ts';

/** Other forms of a path, which some programs read as the path itself. */
export const spellingsOf = (path: string): readonly string[] => [
  ...[';x', ';', '%3bx', '%3B', '%3f', '%3Fx', '%23', '%00', '%00x', '%20', '%0a'].map(
    (end) => path + end,
  ),
  ...['/', '//', '/.', '.', ','].map((end) => path + end),
  path.toUpperCase(),
  path.replace(/[a-z]/, (letter) => letter.toUpperCase()),
  ...['/.;', '/;', '/x/..;', '/x/..%3b', '/%2e;', '/%2E%3Bx'].map((start) => start + path),
];

export function addPathTests({ setup, passes, rejects, session, identities }: Access): void {
  test('super administrator paths reject other users in every spelling of the path', async () => {
    const encoded = ['/%61dmin', '/%61dmin/x', '/admin%2Fx'];
    for (const path of [
      '/admin',
      '/admin/',
      '/admin/users?x=1',
      '//admin',
      '/./admin',
      '/x/../admin',
      ...encoded,
    ]) {
      await rejects(401, { path });
      for (const [token] of identities) await rejects(403, { path, headers: bearer(token) });
      const identity = identityOf(await passes({ path, headers: bearer(setup.admin) }));
      assert.deepEqual(
        [identity['x-auth-username'], identity['x-auth-super-admin']],
        ['admin', 'true'],
      );
    }
  });

  test("the client's query is not part of the check at Gatehouse", async () => {
    for (const path of ['/?require=super_admin', '/?require=nonsense', '/a%20b/c?x=%2F&y=1']) {
      assert.equal((await passes({ path, headers: bearer(session) })).path, path);
    }
  });

  test('a public path does not open any other path', async () => {
    for (const path of ['/admin/../login', '//login', '/%6cogin']) {
      assert.equal(decodeURIComponent((await passes({ path })).path), '/login');
    }
    for (const path of [
      '/login/../',
      '/login/../admin',
      '/login/x',
      '/loginx',
      '/login%2f..%2fadmin',
    ]) {
      await rejects(401, { path });
    }
  });
}

export function addGroupTests({ setup, passes, rejects, identities }: Access): void {
  test('a path for groups opens to their members and keys, and to nobody else', async () => {
    for (const path of ['/team', '/team/wiki?x=1', '//team', '/%74eam', '/TEAM']) {
      await rejects(401, { path });
      for (const [token] of identities) await rejects(403, { path, headers: bearer(token) });
    }
    const member = await setup.addUser('member of the staff');
    const token = await logIn(setup.url, member.username, member.password);
    const setGroups = async (groups: readonly string[]) => {
      const address = `${setup.url}/api/user/${member.id}`;
      const changed = await ask('PATCH', address, { bearer: setup.admin, body: { groups } });
      assert.equal(changed.status, 200, changed.text);
    };
    for (const group of ['staff', 'admins']) {
      await setGroups([group]);
      const userKey = await setup.addKey(token, {});
      const userless = await setup.addKey(setup.admin, { user_id: null, groups: [group] });
      for (const headers of [token, userKey.key, userless.key].map(bearer)) {
        const identity = identityOf(await passes({ path: '/team', headers }));
        assert.equal(identity['x-auth-groups'], group);
      }
      await setGroups(['visitors']);
      await rejects(403, { path: '/team', headers: bearer(token) });
      await rejects(403, { path: '/team', headers: bearer(userKey.key) });
    }
  });
}

export function addSpellingTests({ setup, port, session }: Access): void {
  for (const path of ['/admin', '/team'].flatMap(spellingsOf)) {
    test(`${path} does not avoid the rule of a program that ignores what is added`, async () => {
      const { upstream } = setup;
      const before = upstream.requests.length;
      for (const headers of [[], bearer(session)]) {
        const { status } = await request(port, { path, headers });
        assert.ok([400, 401, 403].includes(status), String(status));
      }
      assert.equal(upstream.requests.length, before, 'the program received nothing');
    });
  }

  test('a spelling of a public path opens no other path', async () => {
    const { upstream } = setup;
    for (const path of spellingsOf('/login')) {
      const before = upstream.requests.length;
      const { status } = await request(port, { path });
      const received = upstream.requests.slice(before).map((one) => one.path);
      const isPublic = status === 200 && received.join() === '/login';
      assert.ok(isPublic || ([400, 401].includes(status) && received.length === 0), path);
    }
  });
}
