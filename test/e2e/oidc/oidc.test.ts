/** `make e2e NAME=oidc`: programs of others sign in, and end with what ends at the provider. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { PASSWORD } from '../../support/users.ts';
import { installParties, PARTIES, type Party, pathsOf, startParty, versionOf } from './parties.ts';
import { startReplicas } from './provider.ts';
import { createVisitor, type Seen } from './visitor.ts';

const SECRET = 'a-secret-of-the-program-for-this-test-only';
const provider = await startReplicas();
const { issuer, sql, call, admin } = provider;
const directory = installParties({ after });

/** Each way in which the sign-ins of a user at a program end. */
const ENDS: Readonly<Record<string, (user: { id: string }, client: string) => Promise<unknown>>> = {
  'the user leaves the group': ({ id }) =>
    call(admin.token, 'PATCH', `/api/user/${id}`, { groups: [] }),
  'the session is revoked': ({ id }) =>
    call(admin.token, 'DELETE', `/api/session/revoke/all/user?user=${id}`),
  'the program is disabled': async (_user, client) => {
    const done = await provider.run(['client', 'disable', client]);
    assert.equal(done.code, 0, done.stderr);
  },
};

/** Registers a program and starts it. */
async function begin(owner: Parameters<typeof startParty>[0], party: Party, id: string) {
  const { callback, refresh, loggedOut, ...paths } = pathsOf(party);
  const { options = [] } = party;
  const isPublic = options.includes('--public');
  const words = ['--id', id, '--name', id, '--groups', 'staff', '--redirect'];
  // On the machine of the person, any port will do.
  const create = ['client', 'create', ...words, `http://127.0.0.1${callback}`, ...options];
  const more = [...(refresh ? ['--refresh'] : []), ...(isPublic ? [] : ['--secret-stdin'])];
  const created = await provider.run([...create, ...more], isPublic ? '' : SECRET);
  assert.equal(created.code, 0, created.stderr);
  const origin = await startParty(owner, directory, party, {
    ISSUER: issuer,
    CLIENT_ID: id,
    CLIENT_SECRET: SECRET,
    SCOPE: `openid profile email groups${refresh ? ' offline_access' : ''}`,
  });
  await provider.run(['client', 'set', id, '--logout-uri', origin + loggedOut]);
  const at = (path: string) => origin + path;
  return {
    at,
    paths: { ...paths, refresh, loggedOut },
    async signIn() {
      provider.use('first');
      const user = await provider.enter({ first_name: 'Ada', groups: ['staff'] });
      const visitor = createVisitor(user.username, PASSWORD);
      const seen = await visitor.open(at(paths.login));
      assert.deepEqual([seen.status, seen.address], [200, at(paths.ask)], seen.text);
      const { name, groups } = JSON.parse(seen.text);
      assert.deepEqual([name, groups], ['Ada', ['staff']]);
      return { user, visitor };
    },
  };
}

/** Refused, or sent to another page: of the sign-in, or of an error. */
function assertOver({ status, address, text }: Seen, asked: string) {
  assert.ok(status === 401 || address !== asked, `${status} ${address} ${text}`);
  assert.doesNotMatch(text, /"Ada"/);
}

for (const [index, [name, party]] of Object.entries(PARTIES).entries()) {
  test(name, async (t) => {
    process.stdout.write(`${name} ${versionOf(directory, party.package)}\n`);
    const id = `party-${index}`;
    const { at, paths, signIn } = await begin(t, party, id);
    const { refresh } = paths;

    await t.test('signs in, refreshes and signs out', async () => {
      const { visitor } = await signIn();
      if (refresh !== '') {
        const seen = await visitor.look(at(refresh));
        assert.equal(seen.status, 200, seen.text);
        assert.equal((await visitor.look(at(paths.ask))).status, 200);
      }
      const out = await visitor.look(at(paths.logout));
      assert.deepEqual([out.status, out.address], [200, at(paths.loggedOut)], out.text);
      assert.match((await visitor.look(`${issuer}/account`)).address, /\/login\?/);
      assertOver(await visitor.look(at(paths.ask)), at(paths.ask));
    });

    for (const [how, end] of Object.entries(ENDS)) {
      await t.test(`ends at the next request if ${how}`, async () => {
        const { user, visitor } = await signIn();
        provider.use('second');
        await end(user, id);
        assertOver(await visitor.look(at(paths.ask)), at(paths.ask));
        if (refresh !== '') assertOver(await visitor.look(at(refresh)), at(refresh));
        await provider.run(['client', 'enable', id]);
      });
    }

    const { backchannel } = party;
    if (!backchannel) return;
    await t.test('learns of the end of a session, and asks nobody', async () => {
      // Only https is accepted; the test has no certificate.
      await sql`
        update identity.oidc_clients set backchannel_uri = ${at(backchannel.told)}
        where id = ${id}`;
      const { user, visitor } = await signIn();
      assert.equal((await visitor.look(at(backchannel.page))).status, 200);
      await ENDS['the session is revoked']?.(user, id);
      assert.equal((await visitor.look(at(backchannel.page))).status, 200);
      await provider.runJobs(/tell programs/);
      assertOver(await visitor.look(at(backchannel.page)), at(backchannel.page));
    });
  });
}
