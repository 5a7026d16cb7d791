/**
 * The first page of a list costs the same whatever is stored: the plans that PostgreSQL really ran.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createDatabase } from '../../support/database.ts';
import { ask, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { addOperator, OPERATOR_TOKEN } from '../../support/inbox.ts';
import { observe, type Scan } from '../../support/plans.ts';
import { rounds } from '../../support/rounds.ts';

const file = await createDatabase();
const { sql } = file;
const observatory = await observe({ after }, file);
const { webhook } = (await startGatehouse({ after }, ['webhook'], observatory.url)).url;
const bearer = OPERATOR_TOKEN;
await addOperator(sql);

const DONE = 20_000;
const DEAD = 3_000;
const WAITING = 3_000;
const STORED = 200;
/**
 * Also looked at: the event after the last one, and a row in each of the tables that say what
 * became of it.
 */
const PAGE = 100;
const READ = 110;
const ROUNDS = rounds(2, 7);

async function fill(): Promise<void> {
  await ask('POST', `${webhook}/webhook`, {
    bearer: WEBHOOK_TOKEN,
    body: { event: 'a', data: { page_id: 'p' } },
  });
  // Dead and waiting events are spread over all times.
  await sql`
    insert into webhook.events (id, token_id, delivery_id, event, body, received_at)
    select gen_random_uuid(), t.id, 'delivery-' || n, 'page.updated', '{}',
      now() - n * interval '1 minute'
    from generate_series(1, ${DONE + DEAD + WAITING + STORED}) n, (select id from webhook.tokens
      where role = 'sender' limit 1) t`;
  await sql`create temporary table placed as select id, token_id, received_at,
    row_number() over (order by md5(id::text)) as n from webhook.events`;
  await sql`
    insert into webhook.outcomes (event_id, status, attempts, received_at)
    select id, case when n <= ${DEAD} then 'dead' else 'done' end, 1, received_at from placed
      where n <= ${DONE + DEAD}`;
  await sql`
    insert into webhook.work (event_id, token_id, received_at)
    select id, token_id, received_at from placed
      where n between ${DONE + DEAD + 1} and ${DONE + DEAD + WAITING}`;
  await sql`vacuum analyze`;
}
await fill();

/**
 * A statement is planned for its values five times before PostgreSQL may settle on one plan for
 * all.
 * @returns what the last one read
 */
async function readBy(query: string, found = PAGE): Promise<Scan[]> {
  let scans: Scan[] = [];
  for (let round = 1; round <= ROUNDS; round += 1) {
    observatory.scans();
    const { status, text, json } = await ask('GET', `${webhook}/events?limit=${PAGE}${query}`, {
      bearer,
    });
    assert.equal(status, 200, text);
    assert.equal(json.length, found, query);
    scans = observatory.scans().filter(({ statement }) => statement.includes('webhook.events'));
  }
  assert.ok(scans.length > 0);
  return scans;
}

const rowsOf = (scans: readonly Scan[], table: string) =>
  scans.filter((scan) => scan.table === table).reduce((sum, { rows }) => sum + rows, 0);

test('a page of events, and one of dead events, reads only the rows that it shows', async () => {
  const dead = await ask('GET', `${webhook}/events?limit=100&status=dead`, { bearer });
  const { id, received_at: at } = dead.json.at(-1);
  for (const query of [
    '',
    '&status=dead',
    `&status=dead&after=${id}`,
    `&status=dead&until=${at}`,
    '&status=dead&since=2020-01-01T00:00:00Z',
  ]) {
    const scans = await readBy(query);
    for (const { node, table, rows, statement } of scans)
      assert.ok(
        (rows <= READ && node !== 'Seq Scan') || rows <= 3,
        `${query}: ${node} of ${rows} rows of ${table} for ${statement}`,
      );
    const own = query === '' ? 0 : 1;
    assert.ok(rowsOf(scans, 'webhook.outcomes') <= READ * (1 + own), `${query}: of outcomes`);
  }
});

test('a page of waiting events reads the table of waiting events, and only its own of the others', async () => {
  const scans = await readBy('&status=waiting');
  assert.ok(rowsOf(scans, 'webhook.work') <= WAITING + READ);
  for (const table of ['webhook.events', 'webhook.outcomes', 'webhook.failures'])
    assert.ok(rowsOf(scans, table) <= READ, table);
});

test('the page of an event is found by its delivery id', async () => {
  const scans = await readBy('&delivery_id=delivery-77', 1);
  for (const { table, rows, statement } of scans)
    assert.ok(rows <= 3, `${rows} rows of ${table} for ${statement}`);
});

test('pages of dead events follow each other without a gap, newest first', async () => {
  const seen: string[] = [];
  for (let path: string | undefined = '/events?limit=100&status=dead'; path !== undefined;) {
    const { json, headers } = await ask('GET', webhook + path, { bearer });
    seen.push(...json.map((event: { id: string }) => event.id));
    [, path] = /^<(.*)>; rel="next"$/.exec(headers.get('link') ?? '') ?? [];
  }
  const expected = await sql<Array<{ id: string }>>`
    select e.id from webhook.events e join webhook.outcomes o on o.event_id = e.id
      where o.status = 'dead' order by e.received_at desc, e.id desc`;
  assert.deepEqual(
    seen,
    expected.map(({ id }) => id),
  );
});
