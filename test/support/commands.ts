/** Commands in the process of the test: a process of its own costs an eighth of a second of CPU. */
import assert from 'node:assert/strict';
import { Readable, Writable } from 'node:stream';
import { finished } from 'node:stream/promises';
import { createTerminal, runCommand as runOneOf } from '../../src/commands/command.ts';
import { COMMANDS as EVENTS } from '../../src/commands/events.ts';
import { COMMANDS as IDENTITY } from '../../src/commands/identity.ts';
import { COMMANDS as PROGRAM } from '../../src/commands/program.ts';
import { COMMANDS as SECRETS } from '../../src/commands/secrets.ts';
import { COMMANDS as WEBHOOK } from '../../src/commands/webhook.ts';
import { StartupError, Unavailable } from '../../src/platform/runtime/errors.ts';
import { ConfigurationError } from '../../src/platform/process/settings.ts';
import type { Finished } from './process.ts';

/** All but `serve`, which the program itself has. */
export const COMMANDS = [...PROGRAM, ...IDENTITY, ...SECRETS, ...WEBHOOK, ...EVENTS];

interface Started {
  stdout(): string;
  stderr(): string;
  /** As if the reader of standard output had gone. */
  leave(): void;
  readonly ended: Promise<Finished>;
}

/**
 * `commands/cli.test.ts` compares the exit codes with those of a real process.
 * @param environment all of it: nothing is inherited
 * @param isTTY whether standard output is a terminal
 */
export function startCommand(
  words: readonly string[],
  environment: Readonly<Record<string, string>>,
  input: string | Buffer = '',
  isTTY = false,
): Started {
  const stdout = createSink(isTTY);
  const stderr = createSink();
  const streams = {
    stdin: Readable.from([Buffer.from(input)]),
    stdout: stdout.stream,
    stderr: stderr.stream,
  };
  let isRead = true;
  const terminal = createTerminal(streams, environment, () => isRead);
  const run = async () => {
    const code = await runOneOf(COMMANDS, words, terminal).catch((error: unknown) => {
      for (const message of messagesOf(error)) terminal.note(`gatehouse: ${message}`);
      return error instanceof ConfigurationError ? 78 : 1;
    });
    // As a process does before it ends.
    stdout.stream.end();
    await finished(stdout.stream);
    return { code, signal: null, stdout: stdout.text(), stderr: stderr.text() };
  };
  return {
    stdout: stdout.text,
    stderr: stderr.text,
    leave: () => {
      isRead = false;
    },
    ended: run(),
  };
}

/** Runs a command to its end, with standard output that is no terminal. */
export const runCommand = (
  words: readonly string[],
  environment: Readonly<Record<string, string>>,
  input: string | Buffer = '',
): Promise<Finished> => startCommand(words, environment, input).ended;

/** As `main.ts` prints it. @throws what `main.ts` calls an internal error */
function messagesOf(error: unknown): readonly string[] {
  if (error instanceof ConfigurationError) return error.problems;
  if (error instanceof StartupError || error instanceof Unavailable) return [error.message];
  throw error;
}

function createSink(isTTY = false) {
  const chunks: Buffer[] = [];
  const stream = new Writable({
    write(chunk: Buffer, _encoding, done) {
      chunks.push(chunk);
      done();
    },
  });
  return {
    stream: Object.assign(stream, { isTTY }),
    text: () => Buffer.concat(chunks).toString('utf8'),
  };
}

/**
 * One line on standard error says why, and nothing is on standard output. 78 has a line a problem.
 */
export function assertRefused(refused: Finished, code: number, said: RegExp): void {
  const { stdout, stderr } = refused;
  assert.deepEqual([refused.code, stdout], [code, ''], stderr);
  assert.match(stderr, code === 78 ? /^(gatehouse: [^\n]*\n)+$/ : /^gatehouse: [^\n]*\n$/);
  assert.match(stderr, said);
}
