/** A program on a real terminal with typed input. Node cannot open one, so Python's `pty` does. */
import { spawn, spawnSync } from 'node:child_process';
import { until } from './until.ts';
import type { Owner } from './owner.ts';

/** The reason for `skip` if there is no Python with `pty`, otherwise false. */
export const withoutTerminal: string | false =
  spawnSync('python3', ['-c', 'import fcntl, pty, termios']).status === 0
    ? false
    : 'needs python3, whose module pty opens a terminal';

/**
 * Types its standard input once the terminal's echo is off, like a person who waits for a prompt,
 * or at once what begins with U+0000. Writes what the terminal shows to standard output. Ends with
 * a line on standard error about the exit and the terminal's state.
 */
const DRIVER = `
import fcntl, json, os, pty, select, sys, termios
master, slave = pty.openpty()
fresh = termios.tcgetattr(slave)
pid = os.fork()
if pid == 0:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for descriptor in (0, 1, 2): os.dup2(slave, descriptor)
    os.execv(sys.argv[1], sys.argv[1:])
typed, status, idle = b'', None, 0
while status is None or idle < 3:
    echoes = termios.tcgetattr(slave)[3] & termios.ECHO
    if typed and (not echoes or typed[0] == 0):
        os.write(master, typed.lstrip(b'\\0'))
        typed = b''
    ready = select.select([master, 0] if status is None else [master], [], [], 0.05)[0]
    idle = 0 if ready else idle + 1
    if master in ready:
        os.write(1, os.read(master, 65536))
    if 0 in ready:
        more = os.read(0, 65536)
        if not more: os.kill(pid, 9)
        typed += more
    if status is None:
        ended, code = os.waitpid(pid, os.WNOHANG)
        if ended: status = code
code = os.waitstatus_to_exitcode(status)
os.write(2, json.dumps({'code': code, 'isAsBefore': termios.tcgetattr(slave) == fresh}).encode())
`;

export interface Left {
  /** Negative for a signal. */
  readonly code: number;
  /** Whether the terminal's settings are restored. */
  readonly isAsBefore: boolean;
  /** All output of the terminal, with \n as line end. */
  readonly shown: string;
}

export const ENTER = '\r';
export const CONTROL_C = '\u0003';
export const CONTROL_D = '\u0004';

/** @param environment the whole environment: nothing is inherited */
export function startOnTerminal(
  owner: Owner,
  command: readonly string[],
  environment: Readonly<Record<string, string>>,
) {
  const python = spawn('python3', ['-c', DRIVER, ...command], {
    env: { PATH: process.env.PATH ?? '', TERM: 'xterm', ...environment },
  });
  const seen = { shown: '', report: '', from: 0, isOver: false };
  python.stdout.setEncoding('utf8').on('data', (text: string) => {
    seen.shown += text;
  });
  python.stderr.setEncoding('utf8').on('data', (text: string) => {
    seen.report += text;
  });
  python.stdin.on('error', () => {});
  const left = new Promise<Left>((resolve, reject) => {
    python.on('error', reject);
    python.on('close', () => {
      seen.isOver = true;
      try {
        const report: { code: number; isAsBefore: boolean } = JSON.parse(seen.report);
        resolve({ ...report, shown: seen.shown.replaceAll('\r\n', '\n') });
      } catch {
        reject(new Error(`the terminal broke: ${seen.report}`));
      }
    });
  });
  left.catch(() => {});
  owner.after(async () => {
    python.stdin.end();
    await left.catch(() => {});
  });
  return {
    /** Waits until the terminal shows this after the text of the previous call. */
    async sees(text: string) {
      await until(
        () => seen.isOver || seen.shown.includes(text, seen.from),
        `"${text}" on the terminal`,
      );
      const at = seen.shown.indexOf(text, seen.from);
      if (at < 0) throw new Error(`the program ended without showing "${text}": ${seen.shown}`);
      seen.from = at + text.length;
    },
    types: (keys: string) => {
      python.stdin.write(keys);
    },
    /** Types Ctrl-C, though no prompt waits for input. */
    interrupts: () => {
      python.stdin.write(`\0${CONTROL_C}`);
    },
    left,
  };
}
