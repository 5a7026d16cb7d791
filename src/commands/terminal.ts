import { isUtf8 } from 'node:buffer';
import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';
import { type LineReader, OperationFailed, UsageError } from './command.ts';

export async function readAll(input: NodeJS.ReadStream): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of input) chunks.push(Buffer.from(chunk));
  const whole = Buffer.concat(chunks);
  if (!isUtf8(whole)) throw new UsageError('standard input is not UTF-8 text');
  return whole.toString('utf8');
}

export const linesOf = async (input: NodeJS.ReadStream): Promise<LineReader> => (input.isTTY ? hiddenLines(input) : pipedLines(await readAll(input)));

function pipedLines(text: string): LineReader {
  let left = text;
  return {
    async next() {
      const [line = ''] = left.split('\n', 1);
      left = left.slice(line.length + 1);
      return line.replace(/\r$/, '');
    },
    rest: async () => left.replace(/\r?\n$/, ''),
    isTyped: false,
    close: () => {},
  };
}

/** From a terminal, without showing what is typed. One reader for all, so that nothing pasted goes on to the shell. */
function hiddenLines(input: NodeJS.ReadStream): LineReader {
  // The terminal's own echo is off while lines are read, and what this would echo goes nowhere.
  const output = new Writable({ write: (_chunk, _encoding, done) => done() });
  const reader = createInterface({ input, output, terminal: true });
  let isCancelled = false;
  let isAsking = false;
  reader.on('SIGINT', () => {
    isCancelled = true;
    reader.close();
    // While nothing is asked for, Ctrl-C is meant for the whole command.
    if (!isAsking) process.kill(process.pid, 'SIGINT');
  });
  const lines = reader[Symbol.asyncIterator]();
  async function read(prompt: string, most: number): Promise<string[]> {
    process.stderr.write(prompt);
    isAsking = true;
    const read: string[] = [];
    for (let line = await lines.next(); !line.done; line = await lines.next()) {
      read.push(line.value);
      if (read.length === most) break;
    }
    isAsking = false;
    process.stderr.write('\n');
    if (isCancelled || read.length === 0) throw new OperationFailed('nothing was entered'); // Ctrl-C or Ctrl-D
    return read;
  }
  return {
    next: async (prompt) => (await read(prompt, 1)).join(''),
    rest: async (prompt) => (await read(`${prompt}(end with Enter and Ctrl-D) `, Number.POSITIVE_INFINITY)).join('\n'),
    isTyped: true,
    close: () => reader.close(),
  };
}
