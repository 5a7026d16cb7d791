/** Commands as terminal sessions, `transcripts/*.txt`, on a real database and running services. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { runCommand } from '../support/commands.ts';
import { createDatabase, createEmptyDatabase } from '../support/database.ts';
import { makeDirectory } from '../support/directories.ts';
import { ask, AUTH_TOKEN, startGatehouse } from '../support/gatehouse.ts';
import { WEBHOOK_SECRET } from '../support/senders.ts';
import { SERVICES } from '../support/settings.ts';
import {
  expectedOf,
  fill,
  parseTranscript,
  type Result,
  splitWords,
  type Step,
  type Transcript,
  type Values,
} from '../support/transcript.ts';

const directory = join(import.meta.dirname, 'transcripts');
/** Those that `make test FILES=…` names, or all. */
const chosen = process.env.TEST_TRANSCRIPTS || readdirSync(directory).join();

interface Session {
  /** Of the names that transcripts use. */
  readonly values: Values;
  /** Of each command, which may change it for itself: `NAME=value gatehouse …`. */
  readonly environment: Readonly<Record<string, string>>;
  readonly sql: Awaited<ReturnType<typeof createDatabase>>['sql'];
}

async function openSession(t: TestContext, { header }: Transcript): Promise<Session> {
  const directive = (name: string) => header.find(([first]) => first === name)?.slice(1) ?? [];
  const create = directive('database')[0] === 'empty' ? createEmptyDatabase : createDatabase;
  const { url, sql } = await create(t);
  const files = makeDirectory(t, 'transcript');
  const values: Values = new Map([
    ['auth_token', AUTH_TOKEN],
    ['webhook_secret', WEBHOOK_SECRET],
    ['database', url],
    ['files', files],
  ]);
  const services = SERVICES.filter((name) => directive('serve').includes(name));
  if (services.length > 0) {
    const { assignments } = assignmentsOf(directive('serve').slice(services.length), values);
    const running = await startGatehouse(t, services, url, assignments);
    for (const service of services) values.set(service, running.url[service]);
  }
  const { assignments: environment } = assignmentsOf(directive('environment'), values);
  return { values, environment, sql };
}

const pairOf = (word: string): [string, string] => {
  const at = word.indexOf('=');
  return [word.slice(0, at), word.slice(at + 1)];
};

/** Of the first words, up to one that is no assignment. */
function assignmentsOf(words: readonly string[], values: Values) {
  const count = words.findIndex((word) => !/^[A-Z_]+=/.test(word));
  const length = count < 0 ? words.length : count;
  const pairs = words.slice(0, length).map(pairOf);
  const filled = pairs.map(([name, value]) => [name, fill(value, values)] as const);
  const assignments: Record<string, string> = Object.fromEntries(filled);
  return { assignments, rest: words.slice(length) };
}

async function runStep({ command, input }: Step, session: Session): Promise<Result> {
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
  const pairs = rest.filter((word) => !word.startsWith('.')).map(pairOf);
  const { bearer, body, ...headers } = Object.fromEntries(pairs);
  const credential = bearer === undefined ? {} : { bearer };
  const { status, json } = await ask(method, url, { ...credential, body, headers });
  const shown = members.map((path) =>
    path
      .slice(1)
      .split('.')
      .reduce((value, member) => value?.[member], json),
  );
  return [status, ...shown.map((value) => JSON.stringify(value) ?? '–')].join('\n') + '\n';
}

/** For a difference by lines. */
const linesOf = ({ code, stdout, stderr }: Result) => [
  ...stdout.split('\n'),
  ...stderr.split('\n').map((line) => `2> ${line}`),
  `exit ${code}`,
];

/** Each has a database of its own, and its commands wait for that most of the time. */
test('transcripts', { concurrency: 4 }, async (all) => {
  const begun = chosen.split(',').map((name) =>
    all.test(name, async (t) => {
      const transcript = parseTranscript(readFileSync(join(directory, name), 'utf8'));
      const session = await openSession(t, transcript);
      for (const { title, steps } of transcript.sections)
        await t.test(title, async () => {
          for (const step of steps) {
            const about = `${name}: ${step.command}`;
            const result = await runStep(step, session);
            const expected = {
              code: step.code,
              stdout: expectedOf(step.stdout, result.stdout, session.values),
              stderr: expectedOf(step.stderr, result.stderr, session.values),
            };
            assert.deepEqual([about, ...linesOf(result)], [about, ...linesOf(expected)]);
          }
        });
    }),
  );
  await Promise.all(begun);
});
