/**
 * Accepting events, each a new one and answered after its commit, compared with one insert of one
 * row.
 */
import { execFileSync } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { BODIES, type Body, stringBody } from './bodies.ts';
import type { Report } from './compare.ts';
import { writeRequests } from './load.ts';
import type { Bench, Target } from './measure.ts';
import { type LoadCase, measureCase, type Variant } from './operation.ts';
import { createClient, TOKEN } from './service.ts';

const headers = { Authorization: `Bearer ${TOKEN}` };
const EVENT = { method: 'POST', path: '/webhook', headers } as const;
const CLIENTS = 64;
const EVENTS_PER_CLIENT = 25;

async function createTable({ sql }: Pick<Target, 'sql'>): Promise<void> {
  await sql`set client_min_messages = warning`;
  await sql`create schema if not exists baseline`;
  await sql`
    create table if not exists baseline.events (
      id uuid primary key, event text not null, body bytea not null,
      received_at timestamptz not null default now()
    )`;
}

/** @param headersOf what `target` needs besides the body */
function variantOf(
  body: Body,
  targets: NonNullable<Variant['targets']>,
  headersOf: (target: Target) => Readonly<Record<string, string>>,
): Variant {
  return {
    name: body.name,
    targets,
    async prepare({ directory }, target) {
      if (target.role === 'baseline') await createTable(target);
      const file = join(directory, `webhook-${target.service.port}`);
      const request = { ...EVENT, headers: headersOf(target), body: body.text };
      return { file: writeRequests(file, [request]), status: 200, text: '"status":"accepted"' };
    },
  };
}

const plainVariant = (body: Body, targets: NonNullable<Variant['targets']> = {}) =>
  variantOf(body, targets, () => headers);

/** The default limit per token is lower than what the database can store. */
const RATE = { WEBHOOK_RATE: '1000000' };

export const accept: LoadCase = {
  name: 'webhook accept',
  service: 'webhook',
  baseline: 'webhook',
  settings: RATE,
  caveat:
    'No target is set, so nothing is delivered, and one token sends everything without a signature.' +
    ' It does not say how long such a rate lasts on a disk that flushes more slowly.',
  variants: [
    plainVariant(BODIES.invoice, { rate: 1.5, cpu: 0.6, p99: 1 }),
    plainVariant(BODIES.push, { rate: 1.4, cpu: 0.65 }),
    plainVariant(BODIES.issue, { rate: 1.4, cpu: 0.62 }),
    plainVariant(BODIES.pullRequest, { rate: 1.1, cpu: 0.7 }),
    plainVariant(stringBody(1_024)),
  ],
};

/**
 * A token of the source GitHub, whose signatures hold no time and whose delivery id may be missing:
 * one request can be repeated.
 */
function createGitHubToken({ databaseUrl, build }: Target): string {
  const program = join(build.directory, 'dist/cli.js');
  const words = ['token', 'create', '--source', 'github', '--signing-secret-file', '-'];
  const env = { PATH: process.env.PATH, DATABASE_URL: databaseUrl, WEBHOOK_SECRET: TOKEN };
  return execFileSync(process.execPath, [program, ...words], {
    env,
    input: TOKEN,
    encoding: 'utf8',
    stdio: ['pipe', 'pipe', 'ignore'],
  }).trim();
}

const signedVariant = (body: Body, targets: NonNullable<Variant['targets']> = {}) =>
  variantOf(body, targets, (target) => {
    const signature = createHmac('sha256', TOKEN).update(body.text).digest('hex');
    const token = target.role === 'baseline' ? TOKEN : createGitHubToken(target);
    return {
      Authorization: `Bearer ${token}`,
      'X-GitHub-Event': 'push',
      'X-Hub-Signature-256': `sha256=${signature}`,
    };
  });

export const signedCase: LoadCase = {
  name: 'signed accept',
  service: 'webhook',
  baseline: 'signed',
  settings: { ...RATE, WEBHOOK_SECRET: TOKEN },
  caveat: 'The signature is an HMAC of the body, as GitHub signs. Nothing is delivered.',
  variants: [
    signedVariant(BODIES.invoice, { cpu: 1 }),
    signedVariant(BODIES.push, { cpu: 1 }),
    signedVariant(BODIES.pullRequest, { cpu: 1 }),
  ],
};

