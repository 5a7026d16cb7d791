/** A restore brings back what had ended since the backup. `restored` ends it again. */
import assert from 'node:assert/strict';
import { after, test, type TestContext } from 'node:test';
import { revokeToken } from '../../../src/platform/db/tokens.ts';
import { insertRequest } from '../../../src/secrets/store/requests.ts';
import { createSecretToken, createToken } from '../../support/tokens.ts';
import { runCommand } from '../../support/commands.ts';
import { copyDatabase, createDatabase } from '../../support/database.ts';
import { ask, AUTH_TOKEN, logIn, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { type SecretsClient, secretsClient } from '../../support/secrets.ts';
import { openConnections } from '../../support/connections.ts';
import { openWebhook } from '../../support/senders.ts';

const SERVICES = ['identity', 'secrets', 'webhook'] as const;
const original = await createDatabase();
const REQUEST = '00000000-0000-4000-8000-000000000001';

// What exists at the time of the backup.
const first = await startGatehouse({ after }, SERVICES, original.url);
const session = await logIn(first.url.identity);
const makeKey = async (body: object): Promise<{ id: string; key: string }> =>
  (await ask('POST', `${first.url.identity}/api/key/`, { bearer: session, body })).json.data;
const key = await makeKey({ name: 'revoked later' });
await makeKey({ name: 'of no user', user_id: null });
const secrets = secretsClient(first.url.secrets);
const once = await secrets.keep('for one reader', { max_reads: 1 });
const often = await secrets.keep('for any number of readers');
const shared = openConnections({ after }, original.url, 'secrets');
await createSecretToken(shared, { name: 'Ada', role: 'sender' });
await insertRequest(shared, {
  id: REQUEST,
  creator: null,
  asker: null,
  kind: 'text',
  title: 'the key',
  public_key: 'key',
  digest: 'digest',
  key_digest: Buffer.alloc(32),
  max_reads: 1,
  seconds: 3_600,
  answer_key: null,
  expires_at: new Date(Date.now() + 3_600_000),
  key_id: '0000000000000000',
  tag: Buffer.alloc(32),
});
await shared.close();
const webhook = openWebhook({ after }, original.url);
const operator = await createToken(
  webhook,
  { name: 'reader', role: 'operator', source: 'generic' },
  null,
);
await first.stop();
await webhook.close();
const backup = await copyDatabase(original.url);

/** The status of a request with each credential. */
async function statuses(url: Readonly<Record<(typeof SERVICES)[number], string>>) {
  const event = { event: 'x', data: { page_id: 'p' } };
  return {
    session: (await ask('GET', `${url.identity}/api/test/`, { bearer: session })).status,
    key: (await ask('GET', `${url.identity}/api/test/`, { bearer: key.key })).status,
    operator: (await ask('GET', `${url.webhook}/events`, { bearer: operator.token })).status,
    sender: (await ask('POST', `${url.webhook}/webhook`, { bearer: WEBHOOK_TOKEN, body: event }))
      .status,
  };
}

const statusOf = async (client: SecretsClient, id: string) =>
  (await client.receipt(id)).json.status;

async function restored(words: string, databaseUrl: string) {
  return runCommand(['restored', ...words.split(' ')], {
    DATABASE_URL: databaseUrl,
    AUTH_TOKEN,
  });
}

const REVIVED = { session: 200, key: 200, operator: 200, sender: 200 };

/** Ends a key, a session, an operator's token and a secret for one reader. */
async function endAll(t: TestContext): Promise<void> {
  const live = await startGatehouse(t, SERVICES, original.url);
  assert.deepEqual(await statuses(live.url), REVIVED);
  const bearer = await logIn(live.url.identity);
  for (const path of [`key/${key.id}/revoke`, `session/revoke?session=${session}`]) {
    await ask('DELETE', `${live.url.identity}/api/${path}`, { bearer });
  }
  const database = openWebhook(t, original.url);
  assert.ok(await revokeToken(database, 'webhook', operator.id));
  await original.sql`
    update secrets.requests set ending = 'withdrawn', tag = null, expires_at = now()
    where id = ${REQUEST}`;
  const opened = await secretsClient(live.url.secrets).decrypt(once.id, once.secret);
  assert.equal(opened.json.password, 'for one reader');
  const ended = { session: 401, key: 401, operator: 401, sender: 200 };
  assert.deepEqual(await statuses(live.url), ended);
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

async function expectNothingWithoutConfirmation(): Promise<void> {
  for (const [words, would] of OUTCOMES) {
    const { code, stdout, stderr } = await restored(words, backup.url);
    assert.deepEqual([code, stdout], [0, '']);
    assert.equal(stderr.split('\n')[0], `Dry run, nothing was changed. With --confirm: ${would}.`);
  }
  const ended = await backup.sql`
    select from identity.audit where event in ('session.revoked', 'key.revoked')`;
  assert.equal(ended.length, 0);
}

async function confirm(...commands: readonly string[]): Promise<void> {
  for (const words of commands) {
    assert.equal((await restored(`${words} --confirm`, backup.url)).code, 0, words);
  }
}

async function checkTrail(): Promise<void> {
  const trail = await backup.sql`
    select event, via, count, detail from identity.audit where event like '%.revoked'
      and via = 'command' order by created_at, event`;
  assert.deepEqual(
    trail.map((row) => [row.event, row.count, row.detail]),
    [
      ['session.revoked', 1, ''],
      ['key.revoked', 2, 'after a restore'],
    ],
  );
}

test('after a restore, what ended since the backup is valid until `restored` ends it', async (t) => {
  await endAll(t);
  const { url } = await startGatehouse(t, SERVICES, backup.url);
  const client = secretsClient(url.secrets);
  assert.deepEqual(await statuses(url), REVIVED);
  assert.equal(await statusOf(client, once.id), 'stored', 'it could be read a second time');
  await expectNothingWithoutConfirmation();
  assert.deepEqual(await statuses(url), REVIVED);

  await confirm('identity --keep-keys', 'secrets', 'webhook --keep-senders');
  assert.deepEqual(await statuses(url), { session: 401, key: 200, operator: 401, sender: 200 });
  assert.equal(await statusOf(client, once.id), 'deleted');
  assert.equal(await statusOf(client, often.id), 'stored');
  const [request] = await backup.sql`select ending from secrets.requests where id = ${REQUEST}`;
  assert.equal(request?.ending, 'withdrawn');
  assert.equal((await client.decrypt(once.id, once.secret)).status, 404);

  await confirm('identity', 'secrets --all', 'webhook');
  assert.deepEqual(await statuses(url), { session: 401, key: 401, operator: 401, sender: 401 });
  assert.equal(await statusOf(client, often.id), 'deleted');
  await checkTrail();

  await backup.sql`
    insert into identity.recovery_codes (digest, user_id)
    select '\\x01', id from identity.users limit 1`;
  const { stderr } = await restored('identity --confirm', backup.url);
  const message = 'it may have been used since the backup';
  assert.match(stderr, /revoked, 1 recovery code removed\./, message);
  const again = await restored('identity --confirm', backup.url);
  assert.match(again.stderr, /^0 sessions ended, 0 API keys revoked\.\nPasswords, rights, /);
  const token = await logIn(url.identity);
  const own = await ask('GET', `${url.identity}/api/test/`, { bearer: token });
  assert.equal(own.status, 200, 'a new login is valid');
});
