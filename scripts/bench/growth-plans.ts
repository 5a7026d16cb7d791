/**
 * The plans that PostgreSQL executes for a request, from its own log: `auto_explain` sees what a
 * service sends.
 */
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect } from '../postgres.ts';

export interface Executed {
  /** How each table is read or written, without repetitions. */
  readonly plan: readonly string[];
  /** Pages of 8 KB that were looked at. They do not depend on the load of the machine. */
  readonly pages: number;
}

interface Node {
  readonly 'Node Type': string;
  readonly 'Relation Name'?: string;
  readonly 'Index Name'?: string;
  readonly Operation?: string;
  readonly 'Shared Hit Blocks'?: number;
  readonly 'Shared Read Blocks'?: number;
  readonly 'Actual Loops'?: number;
  readonly Plans?: readonly Node[];
}

/** Later connections to this database log the plan of every statement, after its execution. */
export async function logPlans(url: string): Promise<void> {
  const sql = connect(url);
  const database = new URL(url).pathname.slice(1);
  const settings = {
    session_preload_libraries: 'auto_explain',
    'auto_explain.log_min_duration': '0',
    'auto_explain.log_analyze': 'on',
    'auto_explain.log_buffers': 'on',
    'auto_explain.log_timing': 'off',
    'auto_explain.log_format': 'json',
  };
  try {
    // The settings of a module are known once it is loaded.
    await sql`load 'auto_explain'`;
    for (const [name, value] of Object.entries(settings)) {
      await sql.unsafe(`alter database ${database} set ${name} = '${value}'`);
    }
  } finally {
    await sql.end();
  }
}

/**
 * @param about selects the statements by their text
 * @returns what one call of `request` made PostgreSQL execute
 */
export async function executed(
  log: string,
  about: RegExp,
  request: () => Promise<unknown>,
): Promise<Executed> {
  const before = readFileSync(log).length;
  await request();
  // The log is written by another process.
  await sleep(100);
  const text = readFileSync(log).subarray(before).toString('utf8');
  const entries = [...text.matchAll(/ plan:\n((?:\t.*\n)+)/g)].map(([, json = '']) => json);
  const parsed = entries.map((json): { 'Query Text': string; Plan: Node } => JSON.parse(json));
  const ours = parsed.filter((entry) => about.test(entry['Query Text'])).map(({ Plan }) => Plan);
  const plan = [...new Set(ours.flatMap(accessesOf))];
  const pagesOf = (node: Node) =>
    (node['Shared Hit Blocks'] ?? 0) + (node['Shared Read Blocks'] ?? 0);
  return { plan, pages: ours.reduce((sum, node) => sum + pagesOf(node), 0) };
}

/** Parts that were not executed are left out. */
function accessesOf(node: Node): string[] {
  if (node['Actual Loops'] === 0) return [];
  const below = (node.Plans ?? []).flatMap(accessesOf);
  const table = node['Relation Name'];
  const index = node['Index Name'];
  if (node['Node Type'] === 'ModifyTable' && table !== undefined)
    return [`${node.Operation} ${table}`, ...below];
  if (index !== undefined) return [`${node['Node Type']} ${index}`, ...below];
  return table === undefined ? below : [`${node['Node Type']} ${table}`, ...below];
}
