/** A restore brings back what had ended since the backup. `restored` ends it again. */
import assert from 'node:assert/strict';
import { after, test, type TestContext } from 'node:test';
import { revokeToken } from '../../../src/platform/db/tokens.ts';
import { runCommand } from '../../support/commands.ts';
import { copyDatabase, createDatabase } from '../../support/database.ts';
import { ask, AUTH_TOKEN, logIn, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { secretsClient } from '../../support/secrets.ts';
import { openWebhook } from '../../support/senders.ts';
import { createToken } from '../../support/tokens.ts';

const SERVICES = ['identity', 'secrets', 'webhook'] as const;
const original = await createDatabase();

// What exists at the time of the backup.
const first = await startGatehouse({ after }, SERVICES, original.url);
const session = await logIn(first.url.identity);
const makeKey = async (body: object): Promise<{ id: string; key: string }> =>
  (await ask('POST', `${first.url.identity}/api/key/`, { bearer: session, body })).json.data;
const key = await makeKey({ name: 'revoked later' });
await makeKey({ name: 'of no user', user_id: null });
const secrets = secretsClient(first.url.secrets);
const once = await secrets.keep('for one reader', { max_reads: 1 });
const { id: readId, secret: readKey } = await secrets.keep('read before', { max_reads: 1 });
await secrets.decrypt(readId, readKey);
const often = await secrets.keep('for any number of readers');
const webhook = openWebhook({ after }, original.url);
const described = { name: 'reader', role: 'operator', source: 'generic' } as const;
const operator = await createToken(webhook, described, null);
await first.stop();
await webhook.close();
const backup = await copyDatabase(original.url);
await backup.sql`
  insert into secrets.tokens (id, name, role, digest)
  values (gen_random_uuid(), 'Ada', 'sender', '\\x01')`;
for (const schema of ['secrets', 'webhook'])
  await backup.sql`
    insert into ${backup.sql(schema)}.tokens (id, name, role, digest, revoked_at)
    values (gen_random_uuid(), 'revoked before', 'operator', '\\x02', now())`;
// One of them has expired.
const [request] = await backup.sql`
  insert into secrets.requests (id, kind, title, public_key, digest, key_digest, max_reads,
    seconds, expires_at, key_id, tag)
  select gen_random_uuid(), 'text', 'the key', 'key', 'digest', '\\x01', 1, 3600,
    now() + hours * interval '1 hour', '0000000000000000', '\\x01'
  from unnest(array[1, -1]) hours
  returning id`;

type Urls = Readonly<Record<(typeof SERVICES)[number], string>>;
/** The status of a request with each credential. */
async function statuses({ identity, webhook: hooks }: Urls) {
  const body = { event: 'x', data: { page_id: 'p' } };
  const answers = {
    session: await ask('GET', `${identity}/api/test/`, { bearer: session }),
    key: await ask('GET', `${identity}/api/test/`, { bearer: key.key }),
    operator: await ask('GET', `${hooks}/events`, { bearer: operator.token }),
    sender: await ask('POST', `${hooks}/webhook`, { bearer: WEBHOOK_TOKEN, body }),
  };
  return Object.fromEntries(Object.entries(answers).map(([name, { status }]) => [name, status]));
}
const REVIVED = { session: 200, key: 200, operator: 200, sender: 200 };

const restored = (words: string) =>
  runCommand(['restored', ...words.split(' ')], { DATABASE_URL: backup.url, AUTH_TOKEN });

/** Ends a key, a session, an operator's token, a request, and a secret for one reader. */
async function endAll(t: TestContext): Promise<void> {
  const live = await startGatehouse(t, SERVICES, original.url);
  const bearer = await logIn(live.url.identity);
  for (const path of [`key/${key.id}/revoke`, `session/revoke?session=${session}`])
    await ask('DELETE', `${live.url.identity}/api/${path}`, { bearer });
  assert.ok(await revokeToken(openWebhook(t, original.url), 'webhook', operator.id));
  const opened = await secretsClient(live.url.secrets).decrypt(once.id, once.secret);
  assert.equal(opened.json.password, 'for one reader');
  await live.stop();
}

/** What each command would do without --confirm. */
const OUTCOMES = [
  ['identity', '1 session ended, 2 API keys revoked'],
  ['identity --keep-keys', '1 session ended, 0 API keys revoked'],
  ['secrets', '1 secret deleted, 1 request withdrawn, 1 token revoked'],
  ['secrets --all', '2 secrets deleted, 1 request withdrawn, 1 token revoked'],
  ['webhook', '1 operator token, 1 sender token revoked'],
  ['webhook --keep-senders', '1 operator token revoked'],
] as const;

test('after a restore, what ended since the backup is valid until `restored` ends it', async (t) => {
  await endAll(t);
  const { url } = await startGatehouse(t, SERVICES, backup.url);
  const client = secretsClient(url.secrets);
  const stored = async () =>
    Promise.all([once, often].map(async ({ id }) => (await client.receipt(id)).json.status));
  for (const [words, would] of OUTCOMES) {
    const { stdout, stderr } = await restored(words);
    const said = `Dry run, nothing was changed. With --confirm: ${would}.`;
    assert.deepEqual([stdout, stderr.split('\n')[0]], ['', said]);
  }
  assert.deepEqual(await statuses(url), REVIVED);
  assert.deepEqual(await stored(), ['stored', 'stored'], 'it could be read a second time');

  for (const words of ['identity --keep-keys', 'secrets', 'webhook --keep-senders'])
    assert.equal((await restored(`${words} --confirm`)).code, 0, words);
  assert.deepEqual(await statuses(url), { session: 401, key: 200, operator: 401, sender: 200 });
  assert.deepEqual(await stored(), ['deleted', 'stored']);
  const [asked] = await backup.sql`select ending from secrets.requests where id = ${request?.id}`;
  assert.equal(asked?.ending, 'withdrawn');
  // The receipt is removed so long after that.
  const [gone] = await backup.sql`select ended_at from secrets.secrets where id = ${once.id}`;
  assert.ok(gone?.ended_at instanceof Date);

  for (const words of ['identity', 'secrets --all', 'webhook'])
    assert.equal((await restored(`${words} --confirm`)).code, 0, words);
  assert.deepEqual(await statuses(url), { session: 401, key: 401, operator: 401, sender: 401 });
  assert.deepEqual(await stored(), ['deleted', 'deleted']);
  const [trail] = await backup.sql`
    select string_agg(event || ' ' || count || detail, ', ' order by created_at) as text
    from identity.audit where event like '%.revoked' and via = 'command'`;
  assert.equal(trail?.text, 'session.revoked 1, key.revoked 2after a restore');

  // It may have been used since the backup.
  await backup.sql`
    insert into identity.recovery_codes (digest, user_id)
    select '\\x01', id from identity.users limit 1`;
  const { stderr } = await restored('identity --confirm');
  assert.match(stderr, /^0 sessions ended, .* revoked, 1 recovery code removed\.\nPasswords, /);
  const bearer = await logIn(url.identity);
  assert.equal((await ask('GET', `${url.identity}/api/test/`, { bearer })).status, 200);
});
