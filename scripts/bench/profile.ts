/**
 * Where the processor time of a request goes: CPU profiles of the server and of the baselines under
 * load.
 */
import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { bearerCheck } from './bearer.ts';
import { THIS } from './builds.ts';
import type { ProfileTable, Report } from './compare.ts';
import { type Bench, measure, openDatabase, type Target } from './measure.ts';
import { CLIENTS, type LoadCase } from './operation.ts';
import { decryptCase, encryptCase } from './secrets.ts';
import { settingsOf, startProgram, stopAll, TOKEN } from './service.ts';
import { accept } from './webhook.ts';

const INTERVAL_MICROSECONDS = 200;

interface Frame {
  readonly functionName: string;
  readonly url: string;
}

/** What `node --cpu-prof` writes. Times are in microseconds. */
interface Profile {
  readonly nodes: ReadonlyArray<{
    readonly id: number;
    readonly callFrame: Frame;
    readonly children?: number[];
  }>;
  readonly samples: readonly number[];
  readonly timeDeltas: readonly number[];
}

/** Built-in functions that write to a socket or a pipe: mostly time in the kernel. */
const WRITES = /^(writev|writeBuffer|writeUtf8String|writeLatin1String|writeAsciiString)$/;

/** @returns null for a built-in function, which counts with its caller */
function kindOf({ functionName, url }: Frame): string | null {
  if (WRITES.test(functionName)) return 'writing to sockets and the log';
  if (functionName === '(garbage collector)') return 'garbage collection';
  if (url.startsWith('node:internal/crypto')) return 'cryptography';
  if (url.startsWith('node:')) return "Node's HTTP, streams and timers";
  if (url.includes('/node_modules/')) return 'the driver';
  const [, folder] = /\/dist\/([a-z]+)\//.exec(url) ?? [];
  if (folder !== undefined || url !== '')
    return folder === undefined ? 'its own code' : `src/${folder}`;
  return functionName.startsWith('(') ? 'the rest of Node' : null;
}

/** @returns microseconds by kind, of the last part of the profile, when the server was warm */
function sharesOf(
  { nodes, samples, timeDeltas }: Profile,
  microseconds: number,
): Map<string, number> {
  const kinds = new Map<number, string>();
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const pending = nodes.slice(0, 1).map((node) => ({ node, kind: 'the rest of Node' }));
  for (const { node, kind } of pending) {
    const own = kindOf(node.callFrame) ?? kind;
    kinds.set(node.id, node.callFrame.functionName === '(idle)' ? 'idle' : own);
    for (const id of node.children ?? []) {
      const child = byId.get(id);
      if (child) pending.push({ node: child, kind: own });
    }
  }
  const shares = new Map<string, number>();
  let left = microseconds;
  for (let at = samples.length - 1; at >= 0 && left > 0; at -= 1) {
    const id = samples[at] ?? 0;
    const delta = timeDeltas[at] ?? 0;
    const kind = kinds.get(id) ?? 'the rest of Node';
    shares.set(kind, (shares.get(kind) ?? 0) + delta);
    left -= delta;
  }
  shares.delete('idle');
  return shares;
}

type Database = Awaited<ReturnType<typeof openDatabase>>;

/** Runs one program under load. @returns its name, and its microseconds per request by kind */
async function profileOne(
  bench: Bench,
  one: LoadCase,
  { url, sql }: Database,
  baseline: string | null,
) {
  const directory = join(
    bench.directory,
    `profile-${one.name.replaceAll(' ', '-')}-${baseline ?? 'ours'}`,
  );
  mkdirSync(directory);
  const flags = [
    '--cpu-prof',
    `--cpu-prof-interval=${INTERVAL_MICROSECONDS}`,
    `--cpu-prof-dir=${directory}`,
  ];
  const pool = baseline === '1' ? 'one connection' : 'pool of ten';
  const name = baseline === null ? 'gatehouse' : `baseline, ${pool}`;
  const service =
    baseline === null
      ? await startProgram(
          [...flags, join(THIS.directory, 'dist/cli.js'), 'serve', one.service],
          [one.service],
          { ...settingsOf([one.service], url), ...one.settings },
        )
      : await startProgram(
          [...flags, join(import.meta.dirname, 'baseline.mjs'), one.baseline ?? '', baseline],
          ['baseline'],
          { DATABASE_URL: url, AUTH_TOKEN: TOKEN },
        );
  const role = baseline === null ? 'ours' : 'baseline';
  const target: Target = { name, role, service, sql, databaseUrl: url, build: THIS };
  const replay = await one.variants[0].prepare(bench, target);
  const subject = { name, service, replay };
  if (bench.warmUp > 0) await measure(bench, CLIENTS, bench.warmUp, subject);
  const seconds = 2 * bench.seconds;
  const { requests, measurement } = await measure(bench, CLIENTS, seconds, subject);
  await service.stop();
  const [file = ''] = readdirSync(directory);
  const profile: Profile = JSON.parse(readFileSync(join(directory, file), 'utf8'));
  const shares = sharesOf(profile, seconds * 1e6);
  const sampled = sum([...shares.values()]);
  const total = measurement.serverCpu ?? sampled / requests;
  return {
    name,
    perRequest: new Map([...shares].map(([kind, part]) => [kind, (total * part) / sampled])),
  };
}

const sum = (values: readonly number[]): number =>
  values.reduce((total, value) => total + value, 0);

const CAVEAT =
  'Microseconds of processor time of the process per request, divided by samples of its event loop. The' +
  ' profiler itself is included, so the rates above do not follow from these sums.';

/** Measures nothing that can be compared: a profiled program is slower. */
export async function profile(bench: Bench): Promise<Report> {
  const profiles: ProfileTable[] = [];
  for (const one of [bearerCheck, accept, encryptCase, decryptCase]) {
    const database = await openDatabase(bench);
    const programs: Array<Awaited<ReturnType<typeof profileOne>>> = [];
    // Gatehouse comes first: a baseline reads its tables.
    for (const baseline of [null, '1', '10'])
      programs.push(await profileOne(bench, one, database, baseline));
    await stopAll();
    const kinds = new Set(programs.flatMap(({ perRequest }) => [...perRequest.keys()]));
    const all = (kind: string) => sum(programs.map(({ perRequest }) => perRequest.get(kind) ?? 0));
    const rows = [...kinds]
      .sort((a, b) => all(b) - all(a))
      .map((kind) => [
        kind,
        ...programs.map(({ perRequest }) => perRequest.get(kind)?.toFixed(1) ?? '–'),
      ]);
    rows.push([
      '**together**',
      ...programs.map(({ perRequest }) => sum([...perRequest.values()]).toFixed(1)),
    ]);
    const heading = `${one.name}, ${CLIENTS} clients: where the time of the server goes`;
    profiles.push({
      heading,
      rows: [['', ...programs.map(({ name }) => name)], ...rows],
      caveat: CAVEAT,
    });
  }
  return { comparisons: [], tables: [], profiles };
}
