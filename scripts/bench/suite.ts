/**
 * `make bench`: all questions, or those that are named, on one PostgreSQL, one after the other.
 *
 *   node --import tsx scripts/bench/suite.ts [--quick] [--long] [--write] [QUESTION …]
 *
 * A missed target is told, and is no failure; a wrong answer is one.
 */
import { writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { connect, startPostgres } from '../postgres.ts';
import { makeTemporary, removeTemporary } from '../temporary.ts';
import { bearer } from './bearer.ts';
import type { Bench, Report } from './compare.ts';
import { documentOf, headOf, textOf } from './document.ts';
import { livez } from './livez.ts';
import { login } from './login.ts';
import { memory } from './memory.ts';
import { secrets } from './secrets.ts';
import { root, stopAll } from './service.ts';
import { size } from './size.ts';
import { start } from './start.ts';
import { steady } from './steady.ts';
import { webhook } from './webhook.ts';

const QUESTIONS = new Map<string, (bench: Bench) => Promise<Report>>(Object.entries({ start, bearer, webhook, secrets, livez, login, memory, steady, size }));

const flag = { type: 'boolean', default: false } as const;
const { values: options, positionals } = parseArgs({ options: { quick: flag, long: flag, write: flag }, allowPositionals: true });
const unknown = positionals.filter((name) => !QUESTIONS.has(name));
if (unknown.length > 0) {
  process.stderr.write(`there is no question ${unknown.join(', ')}; there are ${[...QUESTIONS.keys()].join(', ')}\n`);
  process.exit(2);
}
const isWhole = positionals.length === 0;
const isWritten = isWhole && (!options.quick || options.write);

const directory = makeTemporary(tmpdir(), 'gatehouse-bench');
const postgres = await startPostgres({ directory: join(directory, 'state'), durable: true });
const sql = connect(postgres.url);
try {
  const [{ server_version: version }] = await sql<[{ server_version: string }]>`show server_version`;
  const pace = options.quick ? { rounds: 3, seconds: 1, warmUp: 1 } : { rounds: 5, seconds: 5, warmUp: 5 };
  const bench: Bench = { directory, postgres, sql, ...pace, isQuick: options.quick, isLong: options.long };
  const chosen = Object.entries(options).flatMap(([name, value]) => (value === true && name !== 'write' ? [`--${name}`] : []));
  const run = { command: `make bench${chosen.length === 0 ? '' : ` ARGS="${chosen.join(' ')}"`}`, postgresVersion: version, ...pace };
  console.log(`${headOf(run).join('\n')}; median (least to most)`);
  const reports: Report[] = [];
  for (const [name, ask] of QUESTIONS) {
    if (!isWhole && !positionals.includes(name)) continue;
    const report = await ask(bench).finally(stopAll);
    reports.push(report);
    console.log(`\n${textOf(report)}`);
  }
  if (isWritten) writeFileSync(join(root, 'BENCHMARKS.md'), documentOf(run, reports));
  else if (isWhole) console.log('\nBENCHMARKS.md is left as it is: a full run writes it, or --write');
} finally {
  await sql.end();
  await postgres.stop();
  removeTemporary(directory);
}
