import type { Database } from '../../platform/db/pool.ts';

/** A target fails from this many failures in a row on, */
const OPEN_FAILURES = 10;
/** over at least this time: a restart is over sooner. */
const OPEN_SECONDS = 60;
/** Between two probes: a tenth of the time for which the target has failed, within these bounds. */
const MIN_PROBE_SECONDS = 10;
const MAX_PROBE_SECONDS = 300;

/** The failures of a target on all replicas. */
export type Failing = Readonly<{
  target: string;
  failures: number;
  token_id: string | null; // whose events all of them were
  failing_since: Date;
  probe_at: Date;
  is_open: boolean; // so many, and for so long, that it is only probed
}>;

/** @returns undefined if the last attempt succeeded */
export const findFailing = async (database: Database, target: string) =>
  (await listFailing(database)).find((failing) => failing.target === target);

/** Few: a success removes the row of its target. */
export const listFailing = (database: Database) =>
  database.read(
    (sql) => sql<Failing[]>`
    select target, failures, token_id, failing_since, probe_at, failures >= ${OPEN_FAILURES}
      and failing_since <= now() - make_interval(secs => ${OPEN_SECONDS}) as is_open
    from webhook.failing_targets`,
  );

/**
 * Adds failures to the count of all replicas.
 * @param tokenId whose events failed; null for those of several tokens
 */
export const addFailures = (
  database: Database,
  target: string,
  count: number,
  tokenId: string | null,
) =>
  database.write(
    (sql) => sql`
    insert into webhook.failing_targets as f (target, failures, token_id)
    values (${target}, ${count}, ${tokenId})
    on conflict (target) do update
      set failures = least(f.failures + excluded.failures, 1000000000),
        token_id = case when f.token_id = excluded.token_id then f.token_id end`,
  );

/** After a success. */
export const clearFailures = (database: Database, target: string) =>
  database.write((sql) => sql`delete from webhook.failing_targets where target = ${target}`);

/**
 * Takes the next probe of a failing target, if it is due and an event is.
 * @returns true for one replica only
 */
export async function takeProbe(database: Database, target: string, queue: string) {
  const { count } = await database.write(
    (sql) => sql`
    update webhook.failing_targets set probe_at = now() + make_interval(secs => least(
      ${MAX_PROBE_SECONDS},
      greatest(${MIN_PROBE_SECONDS}, extract(epoch from now() - failing_since) / 10)))
    where target = ${target} and probe_at <= now() and not exists (select from webhook.pause)
      and (exists (select from webhook.unordered where queue = ${queue} and due_at <= now())
        or exists (select from webhook.heads where queue = ${queue} and due_at <= now()))`,
  );
  return count === 1;
}

/**
 * Null if delivery is not paused. `paused_by`: the name of the operator's token, or its id if it
 * has no name, `user:NAME`, or "command".
 */
export async function findPause(database: Database) {
  const [pause] = await database.read(
    (sql) => sql<[{ paused_at: Date | null; paused_by: string | null }]>`
    select max(paused_at) as paused_at, max(coalesce(
      (select nullif(name, '') from webhook.tokens where id::text = paused_by), paused_by)
    ) as paused_by from webhook.pause`,
  );
  return pause;
}

/**
 * No claim that begins after the commit leases anything.
 * @param by the id of an operator's token, `user:NAME`, or "command"
 * @returns false if delivery was paused already
 */
export async function pauseDelivery(database: Database, by: string) {
  const { count } = await database.write(
    (sql) => sql`
    insert into webhook.pause (paused_by)
    values (${by})
    on conflict (id) do nothing`,
  );
  return count === 1;
}

/** @returns false if delivery was not paused */
export const resumeDelivery = async (database: Database) =>
  (await database.write((sql) => sql`delete from webhook.pause`)).count === 1;
