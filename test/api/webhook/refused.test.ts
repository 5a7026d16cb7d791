/** Refused requests, counted by token and error code. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { listTokens } from '../../../src/webhook/store/tokens.ts';
import { untilSql } from '../../support/connections.ts';
import { ask, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { openInbox } from '../../support/inbox.ts';
import { addToken, openWebhook, WEBHOOK_SECRET } from '../../support/senders.ts';

const inbox = await openInbox({ after }, { WEBHOOK_SECRET });
const { url, sql, call, databaseUrl, send } = inbox;
const database = openWebhook({ after }, databaseUrl);
const post = (bearer: string, body: unknown, headers: Record<string, string> = {}) =>
  ask('POST', `${url}/webhook`, { bearer, body, headers });
const untilCounted = (count: number) =>
  untilSql(
    async () => (await sql`select sum(count)::int as n from webhook.unstored`)[0]?.n === count,
    `${count} are counted`,
  );
const refused = async () =>
  (await call('GET', '/events/refused')).json
    .map((row: Record<string, unknown>) => `${row.token_id} ${row.reason} ${row.count}`)
    .sort();

test('each refused request counts once, by token and error code, also in a flood', async () => {
  const github = await addToken(database, 'github');
  const wrong = { 'x-github-event': 'push', 'x-hub-signature-256': `sha256=${'0'.repeat(64)}` };
  await Promise.all(Array.from({ length: 30 }, () => post(github.token, {}, wrong)));
  await post(WEBHOOK_TOKEN, { event: '' });
  await post(WEBHOOK_TOKEN, 'no JSON');
  await post(WEBHOOK_TOKEN, 'text', { 'content-type': 'text/plain' });
  await post('unknown-token', {});
  await ask('POST', `${url}/webhook`, { body: {} });
  await send('accepted');
  await untilCounted(35);
  const [first, ...others] = (await listTokens(database)).filter(({ name }) => name === 'first');
  assert.ok(first && others.length === 0);
  const counts = (unknown: number) =>
    [
      `null unauthorized ${unknown}`,
      `${first.id} invalid_body 2`,
      `${first.id} unsupported_media_type 1`,
      `${github.id} unauthorized 30`,
    ].sort();
  assert.deepEqual(await refused(), counts(2));
  const rows = await sql`select from webhook.unstored`;
  assert.ok(rows.length <= 8, 'a row by token, code and hour');

  // Those of another second are added, and none is written twice.
  await post('unknown-token', {});
  await untilCounted(36);
  assert.deepEqual(await refused(), counts(3));
  const listed = (await listTokens(database)).find(({ id }) => id === github.id);
  assert.deepEqual([listed?.refused, listed?.last_refusal], [30, 'unauthorized']);
});

test('only the last 24 hours are shown, and seven days are kept', async () => {
  await sql`truncate webhook.unstored`;
  await sql`insert into webhook.unstored (token_id, reason, hour, count, last_at)
    select gen_random_uuid(), 'unauthorized', now() - hours * interval '1 hour', 1,
      now() - hours * interval '1 hour'
    from unnest('{1,23,25,167,169,500}'::int[]) as hours`;
  assert.equal((await refused()).length, 2);
  await inbox.gatehouse.runJobs(/unstored/);
  const rows = await sql<Array<{ age: number }>>`
    select round(extract(epoch from now() - last_at) / 3600)::int as age
    from webhook.unstored order by 1`;
  assert.deepEqual(
    rows.map(({ age }) => age),
    [1, 23, 25, 167],
  );
});
