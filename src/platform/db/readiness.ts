import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { describeError, Unavailable } from '../runtime/errors.ts';
import type { Log } from '../runtime/log.ts';
import { Unreachable } from './errors.ts';
import type { Database } from './pool.ts';
import { type DatabaseSchema, outdated } from './schema.ts';

/** How long a probe waits for its check. Load balancers wait for a second. */
const ANSWER_MS = 500;
/** How long a good result stands, while its connection is open. */
const FRESH_MS = 1_000;
/** After so long without an answer, a new connection looks for a server that has taken over. */
const SEARCH_MS = 1_000;
/** A database that needs longer for one statement cannot be used. */
const LIMIT_SECONDS = 5;

const TOO_SLOW = new Unavailable(`the database is too slow: no answer within ${LIMIT_SECONDS} s`);

/**
 * For the readiness probe. A slow database answers all replicas late, and taking all of them out
 * would make a failure of it. So a probe answers soon, by the latest check that has ended.
 * @returns a function that never throws: null if requests can be served, otherwise why not
 */
export function createReadiness(database: Database, schema: DatabaseSchema, log: Log) {
  /** By the latest check that has ended. It is asked only after the start, which was one. */
  let problem: unknown = null;
  let begunAt = -Infinity;
  let check: Promise<void> | null = null;
  let search: Promise<void> | null = null;

  async function begin() {
    begunAt = performance.now();
    problem = await findProblem(database, schema);
    check = null;
  }
  async function searchServer() {
    // Connections to another server end those to the former one, with the statements on them.
    await database.maintain(async () => {}).catch(() => {});
    search = null;
  }
  const report = createReport(log);

  return async () => {
    const isFresh = performance.now() - begunAt < FRESH_MS && database.isProbed();
    if (problem !== null || !isFresh) check ??= begin();
    await Promise.race([check, late()]);
    const silentMs = check ? performance.now() - begunAt : 0;
    if (silentMs > SEARCH_MS) search ??= searchServer();
    return report(silentMs > LIMIT_SECONDS * 1_000 ? TOO_SLOW : problem);
  };
}

/** A process that was suspended finds its timers expired before it reads what has arrived. */
async function late() {
  await sleep(ANSWER_MS, undefined, { ref: false });
  await nextTurn();
}

/** @returns what one statement or a connection fails with; null if requests can be served */
async function findProblem(database: Database, schema: DatabaseSchema): Promise<unknown> {
  try {
    const [version] = await Promise.all([
      readAndWrite(database, schema.name),
      database.ensureConnected(),
    ]);
    return version < schema.steps.length ? outdated(schema) : null;
  } catch (error) {
    return error;
  }
}

/**
 * One statement, and so one round trip. The update needs no new disk space, but the series does: it
 * exceeds the working memory and goes to a file.
 */
const readAndWrite = (database: Database, schema: string) =>
  database.readiness(async (sql) => {
    const [row] = await sql<[{ version: number }]>`
      with written as (update ${sql(schema)}.migrations set name = name where version = 1)
      select coalesce(max(version), 0)::int4 as version,
        (select count(*) from generate_series(1, 20000)) as filed
      from ${sql(schema)}.migrations`;
    return row.version;
  });

/** Logs changes only, because probes repeat every few seconds. @returns what callers are told */
function createReport(log: Log) {
  let logged = '';
  return (problem: unknown) => {
    const facts = problem === null ? null : describeError(problem);
    const text = facts?.error ?? '';
    if (text !== logged && facts) log.warn('not ready', facts);
    if (text !== logged && !facts) log.info('ready again');
    logged = text;
    // The log names hosts. Anybody may ask for the reply.
    const isPublic = problem instanceof Unavailable && !(problem instanceof Unreachable);
    if (problem === null || isPublic) return problem?.message ?? null;
    return 'the database cannot be reached; the log says why';
  };
}
