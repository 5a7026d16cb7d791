/** Refused requests, counted by token and error code. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { untilSql } from '../../support/connections.ts';
import { ask, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { openInbox } from '../../support/inbox.ts';
import { addToken, openWebhook, WEBHOOK_SECRET } from '../../support/senders.ts';
import { removeUnstored } from '../../../src/webhook/store/unstored.ts';
import { listTokens } from '../../../src/webhook/store/tokens.ts';

const { url, sql, call, databaseUrl, send } = await openInbox({ after }, { WEBHOOK_SECRET });
const database = openWebhook({ after }, databaseUrl);
const post = (bearer: string, body: unknown, headers: Record<string, string> = {}) =>
  ask('POST', `${url}/webhook`, { bearer, body, headers });
const total = async () =>
  Number((await sql`select coalesce(sum(count), 0)::int as n from webhook.unstored`)[0]?.n);
const refused = async () =>
  new Map<string, number>(
    (await call('GET', '/events/refused')).json.map(
      (row: { token_id: string | null; name: string | null; reason: string; count: number }) => [
        `${row.name ?? row.token_id} ${row.reason}`,
        row.count,
      ],
    ),
  );

test('each refused request counts once, by token and error code, also in a flood', async () => {
  const github = await addToken(database, 'github');
  const wrong = { 'x-github-event': 'push', 'x-hub-signature-256': `sha256=${'0'.repeat(64)}` };
  await Promise.all(Array.from({ length: 30 }, () => post(github.token, {}, wrong)));
  await post(WEBHOOK_TOKEN, { event: '' });
  await post(WEBHOOK_TOKEN, 'no JSON', { 'content-type': 'application/json' });
  await post(WEBHOOK_TOKEN, 'text', { 'content-type': 'text/plain' });
  await post('unknown-token', {});
  await ask('POST', `${url}/webhook`, { body: {} });
  await send('accepted');
  await untilSql(async () => (await total()) === 35, 'the counts');
  const counts = await refused();
  assert.equal(counts.get('null unauthorized'), 2);
  assert.equal(counts.get('first invalid_body'), 2);
  assert.equal(counts.get('first unsupported_media_type'), 1);
  const ofGithub = [...counts].filter(([key]) => !/^(null|first) /.test(key));
  assert.deepEqual(
    ofGithub.map(([, count]) => count),
    [30],
  );
  assert.match(ofGithub[0]?.[0] ?? '', / unauthorized$/);
  const rows = await sql`select count(*)::int as n from webhook.unstored`;
  assert.ok(Number(rows[0]?.n) <= 8, 'a row by token, code and hour');

  // Those of another second are added, and none is written twice.
  await post('unknown-token', {});
  await untilSql(async () => (await total()) === 36, 'the later count');
  assert.equal((await refused()).get('null unauthorized'), 3);

  const tokens = await listTokens(database);
  const listed = tokens.find(({ id }) => id === github.id);
  assert.deepEqual([listed?.refused, listed?.last_refusal], [30, 'unauthorized']);
});

test('only the last 24 hours are shown, and seven days are kept', async () => {
  await sql`truncate webhook.unstored`;
  await sql`insert into webhook.unstored (token_id, reason, hour, count, last_at)
    select gen_random_uuid(), 'unauthorized', now() - hours * interval '1 hour', 1,
      now() - hours * interval '1 hour'
    from unnest('{1,23,25,167,169,500}'::int[]) as hours`;
  assert.equal((await call('GET', '/events/refused')).json.length, 2);
  assert.equal(await removeUnstored(database, 100), 2);
  assert.equal(await removeUnstored(database, 100), 0);
  assert.equal(await total(), 4);
});
