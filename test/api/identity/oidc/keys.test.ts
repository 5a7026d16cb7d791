/** Keys that sign ID tokens: created, rotated, removed, and lost. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { readToken, startProvider } from '../../../support/oidc.ts';

const provider = await startProvider({ after });
const { sql } = provider;
const web = await provider.register('web');
const ada = await provider.enter();
const { host: cookie } = await provider.signIn(ada.username);

/** The ids that a process which has read nothing yet publishes, and the one that signs. */
async function seenByReplica() {
  const replica = await provider.replica();
  const { keys } = JSON.parse((await replica.visit('/oidc/keys')).text);
  const page = await replica.exchange(web, await provider.codeFor(web, cookie));
  const signs = page.status === 200 ? readToken(JSON.parse(page.text).id_token).head.kid : null;
  return {
    published: keys.map(({ kid }: { kid: string }) => kid).sort(),
    signs,
    status: page.status,
    error: JSON.parse(page.text).error,
  };
}

const keyIds = async () =>
  (await sql`select id from identity.oidc_keys order by created_at`).map(({ id }) => id);

test('a new key is published at once, and signs after an hour', async () => {
  const [first] = await keyIds();
  const done = await provider.run(['oidc', 'rotate']);
  assert.equal(done.code, 0, done.stderr);
  const ids = await keyIds();
  assert.equal(ids.length, 2);
  const before = await seenByReplica();
  assert.deepEqual([before.published, before.signs], [[...ids].sort(), first]);
  await sql`update identity.oidc_keys set created_at = created_at - interval '61 minutes'`;
  assert.equal((await seenByReplica()).signs, ids[1]);
});

test('an earlier key is removed when all its tokens have ended', async () => {
  await provider.runJobs(/oidc_keys/);
  assert.equal((await keyIds()).length, 2);
  await sql`update identity.oidc_keys set created_at = created_at - interval '49 hours'`;
  await provider.runJobs(/oidc_keys/);
  assert.equal((await keyIds()).length, 1);
});

test('"oidc rotate --now" leaves one key', async () => {
  const [old] = await keyIds();
  assert.equal((await provider.run(['oidc', 'rotate', '--now'])).code, 0);
  const ids = await keyIds();
  assert.equal(ids.length, 1);
  assert.notEqual(ids[0], old);
  assert.equal((await seenByReplica()).signs, ids[0]);
});

test('a private key is nowhere in clear text', async () => {
  const rows = await sql`select encode(blob, 'escape') as blob from identity.oidc_keys`;
  const log = JSON.stringify(provider.log());
  for (const text of [...rows.map(({ blob }) => String(blob)), log])
    assert.doesNotMatch(text, /PRIVATE KEY|MII[A-Za-z0-9+/]{40}/);
});

test('a key that was altered signs nothing, and no code is used up', async () => {
  await sql`update identity.oidc_keys set blob = set_byte(blob, 20, get_byte(blob, 20) # 1)`;
  const replica = await provider.replica();
  const begun = await provider.codeFor(web, cookie);
  const refused = await replica.exchange(web, begun);
  assert.deepEqual(
    [refused.status, JSON.parse(refused.text).error],
    [503, 'temporarily_unavailable'],
  );
  await sql`update identity.oidc_keys set blob = set_byte(blob, 20, get_byte(blob, 20) # 1)`;
  const restored = await provider.replica();
  assert.equal((await restored.exchange(web, begun)).status, 200);
});

test('replicas that start together create one key', async () => {
  await sql`delete from identity.oidc_keys`;
  await Promise.all([provider.replica(), provider.replica(), provider.replica()]);
  assert.equal((await keyIds()).length, 1);
});
