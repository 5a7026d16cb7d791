/** The webhook service with a sender, an operator, and events in every status. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { Sql } from 'postgres';
import { sha256 } from '../../src/platform/crypto/token.ts';
import { openConnections } from './connections.ts';
import { ask, launch, WEBHOOK_TOKEN } from './gatehouse.ts';
import type { Owner } from './owner.ts';

export const OPERATOR_TOKEN = 'operator-token-for-tests-0123456789abcdefg';

/** The properties of an event to insert; others have defaults. */
export interface Wish {
  readonly event?: string;
  readonly source?: string;
  readonly status?: 'stored' | 'waiting' | 'done' | 'dead' | 'skipped';
  readonly deliveryId?: string;
  readonly body?: string;
  readonly attempts?: number;
  /** Seconds ago. */
  readonly age?: number;
  /** Oldest first. */
  readonly errors?: readonly string[];
}

/** An operator's token, as `token create --role operator` stores it. */
export async function addOperator(sql: Sql, token = OPERATOR_TOKEN): Promise<void> {
  await sql`insert into webhook.tokens (id, name, role, digest)
    values (${randomUUID()}, 'an operator', 'operator', ${sha256(token)})`;
}

/** @param sql a connection or a transaction */
export async function putEvent(
  sql: Sql,
  {
    event = 'page.updated',
    source = 'generic',
    status = 'stored',
    deliveryId,
    body = JSON.stringify({ event, data: { page_id: 'p' } }),
    attempts = 0,
    age = 0,
    errors = [],
  }: Wish = {},
): Promise<string> {
  const id = randomUUID();
  await sql`
    insert into webhook.events (id, token_id, source, delivery_id, event, headers, ip, body,
      received_at)
    select ${id}, id, ${source}, ${deliveryId ?? null}, ${event}, '{"user-agent": "a test"}',
      '192.0.2.7',
      ${Buffer.from(body)}, now() - make_interval(secs => ${age})
    from webhook.tokens where role = 'sender' order by created_at limit 1`;
  if (status === 'waiting')
    await sql`insert into webhook.work (event_id, token_id, received_at, attempts, due_at)
      select id, token_id, received_at, ${attempts}, now() + interval '1 hour' from webhook.events
        where id = ${id}`;
  else if (status !== 'stored')
    await sql`insert into webhook.outcomes (event_id, status, attempts, received_at)
      select id, ${status}, ${attempts}, received_at from webhook.events where id = ${id}`;
  for (const [index, error] of errors.entries()) {
    await sql`insert into webhook.failures (event_id, attempt, failed_at, error)
      values (${id}, ${index + 1}, now() - make_interval(secs => ${errors.length - index}),
        ${error})`;
  }
  return id;
}

/** Sends an event to a service, with the token of its first sender. @returns its id */
export async function sendEvent(
  base: string,
  event: string,
  headers: Record<string, string> = {},
): Promise<string> {
  const body = { event, data: { page_id: 'p' } };
  const answer = await ask('POST', `${base}/webhook`, { bearer: WEBHOOK_TOKEN, body, headers });
  assert.equal(answer.status, 200, answer.text);
  return answer.json.id;
}

/** Starts the service without a target, unless the environment has one. */
export async function openInbox(owner: Owner, environment: Readonly<Record<string, string>> = {}) {
  const gatehouse = await launch(['webhook'], environment, owner);
  const { sql, databaseUrl, webhook: url } = gatehouse;
  await addOperator(sql);
  return {
    gatehouse,
    url,
    databaseUrl,
    /** One connection, for assertions. */
    sql,
    /** The service's own connections. */
    database: openConnections(owner, databaseUrl, 'webhook'),
    /** One request as the operator, or with another bearer, or with none for null. */
    call: (method: string, path: string, bearer: string | null = OPERATOR_TOKEN) =>
      ask(method, url + path, bearer === null ? {} : { bearer }),
    /** As `sendEvent`. */
    send: (event: string, headers?: Record<string, string>) => sendEvent(url, event, headers),
    /** Inserts an event with this status. @returns its id */
    put: (wish?: Wish, on = sql) => putEvent(on, wish),
  };
}
export type Inbox = Awaited<ReturnType<typeof openInbox>>;
