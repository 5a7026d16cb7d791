/**
 * What PostgreSQL really does for a service: the plan of every statement that it runs, as its
 * auto_explain tells it.
 */
import type { TestDatabase } from './database.ts';
import { startProxy } from './proxy.ts';
import type { Owner } from './owner.ts';

/** A table that a plan reads, and how: how many rows and blocks it looked at. */
export interface Scan {
  /** `Seq Scan`, `Index Scan` and so on. */
  readonly node: string;
  /** `identity.users`. */
  readonly table: string;
  readonly rows: number;
  readonly blocks: number;
  readonly statement: string;
}

interface Node {
  readonly 'Node Type': string;
  readonly 'Relation Name'?: string;
  readonly Schema?: string;
  readonly 'Actual Rows': number;
  readonly 'Actual Loops': number;
  readonly 'Shared Hit Blocks'?: number;
  readonly 'Shared Read Blocks'?: number;
  readonly 'Rows Removed by Filter'?: number;
  readonly 'Rows Removed by Index Recheck'?: number;
  readonly Plans?: readonly Node[];
}

const SETTINGS = {
  session_preload_libraries: 'auto_explain',
  'auto_explain.log_min_duration': '0',
  'auto_explain.log_level': 'notice',
  'auto_explain.log_format': 'json',
  'auto_explain.log_analyze': 'on',
  'auto_explain.log_verbose': 'on',
  'auto_explain.log_timing': 'off',
  'auto_explain.log_buffers': 'on',
  // The look-ups that a foreign key makes.
  'auto_explain.log_nested_statements': 'on',
} as const;

/** Clients of this proxy get the plan of each statement as a notice, which the proxy reads. */
export async function observe(owner: Owner, { url, sql }: Pick<TestDatabase, 'url' | 'sql'>) {
  for (const [name, value] of Object.entries(SETTINGS))
    await sql.unsafe(`alter database ${new URL(url).pathname.slice(1)} set ${name} = '${value}'`);
  const found: Scan[] = [];
  const proxy = await startProxy(owner, url, () =>
    reader((notice) => found.push(...scansOf(notice))),
  );
  return {
    /** The database's URL, by way of here. */
    url: proxy.url,
    /** Everything that was read since the last time this was asked. */
    scans: () => found.splice(0),
  };
}

/**
 * Reads the server's side of the protocol: a byte for the kind, the length, the content.
 * @param take gets the text of each notice
 */
function reader(take: (notice: string) => void): (chunk: Buffer) => void {
  let rest = Buffer.alloc(0);
  return (chunk) => {
    rest = Buffer.concat([rest, chunk]);
    while (rest.length >= 5 && rest.length > rest.readInt32BE(1)) {
      const end = 1 + rest.readInt32BE(1);
      if (rest[0] === 'N'.charCodeAt(0)) {
        const fields = rest.subarray(5, end).toString('utf8').split('\0');
        take(fields.find((field) => field.startsWith('M'))?.slice(1) ?? '');
      }
      rest = rest.subarray(end);
    }
  };
}

function scansOf(notice: string): Scan[] {
  const start = notice.indexOf('plan:\n');
  if (start < 0) return [];
  const { Plan: plan, 'Query Text': text }: { Plan: Node; 'Query Text': string } = JSON.parse(
    notice.slice(start + 'plan:\n'.length),
  );
  const statement = text.replace(/\s+/g, ' ').trim();
  return [...scansIn(plan, statement)];
}

function* scansIn(node: Node, statement: string): Generator<Scan> {
  if (node['Relation Name'] !== undefined && node['Node Type'] !== 'ModifyTable')
    yield {
      node: node['Node Type'],
      table: `${node.Schema}.${node['Relation Name']}`,
      rows: rowsOf(node),
      blocks: (node['Shared Hit Blocks'] ?? 0) + (node['Shared Read Blocks'] ?? 0),
      statement,
    };
  for (const inner of node.Plans ?? []) yield* scansIn(inner, statement);
}

const rowsOf = (node: Node) =>
  node['Actual Loops'] *
  (node['Actual Rows'] +
    (node['Rows Removed by Filter'] ?? 0) +
    (node['Rows Removed by Index Recheck'] ?? 0));
