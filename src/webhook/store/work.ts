import type { Database } from '../../db/pool.ts';
import type { SourceName } from '../sources.ts';

/** An event that is being worked on. */
export interface Task {
  readonly id: string;
  readonly claim: string;
  /** This one, counted from 1. */
  readonly attempt: number;
  readonly event: string;
  readonly source: SourceName;
  readonly delivery_id: string | null;
  readonly received_at: Date;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

/**
 * Takes what is due, whatever replica took it before: a lease that has ended is due like anything else. The attempt is
 * counted here, so that one that ends with its process has been counted.
 * @param claim a new id each time: who held the lease before can no longer complete, renew or give back
 */
export async function claimWork(database: Database, claim: string, leaseSeconds: number, most: number): Promise<Task[]> {
  // Not on the lane on which senders wait for their commits: a long backlog may take its time.
  return database.list(
    (sql) => sql<Task[]>`
      with claimed as (
        update webhook.work set claim = ${claim}, attempts = attempts + 1, due_at = now() + make_interval(secs => ${leaseSeconds})
        where event_id = any (array(
          select event_id from webhook.work w where due_at <= now() and (order_key is null or event_id = (
            select event_id from webhook.work first where first.order_key = w.order_key order by received_at, event_id limit 1))
          order by due_at limit ${most} for update skip locked
        )) returning event_id, attempts
      )
      select e.id, ${claim}::text as claim, c.attempts as attempt, e.event, e.source, e.delivery_id, e.received_at, e.headers, e.body
      from claimed c join webhook.events e on e.id = c.event_id`,
  );
}

export type Held = Pick<Task, 'id' | 'claim'>;

/** As texts of arrays, which need no list of types to be fetched from the server. */
const arrays = (held: readonly Held[]) => ({ ids: `{${held.map(({ id }) => id).join()}}`, claims: `{${held.map(({ claim }) => claim).join()}}` });

/** Puts the end of the leases off, of those that are still held. */
export async function renewLeases(database: Database, held: readonly Held[], leaseSeconds: number): Promise<void> {
  const { ids, claims } = arrays(held);
  await database.write(
    (sql) => sql`
      update webhook.work w set due_at = now() + make_interval(secs => ${leaseSeconds})
      from unnest(${ids}::text::uuid[], ${claims}::text::uuid[]) as held (id, claim) where w.event_id = held.id and w.claim = held.claim`,
  );
}

/**
 * Ends work, done or dead, of those that are still held.
 * @param idle 1 for a lease that was taken only to end it, without an attempt
 */
export async function endWork(database: Database, held: readonly Held[], status: 'done' | 'dead', error: string | null, idle: 0 | 1 = 0): Promise<void> {
  const { ids, claims } = arrays(held);
  await database.write(
    (sql) => sql`
      with ended as (
        delete from webhook.work w using unnest(${ids}::text::uuid[], ${claims}::text::uuid[]) as held (id, claim)
        where w.event_id = held.id and w.claim = held.claim returning w.event_id, w.attempts - ${idle} as attempts
      ), failed as (
        insert into webhook.failures (event_id, attempt, error) select event_id, attempts, ${error}::text from ended where ${error}::text is not null
      )
      insert into webhook.outcomes (event_id, status, attempts) select event_id, ${status}, attempts from ended
      on conflict (event_id) do update set status = excluded.status, attempts = excluded.attempts, ended_at = now()`,
  );
}

/** Gives work back, to be tried again in so many seconds. @param error null when it was not its fault, and then the attempt does not count */
export async function returnWork(database: Database, { id, claim }: Held, error: string | null, delaySeconds: number): Promise<void> {
  await database.write(
    (sql) => sql`
      with returned as (
        update webhook.work set claim = null, attempts = attempts - ${error === null ? 1 : 0}, due_at = now() + make_interval(secs => ${delaySeconds})
        where event_id = ${id} and claim = ${claim} returning event_id, attempts
      )
      insert into webhook.failures (event_id, attempt, error) select event_id, attempts, ${error}::text from returned where ${error}::text is not null`,
  );
}

export interface Backlog {
  readonly waiting: number;
  /** Seconds since the oldest of them was received. */
  readonly oldest: number;
  readonly dead: number;
}

export async function readBacklog(database: Database): Promise<Backlog> {
  const [row] = await database.list(
    (sql) => sql<[Backlog]>`
      select count(*)::int as waiting, coalesce(extract(epoch from now() - min(received_at)), 0)::float8 as oldest,
        (select count(*)::int from webhook.outcomes where status = 'dead') as dead
      from webhook.work`,
  );
  return row;
}
