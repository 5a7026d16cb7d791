/**
 * Where a request of each kind spends its processor time, and what it allocates, by V8's sampling,
 * beside the floor of the same work.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { bearerCheck } from './bearer.ts';
import type { Report, Row } from './compare.ts';
import { measure, type Bench, openDatabase, type Target } from './measure.ts';
import type { LoadCase, Variant } from './operation.ts';
import { decryptCase, encryptCase } from './secrets.ts';
import { startProgram, startServices, TOKEN } from './service.ts';
import { accept } from './webhook.ts';

const CLIENTS = 64;

/** Parts of a request, by the file of a function. The first that fits counts. */
const PARTS: ReadonlyArray<readonly [string, RegExp]> = [
  ['HTTP of Node', /^node:(_http|internal\/http|http)/],
  [
    'sockets, streams and events of Node',
    /^node:(net|internal\/(stream|streams|net)|events|stream)/,
  ],
  ['cryptography', /^node:(crypto|internal\/crypto)|dist\/platform\/crypto/],
  ['timers and turns of Node', /^node:/],
  ['driver of PostgreSQL', /node_modules\/postgres/],
  ['log line', /runtime\/log\.js|http\/wire\/exchange-log/],
  ['metrics', /runtime\/(metrics|counts)\.js/],
  ['connections, head and reply', /platform\/http\/wire/],
  ['route, schema and JSON', /platform\/http\/route/],
  ['credential', /platform\/http\/credentials|guard\.js|policy\.js/],
  ['statement', /platform\/db|\/store\//],
  ['the rest of the program', /./],
];

interface Frame {
  readonly functionName: string;
  readonly url: string;
}
interface TimeNode {
  readonly id: number;
  readonly callFrame: Frame;
  readonly hitCount: number;
  readonly children?: readonly number[];
}
interface MemoryNode {
  readonly callFrame: Frame;
  readonly selfSize: number;
  readonly children: readonly MemoryNode[];
}
interface Profile {
  readonly time: {
    readonly nodes: readonly TimeNode[];
    readonly startTime: number;
    readonly endTime: number;
  };
  readonly memory: { readonly head: MemoryNode };
}

/** Shares of the samples, and bytes of the whole profile, by part. */
interface Parts {
  readonly time: ReadonlyMap<string, number>;
  readonly bytes: ReadonlyMap<string, number>;
}

/** A function of V8 itself, such as `stringify`, has no file: it counts with its caller. */
function partOf({ functionName, url }: Frame, caller: string): string {
  if (functionName === '(garbage collector)') return 'garbage collection';
  if (functionName === '(program)') return 'native code';
  if (functionName === '(idle)') return 'idle';
  if (url === '') return caller;
  return PARTS.find(([, pattern]) => pattern.test(url))?.[0] ?? caller;
}

function add(sums: Map<string, number>, part: string, amount: number) {
  sums.set(part, (sums.get(part) ?? 0) + amount);
}

function partsOf({ time, memory }: Profile): Parts {
  const samples = new Map<string, number>();
  const nodes = new Map(time.nodes.map((node) => [node.id, node]));
  const visit = ({ callFrame, hitCount, children = [] }: TimeNode, caller: string) => {
    const part = partOf(callFrame, caller);
    add(samples, part, hitCount);
    for (const id of children) {
      const child = nodes.get(id);
      if (child) visit(child, part);
    }
  };
  const [root] = time.nodes;
  if (root) visit(root, 'native code');
  samples.delete('idle');

  const bytes = new Map<string, number>();
  const visitMemory = ({ callFrame, selfSize, children }: MemoryNode, caller: string) => {
    const part = partOf(callFrame, caller);
    add(bytes, part, selfSize);
    for (const child of children) visitMemory(child, part);
  };
  visitMemory(memory.head, 'native code');
  const all = [...samples.values()].reduce((sum, one) => sum + one, 0);
  return { time: new Map([...samples].map(([part, count]) => [part, count / all])), bytes };
}

interface Profiled {
  readonly name: string;
  /** Microseconds a request, and bytes a request, by part. */
  readonly time: ReadonlyMap<string, number>;
  readonly bytes: ReadonlyMap<string, number>;
  readonly database: number;
}

/** Measures one program without and then with sampling. */
async function profile(
  bench: Bench,
  { name: caseName, service: name, baseline = '', settings }: LoadCase,
  variant: Variant,
  role: 'floor' | 'ours',
  at: Pick<Target, 'sql' | 'databaseUrl' | 'build'>,
): Promise<Profiled> {
  const file = join(bench.directory, `${caseName}-${variant.name}-${role}.json`);
  const sampler = ['--import', join(import.meta.dirname, 'sampler.mjs')];
  const environment = { ...settings, PROFILE: file };
  const floor = [...sampler, join(import.meta.dirname, 'baseline.mjs'), baseline, 'shared'];
  const service =
    role === 'ours'
      ? await startServices([name], at.databaseUrl, environment, at.build, sampler)
      : await startProgram(floor, ['baseline'], {
          ...environment,
          DATABASE_URL: at.databaseUrl,
          AUTH_TOKEN: TOKEN,
        });
  const target: Target = { name: role, role, service, ...at };
  const subject = { ...target, replay: await variant.prepare(bench, target) };
  await measure(bench, CLIENTS, bench.warmUp, subject);
  // Sampling itself takes time, so the times come from a measurement without it.
  const { measurement } = await measure(bench, CLIENTS, bench.seconds, subject);
  process.kill(service.processId, 'SIGPWR');
  await sleep(200);
  const { requests } = await measure(bench, CLIENTS, bench.seconds, subject);
  process.kill(service.processId, 'SIGPWR');
  const { time, bytes } = partsOf(await readProfile(file));
  await service.stop();
  const { serverCpu, databaseCpu } = measurement;
  const scaled = (sums: ReadonlyMap<string, number>, factor: number) =>
    new Map([...sums].map(([part, amount]) => [part, amount * factor]));
  return {
    name: role === 'floor' ? 'floor' : `${caseName} ${variant.name}`.trim(),
    time: scaled(time, serverCpu ?? 0),
    bytes: scaled(bytes, 1 / requests),
    database: databaseCpu ?? 0,
  };
}

async function readProfile(file: string): Promise<Profile> {
  for (;;) {
    try {
      return JSON.parse(readFileSync(file, 'utf8'));
    } catch {
      await sleep(100); // not written yet
    }
  }
}

const ROWS = [...PARTS.map(([part]) => part), 'native code', 'garbage collection'];

const sumOf = (sums: ReadonlyMap<string, number>): number =>
  [...sums.values()].reduce((sum, one) => sum + one, 0);

/** A row for each part, and a column for each program. */
function rowsOf(
  profiles: readonly Profiled[],
  pick: (one: Profiled) => ReadonlyMap<string, number>,
) {
  const cells = (valueOf: (one: Profiled) => number) =>
    profiles.map((one) => Math.round(valueOf(one)).toLocaleString('en'));
  return [
    ['part of the server', ...profiles.map(({ name }) => name)],
    ...ROWS.map((part): Row => [part, ...cells((one) => pick(one).get(part) ?? 0)]),
    ['all of the server', ...cells((one) => sumOf(pick(one)))],
  ];
}

const CASES: ReadonlyArray<readonly [LoadCase, readonly number[]]> = [
  [bearerCheck, [0]],
  [encryptCase, [0]],
  [decryptCase, [0]],
  [accept, [0, 2]],
];

export async function profiles(bench: Bench): Promise<Report> {
  const [build] = bench.builds;
  if (!build) throw new Error('no build');
  const found: Profiled[] = [];
  for (const [one, indexes] of CASES) {
    for (const index of indexes) {
      const variant = one.variants[index];
      if (!variant) throw new Error('no such variant');
      const { url: databaseUrl, sql } = await openDatabase(bench);
      const at = { databaseUrl, sql, build };
      found.push(await profile(bench, one, variant, 'ours', at));
      if (one.hasFloor) found.push(await profile(bench, one, variant, 'floor', at));
    }
  }
  const database: Row = ['PostgreSQL', ...found.map((one) => one.database.toFixed(0))];
  const caveat = 'What V8 itself does, such as JSON.stringify, counts with the file that calls it.';
  return {
    comparisons: [],
    tables: [
      {
        heading: `processor time of one request in µs, ${CLIENTS} clients`,
        rows: [...rowsOf(found, ({ time }) => time), database],
        caveat,
      },
      {
        heading: `bytes allocated for one request, ${CLIENTS} clients`,
        rows: rowsOf(found, ({ bytes }) => bytes),
        caveat:
          'By samples. Memory outside the heap of V8, as of buffers and hashes, is not in it.',
      },
    ],
  };
}
