/**
 * `make bench`: runs all parts, or the named ones, one after the other on one PostgreSQL.
 *
 *   node --import tsx scripts/bench/suite.ts [--quick] [--long] [--write] [--against=REF] [PART …]
 *
 * `--against=REF` builds another commit and compares this tree with it instead of with the
 * baselines. BENCH_POSTGRES_URL names a server of this machine, whose role may create databases;
 * without it, one is started. A wrong reply fails its part, and the others still run. A missed
 * target fails nothing.
 */
import { parseArgs } from 'node:util';
import { connect } from '../postgres.ts';
import { bearer } from './bearer.ts';
import { type Build, buildCommit, BuildError, currentCommit, THIS } from './builds.ts';
import type { Report } from './compare.ts';
import { type Server, withPostgres, withPostgresAt } from './database.ts';
import { containers } from './containers.ts';
import { conditionsOf, textOf } from './document.ts';
import { delivery } from './delivery.ts';
import { livez } from './livez.ts';
import { login } from './login.ts';
import type { Bench } from './measure.ts';
import { memory } from './memory.ts';
import { profile } from './profile.ts';
import { replicas } from './replicas.ts';
import { writeResults } from './results.ts';
import { decrypt, encrypt, list } from './secrets.ts';
import { writeScaling } from './scaling.ts';
import { stopAll } from './service.ts';
import { size } from './size.ts';
import { start } from './start.ts';
import { steady } from './steady.ts';
import { signed, webhook } from './webhook.ts';

const PARTS = new Map<string, (bench: Bench) => Promise<Report>>(
  Object.entries({
    start,
    bearer,
    webhook,
    signed,
    delivery,
    encrypt,
    decrypt,
    list,
    livez,
    login,
    memory,
    containers,
    profile,
    replicas,
    steady,
    size,
  }),
);
/** Programs of their own, which `make bench` calls instead of this one. */
const OWN = ['growth', 'scaling', 'verify', 'flood', 'drain'];
/** Absolute figures of this tree alone. */
const NOT_COMPARED = new Set(['containers', 'profile', 'replicas', 'steady', 'size']);

const flag = { type: 'boolean', default: false } as const;
const flags = { quick: flag, long: flag, write: flag, against: { type: 'string' } } as const;
const { values: options, positionals } = parseArgs({ options: flags, allowPositionals: true });

function fail(message: string): never {
  process.stderr.write(`${message}\n`);
  process.exit(2);
}

const unknown = positionals.filter((name) => !PARTS.has(name));
if (unknown.length > 0)
  fail(`unknown part: ${unknown.join(', ')}. Known: ${[...PARTS.keys(), ...OWN].join(', ')}`);
if (options.against !== undefined && options.write)
  fail('a comparison of two commits is not written: omit --write');
const names = [...PARTS.keys()].filter((name) => {
  if (positionals.length > 0) return positionals.includes(name);
  if (name === 'steady' && !options.long) return false;
  return options.against === undefined || !NOT_COMPARED.has(name);
});
const writes =
  options.write || (positionals.length === 0 && !options.quick && options.against === undefined);

/** @returns the command as one types it */
function commandOf(parts: readonly string[], words: readonly string[]): string {
  const rest = words.filter((word) => word.startsWith('-'));
  const part = parts.length > 0 ? ` PART="${parts.join(' ')}"` : '';
  return `make bench${part}${rest.length > 0 ? ` ARGS="${rest.join(' ')}"` : ''}`;
}

const { BENCH_POSTGRES_URL: given } = process.env;
await (given === undefined ? withPostgres(runParts) : withPostgresAt(given, runParts));

async function runParts(postgres: Server, directory: string): Promise<void> {
  const sql = connect(postgres.url);
  try {
    const builds: Build[] = [THIS];
    if (options.against !== undefined) builds.push(buildCommit(options.against, directory));
    const [{ version: postgresVersion }] = await sql<[{ version: string }]>`
      select current_setting('server_version') || case when 'lz4' = any (enumvals)
        then ' (with LZ4)' else ' (without LZ4)' end as version
      from pg_settings where name = 'default_toast_compression'`;
    const pace = options.quick
      ? { rounds: 3, seconds: 1, warmUp: 1 }
      : { rounds: 5, seconds: 3, warmUp: 3 };
    const bench: Bench = { directory, postgres, sql, builds, ...pace, isQuick: options.quick };
    const run = {
      command: commandOf(positionals, process.argv.slice(2)),
      postgresVersion,
      ...pace,
    };
    const conditions = conditionsOf(run);
    const commit = currentCommit();
    console.log([`commit ${commit}`, ...conditions].join('\n'));
    for (const name of names) {
      const startedAt = performance.now();
      const part = PARTS.get(name);
      const result: Report | { failure: string } | undefined = await part?.(bench)
        .catch((error: unknown) => {
          process.exitCode = 1;
          return { failure: error instanceof Error ? error.message : String(error) };
        })
        .finally(stopAll);
      if (!result) continue;
      const seconds = ((performance.now() - startedAt) / 1_000).toFixed(0);
      const text = 'failure' in result ? `FAILED: ${result.failure}` : textOf(result);
      console.log(`\n${name}, ${seconds} s\n${text}`);
      // After each part, so that an interrupted run keeps what it has measured.
      const about = {
        name,
        command: run.command,
        commit,
        date: new Date().toISOString(),
        conditions,
      };
      if (writes) writeResults({ ...about, result });
    }
    if (writes) writeScaling();
    else console.log('\ndocs/benchmarks.md is unchanged. A full run or --write updates it.');
  } catch (error) {
    if (!(error instanceof BuildError)) throw error;
    process.stderr.write(`${error.message}\n`);
    process.exitCode = 2;
  } finally {
    await sql.end();
  }
}
