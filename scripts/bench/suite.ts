/**
 * `make bench`: runs all parts, or the named ones, one after the other on one PostgreSQL.
 *
 *   node --import tsx scripts/bench/suite.ts [--quick] [--write] [--against=REF] [PART …]
 *
 * `--against=REF` builds another commit and compares this tree with it instead of with the
 * baselines. `--write` replaces the figures of docs/benchmarks.md. BENCH_POSTGRES_URL names a
 * server of this machine, whose role may create databases; without it, one is started. A wrong
 * reply fails its part, and the others still run. A missed target fails nothing.
 */
import { parseArgs } from 'node:util';
import { connect } from '../postgres.ts';
import { bearer } from './bearer.ts';
import { type Build, buildCommit, BuildError, currentCommit, THIS } from './builds.ts';
import type { Report } from './compare.ts';
import { containers } from './containers.ts';
import { type Server, withPostgres, withPostgresAt } from './database.ts';
import { delivery } from './delivery.ts';
import { conditionsOf, markdownOf, writePart } from './document.ts';
import { growth } from './growth.ts';
import type { Bench } from './measure.ts';
import { memory } from './memory.ts';
import { oidc } from './oidc.ts';
import { profiles } from './profile.ts';
import { rivals } from './rivals.ts';
import { decrypt, encrypt } from './secrets.ts';
import { stopAll } from './service.ts';
import { signed, webhook } from './webhook.ts';

const PARTS = new Map<string, (bench: Bench) => Promise<Report>>(
  Object.entries({
    bearer,
    oidc,
    webhook,
    signed,
    encrypt,
    decrypt,
    delivery,
    growth,
    rivals,
    memory,
    containers,
    profile: profiles,
  }),
);

const flag = { type: 'boolean', default: false } as const;
const flags = { quick: flag, write: flag, against: { type: 'string' } } as const;
const { values: options, positionals } = parseArgs({ options: flags, allowPositionals: true });
const { quick: isQuick, write: isWritten, against } = options;

function fail(message: string): never {
  process.stderr.write(`${message}\n`);
  process.exit(2);
}

const unknown = positionals.filter((name) => !PARTS.has(name));
if (unknown.length > 0)
  fail(`unknown part: ${unknown.join(', ')}. Known: ${[...PARTS.keys()].join(', ')}`);
if (isWritten && (isQuick || against !== undefined))
  fail('only a full comparison with the baselines is written: omit --write');
const parts = [...PARTS].filter(([name]) => {
  if (positionals.length > 0) return positionals.includes(name);
  // They measure this tree alone.
  return against === undefined || !['growth', 'rivals', 'containers'].includes(name);
});

const { BENCH_POSTGRES_URL: given } = process.env;
await (given === undefined ? withPostgres(runParts) : withPostgresAt(given, runParts));

async function runParts(postgres: Server, directory: string): Promise<void> {
  const sql = connect(postgres.url);
  try {
    const builds: Build[] = [THIS];
    if (against !== undefined) builds.push(buildCommit(against, directory));
    const [{ version: postgresVersion }] = await sql<[{ version: string }]>`
      select current_setting('server_version') || case when 'lz4' = any (enumvals)
        then ' (with LZ4)' else ' (without LZ4)' end as version
      from pg_settings where name = 'default_toast_compression'`;
    const pace = isQuick
      ? { rounds: 3, seconds: 1, warmUp: 1 }
      : { rounds: 5, seconds: 3, warmUp: 3 };
    const bench: Bench = { directory, postgres, sql, builds, ...pace, isQuick };
    const conditions = conditionsOf({ commit: currentCommit(), postgresVersion, ...pace });
    console.log(conditions);
    for (const [name, run] of parts) await runPart(name, () => run(bench), conditions);
  } catch (error) {
    if (!(error instanceof BuildError)) throw error;
    process.stderr.write(`${error.message}\n`);
    process.exitCode = 2;
  } finally {
    await sql.end();
  }
}

/** Writes after each part, so that an interrupted run keeps what it has measured. */
async function runPart(
  name: string,
  run: () => Promise<Report>,
  conditions: string,
): Promise<void> {
  try {
    const text = markdownOf(await run());
    console.log(`\n## ${name}\n\n${text}`);
    if (isWritten) writePart(name, `${conditions}\n\n${text}`);
  } catch (error) {
    process.exitCode = 1;
    console.log(`\n## ${name}\n\nFAILED: ${String(error)}`);
  } finally {
    await stopAll();
  }
}
