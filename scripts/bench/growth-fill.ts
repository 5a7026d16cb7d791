/**
 * Bulk loads for `make bench PART=growth`: rows as the services write them, spread over the past 30
 * days.
 */
import { createHash, randomUUID } from 'node:crypto';
import type { Sql } from 'postgres';

/**
 * Whatever the size: those that the calls use, and events that could not be delivered, which are
 * rare.
 */
const KNOWN_SESSIONS = 1_000;
const DEAD_EVENTS = 1_000;

export const administratorToken = `session:${randomUUID()}`;
export const userTokens = Array.from({ length: KNOWN_SESSIONS }, () => `session:${randomUUID()}`);
export const operatorToken = randomUUID();

const digestOf = (token: string) => createHash('sha256').update(token).digest('hex');

/**
 * Loads without secondary indexes, which are built afterwards: faster, and as compact as after a
 * restore.
 */
async function withoutIndexes(sql: Sql, schema: string, load: () => Promise<void>): Promise<void> {
  const indexes = await sql<Array<{ name: string; definition: string }>>`
    select indexrelid::regclass::text as name, pg_get_indexdef(indexrelid) as definition
    from pg_index join pg_class on pg_class.oid = indrelid
    where relnamespace = ${schema}::regnamespace
      and indexrelid not in (select conindid from pg_constraint)`;
  for (const { name } of indexes) await sql.unsafe(`drop index ${name}`);
  await load();
  for (const { definition } of indexes) await sql.unsafe(definition);
}

/**
 * Settings of a bulk load, for this connection: the rows are not worth a flush or a check of each
 * reference.
 */
async function prepareLoad(sql: Sql): Promise<void> {
  await sql`set synchronous_commit = off`;
  await sql`set session_replication_role = replica`;
  await sql`set maintenance_work_mem = '1GB'`;
}

/**
 * @param size the number of sessions and of audit rows; there are a tenth as many users and API
 * keys
 */
export async function fillIdentity(sql: Sql, size: number): Promise<void> {
  await prepareLoad(sql);
  const users = size / 10;
  await withoutIndexes(sql, 'identity', async () => {
    await sql`
      insert into identity.users (
        id, username, username_key, email, email_key, first_name, last_name, enabled, verified,
          super_admin, created_at
      )
      select gen_random_uuid(), 'user-' || n, 'user-' || n, 'user-' || n || '@example.org',
        'user-' || n || '@example.org', 'Ada', 'Lovelace', true, true, n = 1,
        now() - interval '60 days' + n * interval '1 millisecond'
      from generate_series(1, ${users}::int) n`;
    await sql`create temporary table owners as select id, row_number() over () as n
      from identity.users`;
    await sql`create index on owners (n)`;
    await sql`analyze owners`;
    // Sessions last for a week. A tenth of all is active.
    await sql`
      insert into identity.sessions (
        id, token_digest, user_id, created_at, updated_at, last_seen_at, expires_at, logged_out, ip,
          user_agent
      )
      select gen_random_uuid(), sha256(uuid_send(gen_random_uuid())), o.id, created_at, created_at,
        created_at,
        created_at + interval '7 days', created_at < now() - interval '3 days', '203.0.113.7',
        'Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0'
      from (
        select now() - random() * interval '30 days' as created_at,
          1 + floor(random() * ${users})::int as owner
        from generate_series(1, ${size - KNOWN_SESSIONS - 1}::int)
      ) dated join owners o on o.n = owner`;
    await sql`
      insert into identity.api_keys (id, key_digest, key_prefix, name, user_id, created_at)
      select gen_random_uuid(), sha256(uuid_send(gen_random_uuid())), 'abcdefgh', 'key ' || n, o.id,
        now() - random() * interval '30 days'
      from generate_series(1, ${users}::int) n join owners o using (n)`;
    await sql`
      insert into identity.audit (
        id, created_at, event, via, actor_id, user_id, target_id, count, ip, request_id, detail
      )
      select gen_random_uuid(), now() - random() * interval '30 days', 'login', 'http', o.id, o.id,
        null, 1,
        '203.0.113.7', gen_random_uuid(), ''
      from (select 1 + floor(random() * ${users})::int as owner
        from generate_series(1, ${size}::int)) picked
      join owners o on o.n = owner`;
  });
  // Spread over all users and times, so that a check finds its rows anywhere in the table.
  const insertSessions = (tokens: readonly string[], owners: string) => sql`
    insert into identity.sessions (id, token_digest, user_id, created_at, expires_at)
    select gen_random_uuid(), decode(digest, 'hex'), o.id, now() - random() * interval '2 days',
      now() + interval '9 days'
    from unnest(${tokens.map(digestOf)}::text[]) with ordinality known (digest, n)
    join (${sql.unsafe(owners)}) o using (n)`;
  await insertSessions(
    [administratorToken],
    "select id, 1 as n from identity.users where username = 'user-1'",
  );
  const step = Math.max(1, Math.floor(users / KNOWN_SESSIONS));
  await insertSessions(
    userTokens,
    `select id, 1 + (n - 1) / ${step} as n from owners where n % ${step} = 0`,
  );
  await sql`drop table owners`;
}

/** @param size the number of secrets. The key id is that of the service, which has stored some. */
export async function fillSecrets(sql: Sql, size: number): Promise<void> {
  await prepareLoad(sql);
  await withoutIndexes(sql, 'secrets', async () => {
    // The content is never opened. It has the length of a short text.
    await sql`
      insert into secrets.secrets (id, key_id, commitment, blob, tag, created_at, expires_at)
      select gen_random_uuid(), (select key_id from secrets.secrets limit 1),
        sha256(n::text::bytea),
        decode(repeat(md5(n::text), 17) || repeat('00', 13), 'hex'), sha256(n::text::bytea),
        now() - random() * interval '6 days', now() + (1 + random() * 30) * interval '1 day'
      from generate_series(1, ${size}::int) n`;
  });
}

/** @param size the number of events, all of them ended */
export async function fillWebhook(sql: Sql, size: number): Promise<void> {
  await prepareLoad(sql);
  await withoutIndexes(sql, 'webhook', async () => {
    await sql`
      insert into webhook.events (id, token_id, delivery_id, event, headers, ip, body, received_at)
      select gen_random_uuid(), (select id from webhook.tokens limit 1), 'delivery-' || n,
        'page.updated',
        '{"content-type": "application/json"}', '203.0.113.7',
        convert_to('{"event":"page.updated","data":{"page_id":"' || gen_random_uuid()
          || '","text":"' || repeat('x', 200) || '"}}', 'UTF8'),
        now() - interval '30 days' * (1 - n::float8 / ${size + 1}::float8)
      from generate_series(1, ${size}::int) n`;
    await sql`
      insert into webhook.outcomes (event_id, status, attempts, ended_at, received_at)
      select id,
        case when random() < ${DEAD_EVENTS}::int / ${size}::float8 then 'dead' else 'done' end, 1,
        received_at, received_at
      from webhook.events`;
  });
  await sql`
    insert into webhook.tokens (id, name, role, digest)
    values (gen_random_uuid(), 'operator', 'operator', decode(${digestOf(operatorToken)}, 'hex'))`;
}