export const signed = (bench: Bench): Promise<Report> => measureCase(bench, signedCase);

export function webhook(bench: Bench): Promise<Report> {
  return measureCase(bench, accept, async (answered) => {
    // Requests in flight at the end of a measurement are stored but not counted. Wait until they
    // have arrived.
    await sleep(1_000);
    const remarks: string[] = [];
    for (const { target } of answered.slice(0, 1)) remarks.push(...(await sizesOf(target)));
    // Both baselines store into one table.
    const tables = new Map<string, Array<{ target: Target; requests: number }>>();
    for (const entry of answered) {
      const key = entry.target.role === 'baseline' ? 'the baselines' : entry.target.name;
      tables.set(key, [...(tables.get(key) ?? []), entry]);
    }
    for (const [name, entries] of tables) {
      const requests = entries.reduce((sum, entry) => sum + entry.requests, 0);
      remarks.push(
        await checkStored(
          name,
          entries.map(({ target }) => target),
          requests,
        ),
      );
    }
    return remarks;
  });
}

/** What a body takes on disk, by each method of compression that the server has. */
async function sizesOf({ sql }: Target): Promise<string[]> {
  const remarks: string[] = [];
  const methods = await sql<Array<{ method: string }>>`
    select unnest(enumvals) as method from pg_settings where name = 'default_toast_compression'`;
  for (const { name, text } of Object.values(BODIES)) {
    const sizes: string[] = [];
    for (const { method } of methods) {
      await sql`create temporary table sample (body bytea)`;
      await sql.unsafe(`alter table sample alter column body set compression ${method}`);
      await sql`insert into sample values (${Buffer.from(text)})`;
      const [{ bytes }] = await sql<[{ bytes: number }]>`
        select pg_column_size(body) as bytes from sample`;
      sizes.push(`${bytes} bytes by ${method}`);
      await sql`drop table sample`;
    }
    remarks.push(`stored, ${name}: ${Buffer.byteLength(text)} bytes take ${sizes.join(', ')}`);
  }
  return remarks;
}

/** @throws if an event that was acknowledged is not stored */
async function checkStored(
  name: string,
  targets: readonly Target[],
  accepted: number,
): Promise<string> {
  const [target] = targets;
  if (!target) throw new Error('no target');
  const table = target.role === 'baseline' ? 'baseline.events' : 'webhook.events';
  const countStored = async (): Promise<number> => {
    const [row] = await target.sql<
      [{ n: number }]
    >`select count(*)::int as n from ${target.sql(table)}`;
    return row.n;
  };
  const before = await countStored();
  if (before < accepted)
    throw new Error(`${name} accepted ${accepted} events and stored ${before}`);
  // Those in flight could hide a few lost events. Here every reply is awaited, so the numbers must
  // be equal.
  let sent = 0;
  for (const one of targets) sent += await sendEvents(one);
  const added = (await countStored()) - before;
  if (added !== sent) throw new Error(`${name} accepted ${sent} events and stored ${added}`);
  return (
    `webhook accept: ${name} accepted ${accepted} events and stored ${before}, including those in flight at the` +
    ` end of a measurement; of ${sent} more with every reply awaited, ${added} are stored`
  );
}

/** @returns the number of accepted events */
async function sendEvents({ service }: Target): Promise<number> {
  const jsonHeaders = { ...headers, 'Content-Type': 'application/json' };
  const body = BODIES.invoice.text;
  await Promise.all(
    Array.from({ length: CLIENTS }, async () => {
      const { send, close } = createClient(service);
      for (let count = 0; count < EVENTS_PER_CLIENT; count += 1) {
        const { status, text } = await send(EVENT.method, EVENT.path, jsonHeaders, body);
        if (status !== 200) throw new Error(`an event was not accepted: ${status} ${text}`);
      }
      close();
    }),
  );
  return CLIENTS * EVENTS_PER_CLIENT;
}
