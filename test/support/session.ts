/** What the commands of a transcript run in: a database, services and settings of their own. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import type { ServiceName } from '../../src/serve.ts';
import { runCommand } from './commands.ts';
import { createDatabase, createEmptyDatabase } from './database.ts';
import { ask, AUTH_TOKEN, startGatehouse } from './gatehouse.ts';
import { WEBHOOK_SECRET } from './senders.ts';
import {
  fill,
  type Result,
  splitWords,
  type Step,
  type Transcript,
  type Values,
} from './transcript.ts';

const CONSTANTS = { auth_token: AUTH_TOKEN, webhook_secret: WEBHOOK_SECRET };
/** Names that transcripts may use without a capture. */
export const KNOWN = [
  ...Object.keys(CONSTANTS),
  'database',
  'files',
  'identity',
  'secrets',
  'webhook',
];

export interface Session {
  readonly values: Values;
  /** Of each command, which may change it for itself: `NAME=value gatehouse …`. */
  readonly environment: Readonly<Record<string, string>>;
  readonly sql: Awaited<ReturnType<typeof createDatabase>>['sql'];
}

export async function openSession(t: TestContext, { header }: Transcript): Promise<Session> {
  const directive = (name: string) => header.find(([first]) => first === name)?.slice(1) ?? [];
  const isEmpty = directive('database')[0] === 'empty';
  const { url, sql } = await (isEmpty ? createEmptyDatabase(t) : createDatabase(t));
  const files = mkdtempSync(join(tmpdir(), 'gatehouse-transcript-'));
  t.after(() => rmSync(files, { recursive: true }));
  const values: Values = new Map([
    ...Object.entries(CONSTANTS),
    ['database', url],
    ['files', files],
  ]);
  const services = directive('serve').filter(isService);
  if (services.length > 0) {
    const { assignments } = assignmentsOf(directive('serve').slice(services.length), values);
    const running = await startGatehouse(t, services, url, assignments);
    for (const service of services) values.set(service, running.url[service]);
  }
  const { assignments: environment } = assignmentsOf(directive('environment'), values);
  return { values, environment, sql };
}

const isService = (word: string): word is ServiceName =>
  word === 'identity' || word === 'secrets' || word === 'webhook';

/** Of the first words, up to one that is no assignment. */
function assignmentsOf(words: readonly string[], values: Values) {
  const count = words.findIndex((word) => !/^[A-Z_]+=/.test(word));
  const length = count < 0 ? words.length : count;
  const pairs = words.slice(0, length).map((word) => {
    const at = word.indexOf('=');
    return [word.slice(0, at), fill(word.slice(at + 1), values)] as const;
  });
  const assignments: Record<string, string> = Object.fromEntries(pairs);
  return { assignments, rest: words.slice(length) };
}

export async function runStep({ command, input }: Step, session: Session): Promise<Result> {
  const { values } = session;
  const { assignments, rest } = assignmentsOf(splitWords(command), values);
  const [program, ...words] = rest.map((word) => fill(word, values));
  const given = fill(input, values);
  const [first = ''] = words;
  if (program === 'gatehouse')
    return runCommand(words, { ...session.environment, ...assignments }, given);
  if (program === 'sql') return printed(await query(fill(command.slice(4), values), session));
  if (program === 'ask') return printed(await request(words));
  if (program !== 'file') throw new Error(`there is no program ${program}`);
  writeFileSync(join(values.get('files') ?? '', first), given);
  return printed('');
}

const printed = (stdout: string): Result => ({ code: 0, stdout, stderr: '' });

/** `sql STATEMENT` prints the rows, as `psql --no-align --tuples-only` does. */
async function query(statement: string, { sql }: Session): Promise<string> {
  const rows = await sql.unsafe(statement);
  const text = (value: unknown) => {
    if (value instanceof Date) return value.toISOString();
    return typeof value === 'string' ? value : JSON.stringify(value);
  };
  return rows.map((row) => `${Object.values(row).map(text).join('|')}\n`).join('');
}

/**
 * `ask METHOD URL [bearer=TOKEN] [body=JSON] [HEADER=VALUE…] [.MEMBER…]` prints the status of the
 * reply, and members of its JSON.
 */
async function request([method = '', url = '', ...rest]: readonly string[]): Promise<string> {
  const members = rest.filter((word) => word.startsWith('.'));
  const pairs = rest
    .filter((word) => !word.startsWith('.'))
    .map((word) => {
      const at = word.indexOf('=');
      return [word.slice(0, at), word.slice(at + 1)] as const;
    });
  const { bearer, body, ...headers } = Object.fromEntries(pairs);
  const { status, json } = await ask(method, url, {
    ...(bearer === undefined ? {} : { bearer }),
    body,
    headers,
  });
  const shown = members.map((path) =>
    path
      .slice(1)
      .split('.')
      .reduce((value, member) => value?.[member], json),
  );
  return [status, ...shown.map((value) => JSON.stringify(value) ?? '–')].join('\n') + '\n';
}
