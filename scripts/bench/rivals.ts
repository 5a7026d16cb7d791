/** Gatehouse beside what people would choose instead: better-auth and adnanh/webhook. */
import { spawnSync } from 'node:child_process';
import { createHmac, randomUUID } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Sql } from 'postgres';
import { freePort } from '../postgres.ts';
import { bearerCheck } from './bearer.ts';
import { BODIES } from './bodies.ts';
import { compare, type Report, tableOf } from './compare.ts';
import { type Replay, writeRequests } from './load.ts';
import { type Bench, measureLoad, openDatabase, openTargets, type Subject } from './measure.ts';
import type { LoadCase } from './operation.ts';
import { createClient, installPackages, launch, type Service } from './service.ts';
import { startProgram, TOKEN } from './service.ts';
import { accept } from './webhook.ts';

const CLIENTS = 64;

/** Measures two processes of Gatehouse with the first variant of a case, and the rival. */
async function measureBeside(
  bench: Bench,
  one: LoadCase,
  startRival: () => Promise<Pick<Subject, 'name' | 'service' | 'replay'>>,
  caveat: string,
): Promise<Report> {
  const [variant] = one.variants;
  if (!variant) throw new Error('nothing to send');
  const { name, service, settings = {} } = one;
  const ours: Subject[] = [];
  for (const target of await openTargets(bench, { name, service, settings })) {
    ours.push({ ...target, replay: await variant.prepare(bench, target) });
  }
  const [first] = ours;
  if (!first) throw new Error('no build');
  const rival: Subject = { ...first, ...(await startRival()), role: 'baseline' };
  // A slow server has answered few requests before its code is compiled.
  const pace = { ...bench, warmUp: bench.warmUp * 3 };
  const figures = await measureLoad(pace, CLIENTS, [rival, ...ours]);
  const words = [name, variant.name, `${CLIENTS} clients`];
  const heading = words.filter((word) => word !== '').join(', ');
  return {
    comparisons: [...compare(heading, 'rate', figures), ...compare(heading, 'CPU', figures)],
    tables: [tableOf(`${heading}, beside ${rival.name}`, figures, caveat)],
  };
}

const USERS = 200;
const SESSIONS = 1_000;
const users = Array.from({ length: USERS }, () => randomUUID());
const tokens = Array.from({ length: SESSIONS }, () => randomUUID());
const userName = randomUUID();

/**
 * Inserts as many users and sessions as the bearer check has. None is old enough to be prolonged.
 */
async function insertSessions(sql: Sql): Promise<void> {
  const owners = tokens.map((_, number) => users[number % USERS] ?? '');
  await sql`
    insert into "user" (id, name, email, "emailVerified", "createdAt", "updatedAt")
    select id, ${userName}, id || '@example.org', true, now(), now()
    from unnest(${users}::text[]) as known (id)`;
  await sql`
    insert into session (id, token, "userId", "expiresAt", "createdAt", "updatedAt")
    select gen_random_uuid(), token, user_id, now() + interval '7 days', now(), now()
    from unnest(${tokens}::text[], ${owners}::text[]) as known (token, user_id)`;
  await sql`vacuum analyze "user", session`;
}

function cookieOf(token: string): string {
  const signature = createHmac('sha256', TOKEN).update(token).digest('base64');
  return `better-auth.session_token=${encodeURIComponent(`${token}.${signature}`)}`;
}

async function startBetterAuth(bench: Bench) {
  // Both run on Node 20.
  const directory = installPackages(bench.directory, 'better-auth@1', 'pg@8');
  const manifest = join(directory, 'node_modules/better-auth/package.json');
  const { version }: { version: string } = JSON.parse(readFileSync(manifest, 'utf8'));
  const { url, sql } = await openDatabase(bench);
  const script = join(import.meta.dirname, 'better-auth.mjs');
  const environment = { DATABASE_URL: url, AUTH_TOKEN: TOKEN, NODE_ENV: 'production' };
  const service = await startProgram([script, directory], ['better-auth'], environment);
  await insertSessions(sql);
  const requests = tokens.map((token) => {
    return { method: 'GET', path: '/', headers: { Cookie: cookieOf(token) } };
  });
  const file = writeRequests(join(bench.directory, 'better-auth'), requests);
  const replay: Replay = { file, status: 200, text: `"name":"${userName}"` };
  return { name: `better-auth ${version}`, service, replay };
}

const HOOK = {
  id: 'events',
  'execute-command': '/bin/true',
  // Otherwise it replies before the command runs, and commands that wait pile up.
  'include-command-output-in-response': true,
  'trigger-rule': {
    match: {
      type: 'value',
      value: `Bearer ${TOKEN}`,
      parameter: { source: 'header', name: 'Authorization' },
    },
  },
  'trigger-rule-mismatch-http-response-code': 403,
};

async function startWebhook({ directory }: Bench): Promise<Service> {
  const hooks = join(directory, 'hooks.json');
  writeFileSync(hooks, JSON.stringify([HOOK]));
  const port = await freePort();
  const flags = ['-hooks', hooks, '-ip', '127.0.0.1', '-port', String(port)];
  const { child, stop } = launch('webhook', flags, {});
  child.stdout.resume();
  child.stderr.pipe(process.stderr, { end: false });
  while (!(await isAnswering(port))) {
    if (child.exitCode !== null) throw new Error(`webhook exited with ${child.exitCode}`);
    await sleep(50);
  }
  return { port, ports: [port], processId: child.pid ?? 0, stop };
}

async function isAnswering(port: number): Promise<boolean> {
  const { send, close } = createClient({ port });
  const { status } = await send('GET', '/').catch(() => ({ status: 0 }));
  close();
  return status === 200;
}

async function startHook(bench: Bench, name: string) {
  const service = await startWebhook(bench);
  const request = {
    method: 'POST',
    path: '/hooks/events',
    headers: { Authorization: `Bearer ${TOKEN}` },
    body: BODIES.invoice.text,
  };
  const file = writeRequests(join(bench.directory, 'hook'), [request]);
  // The command prints nothing.
  return { name, service, replay: { file, status: 200, text: '' } };
}

export async function rivals(bench: Bench): Promise<Report> {
  const alone = { ...bench, builds: bench.builds.slice(0, 1) };
  const checks = await measureBeside(
    alone,
    bearerCheck,
    () => startBetterAuth(alone),
    'better-auth checks its signed cookie with two statements and a pool of ten, its defaults. Its' +
      ' cookie cache is off, so that both look in the database. Only better-auth prolongs sessions' +
      ' in use; only Gatehouse limits wrong tokens and logs each request.',
  );
  const events = await measureEvents(alone);
  return {
    comparisons: [...checks.comparisons, ...events.comparisons],
    tables: [...checks.tables, ...events.tables],
  };
}

async function measureEvents(bench: Bench): Promise<Report> {
  const { stdout: version } = spawnSync('webhook', ['-version'], { encoding: 'utf8' });
  if (!version) {
    const caveat = 'Not measured: adnanh/webhook is not installed (`apt-get install webhook`).';
    return { comparisons: [], tables: [{ heading: 'webhook accept', rows: [], caveat }] };
  }
  const name = `adnanh/${version.trim().replace('version ', '')}`;
  return measureBeside(
    bench,
    accept,
    () => startHook(bench, name),
    'adnanh/webhook replies after it has run `/bin/true`. It stores nothing: an event whose program' +
      ' fails is lost, unless its sender repeats it. Gatehouse runs no program, replies after the' +
      ' commit and logs each request. Not measured: its delivery.',
  );
}
