/**
 * Accepting events, each a new one and answered after its commit, compared with one insert of one
 * row.
 */
import { execFileSync } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { join } from 'node:path';
import { BODIES, type Body } from './bodies.ts';
import type { Report } from './compare.ts';
import { writeRequests } from './load.ts';
import type { Bench, Target } from './measure.ts';
import { type Answered, type LoadCase, measureCase, type Variant } from './operation.ts';
import { TOKEN } from './service.ts';

const headers = { Authorization: `Bearer ${TOKEN}` };
const EVENT = { method: 'POST', path: '/webhook', headers } as const;

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

const plainVariant = (body: Body, targets: NonNullable<Variant['targets']>) =>
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
    ' Not measured: how long such a rate lasts on a disk that flushes more slowly.',
  variants: [
    plainVariant(BODIES.invoice, { rate: 1.5, cpu: 0.6, p99: 1 }),
    plainVariant(BODIES.push, { rate: 1.4, cpu: 0.65 }),
    plainVariant(BODIES.issue, { rate: 1.4, cpu: 0.62 }),
    plainVariant(BODIES.pullRequest, { rate: 1.1, cpu: 0.7 }),
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

const signedCase: LoadCase = {
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

export const webhook = (bench: Bench): Promise<Report> => measureCase(bench, accept, checkStored);

/** @throws if an event that was acknowledged is not stored */
async function checkStored(answered: readonly Answered[]): Promise<void> {
  for (const { target } of answered) {
    // Both baselines store into one table.
    const isSameTable = (one: Target) => one.sql === target.sql && tableOf(one) === tableOf(target);
    const accepted = answered
      .filter((one) => isSameTable(one.target))
      .reduce((sum, { requests }) => sum + requests, 0);
    const [{ stored }] = await target.sql<[{ stored: number }]>`
      select count(*)::int as stored from ${target.sql(tableOf(target))}`;
    // Those in flight at the end of a measurement are stored but not counted.
    if (stored < accepted)
      throw new Error(`${target.name} accepted ${accepted} events and stored ${stored}`);
  }
}

const tableOf = ({ role }: Target): string =>
  role === 'baseline' ? 'baseline.events' : 'webhook.events';
