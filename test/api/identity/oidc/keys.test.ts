/** Keys that sign ID tokens: created, rotated, removed, and lost. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { readToken, startProvider } from '../../../support/oidc.ts';

const provider = await startProvider({ after });
const { sql, run } = provider;
const web = await provider.register('web');
const { host } = await provider.addSignedIn();

/** The ids that a process which has read nothing yet publishes, and the one that signs. */
async function seenByReplica() {
  const replica = await provider.replica();
  const { keys } = JSON.parse((await replica.visit('/oidc/keys')).text);
  const page = await replica.exchange(web, await provider.codeFor(web, host));
  return {
    published: keys.map(({ kid }: { kid: string }) => kid).sort(),
    signs: readToken(JSON.parse(page.text).id_token).head.kid,
  };
}
/** Lets time pass. @returns the ids of the keys, the oldest first */
async function keyIds(minutes = 0) {
  await sql`
    update identity.oidc_keys set created_at = created_at - make_interval(mins => ${minutes})`;
  return (await sql`select id from identity.oidc_keys order by created_at`).map(({ id }) => id);
}

test('a key is published at once, signs after an hour, and is removed when all its tokens have ended', async () => {
  const [first] = await keyIds();
  assert.equal((await run(['oidc', 'rotate'])).code, 0);
  const ids = await keyIds();
  assert.equal(ids.length, 2);
  assert.deepEqual(await seenByReplica(), { published: [...ids].sort(), signs: first });
  const [, second] = await keyIds(61);
  assert.equal((await seenByReplica()).signs, second);
  await provider.runJobs(/oidc_keys/);
  assert.deepEqual(await keyIds(49 * 60), ids);
  await provider.runJobs(/oidc_keys/);
  assert.deepEqual(await keyIds(), [second]);
});

test('"oidc rotate --now" leaves one key', async () => {
  const [old] = await keyIds();
  assert.equal((await run(['oidc', 'rotate', '--now'])).code, 0);
  const [id, ...more] = await keyIds();
  assert.notEqual(id, old);
  assert.deepEqual(more, []);
  assert.equal((await seenByReplica()).signs, id);
});

test('a private key is nowhere in clear text', async () => {
  const rows = await sql`select encode(blob, 'escape') as blob from identity.oidc_keys`;
  for (const text of [...rows.map(({ blob }) => String(blob)), JSON.stringify(provider.log())])
    assert.doesNotMatch(text, /PRIVATE KEY|MII[A-Za-z0-9+/]{40}/);
});

test('a key that was altered signs nothing, and no code is used up', async () => {
  const alter = () =>
    sql`update identity.oidc_keys set blob = set_byte(blob, 20, get_byte(blob, 20) # 1)`;
  await alter();
  const begun = await provider.codeFor(web, host);
  const refused = await (await provider.replica()).exchange(web, begun);
  assert.deepEqual(
    [refused.status, JSON.parse(refused.text).error],
    [503, 'temporarily_unavailable'],
  );
  await alter();
  assert.equal((await (await provider.replica()).exchange(web, begun)).status, 200);
});

test('replicas that start together create one key', async () => {
  await sql`delete from identity.oidc_keys`;
  await Promise.all([provider.replica(), provider.replica(), provider.replica()]);
  assert.equal((await keyIds()).length, 1);
});
