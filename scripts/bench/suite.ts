/**
 * `make bench`: runs all benchmarks, or the named ones, one after the other on one PostgreSQL.
 *
 *   node --import tsx scripts/bench/suite.ts [--quick] [--long] [--write] [BENCHMARK …]
 *
 * A wrong reply fails the run. A missed target does not.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { connect } from '../postgres.ts';
import { bearer } from './bearer.ts';
import type { Bench, Report } from './compare.ts';
import { withPostgres } from './database.ts';
import { conditionsOf, documentOf, type Run, textOf } from './document.ts';
import { livez } from './livez.ts';
import { login } from './login.ts';
import { memory } from './memory.ts';
import { secrets } from './secrets.ts';
import { root, stopAll } from './service.ts';
import { size } from './size.ts';
import { start } from './start.ts';
import { steady } from './steady.ts';
import { webhook } from './webhook.ts';

const DOCUMENT = 'docs/benchmarks.md';
const BENCHMARKS = new Map<string, (bench: Bench) => Promise<Report>>(
  Object.entries({ start, bearer, webhook, secrets, livez, login, memory, steady, size }),
);

const flag = { type: 'boolean', default: false } as const;
const flags = { quick: flag, long: flag, write: flag };
const { values: options, positionals } = parseArgs({ options: flags, allowPositionals: true });
const unknown = positionals.filter((name) => !BENCHMARKS.has(name));
if (unknown.length > 0) {
  process.stderr.write(`unknown benchmark: ${unknown.join(', ')}. Known: ${[...BENCHMARKS.keys()].join(', ')}\n`);
  process.exit(2);
}
const runsAll = positionals.length === 0;
const writesDocument = runsAll && (!options.quick || options.write);

await withPostgres(async (postgres, directory) => {
  const sql = connect(postgres.url);
  try {
    const [{ server_version: version }] = await sql<[{ server_version: string }]>`show server_version`;
    const pace = options.quick ? { rounds: 3, seconds: 1, warmUp: 1 } : { rounds: 5, seconds: 5, warmUp: 5 };
    const bench: Bench = { directory, postgres, sql, ...pace, isQuick: options.quick, isLong: options.long };
    const given = (['quick', 'long'] as const).filter((name) => options[name]).map((name) => `--${name}`);
    const command = given.length === 0 ? 'make bench' : `make bench ARGS="${given.join(' ')}"`;
    const run: Run = { command, postgresVersion: version, ...pace };
    console.log(conditionsOf(run).join('\n'));
    const reports: Report[] = [];
    for (const [name, benchmark] of BENCHMARKS) {
      if (!runsAll && !positionals.includes(name)) continue;
      const report = await benchmark(bench).finally(stopAll);
      reports.push(report);
      console.log(`\n${textOf(report)}`);
    }
    if (writesDocument) writeFileSync(join(root, DOCUMENT), documentOf(run, reports));
    else if (runsAll) console.log(`\n${DOCUMENT} is unchanged. A full run or --write updates it.`);
  } finally {
    await sql.end();
  }
});
