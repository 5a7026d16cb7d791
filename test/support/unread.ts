/** A service whose standard output is not read for a while. */
import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import type { ServiceName } from '../../src/serve.ts';
import { createLines } from './lines.ts';
import { until } from './until.ts';

export interface Unread {
  readonly child: ChildProcess;
  readonly url: string;
  /** The lines that were read before the service was ready, and after `readOn`. */
  parsed(): Array<Record<string, unknown>>;
  readOn(): void;
}

/** Resolves when the service is ready. Later output stays in the pipe and in its memory. */
export async function startUnread(
  t: TestContext,
  program: string,
  name: ServiceName,
  environment: Readonly<Record<string, string>>,
): Promise<Unread> {
  const child = spawn(process.execPath, [join(program, 'dist/cli.js'), 'serve', name], {
    env: environment,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  t.after(() => {
    child.kill('SIGKILL');
  });
  const { parsed, write } = createLines((text): Array<Record<string, unknown>> => [
    JSON.parse(text),
  ]);
  const listen = (part: Buffer) => write(part.toString('utf8'));
  child.stdout.on('data', listen);
  await until(() => parsed().some(({ message }) => message === 'ready'), 'it is ready');
  const port = parsed().find(
    ({ service, message }) => service === name && message === 'listening',
  )?.port;
  child.stdout.off('data', listen).pause();
  return {
    child,
    url: `http://127.0.0.1:${String(port)}`,
    parsed,
    readOn: () => {
      child.stdout.on('data', listen).resume();
    },
  };
}
