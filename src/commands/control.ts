import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { text } from 'node:stream/consumers';
import { Env } from '../platform/runtime/env.ts';
import { codeOf } from '../platform/runtime/errors.ts';
import { LOG_LEVELS } from '../platform/runtime/log.ts';
import { socketPath } from '../platform/process/settings.ts';
import {
  type Command,
  flag,
  type Invocation,
  json,
  OperationFailed,
  option,
  UsageError,
} from './command.ts';
import { membersOf, printMembers, printRows } from './terminal.ts';

const socket = option('PATH', 'CONTROL_SOCKET of the process; by default the variable');

/** What an operator asks of a process that runs, over its CONTROL_SOCKET. */
export const COMMANDS: readonly Command[] = [
  {
    name: 'status',
    options: { json, socket },
    summary: 'Show what a running process does now: requests, queues, latest warnings and errors',
    async run(call) {
      const status = await ask(call, 'GET', '/status');
      if (call.flag('json')) return call.print(JSON.stringify(status));
      const { services, measurements, recent, ...own } = status;
      printMembers(call, own);
      for (const service of rowsOf(services)) printService(call, service);
      call.print('');
      printRows(call, rowsOf(measurements), { MEASUREMENT: 'name', VALUE: 'value' });
      call.print('');
      for (const line of rowsOf(recent)) call.print(JSON.stringify(line));
    },
  },
  {
    name: 'drain',
    options: { undo: flag('let readiness succeed again'), socket },
    summary: 'Let readiness of a running process fail, while it serves requests',
    async run(call) {
      const isUndone = call.flag('undo');
      const { changed } = await ask(call, 'PUT', '/drain', { drain: !isUndone });
      const state = isUndone ? 'not draining' : 'draining';
      return changed === true ? `the process is ${state} now` : `the process was ${state} before`;
    },
  },
  {
    name: 'log-level',
    positionals: 'LEVEL',
    options: { socket },
    summary: 'Change LOG_LEVEL of a running process until it ends',
    async run(call) {
      const level = LOG_LEVELS.find((one) => one === call.first);
      if (!level) throw new UsageError(`LEVEL must be one of ${LOG_LEVELS.join(', ')}`);
      const { from, to } = await ask(call, 'PUT', '/log-level', { level });
      return `log level ${to}; it was ${from}`;
    },
  },
];

type Members = Readonly<Record<string, unknown>>;
const rowsOf = (value: unknown): readonly Members[] =>
  Array.isArray(value) ? value.map(membersOf) : [];

function printService(call: Invocation, { requests, ...service }: Members) {
  call.print('');
  printMembers(call, service);
  printRows(call, rowsOf(requests), {
    'REQUESTS OF': 'route',
    NUMBER: 'requests',
    'OLDEST (MS)': 'oldest_ms',
  });
}

const LIMIT_SECONDS = 10;

/** @throws OperationFailed with what the operator can do */
async function ask(
  { text: given, environment }: Invocation,
  method: string,
  path: string,
  body?: object,
): Promise<Members> {
  const env = new Env(environment);
  const file = given('socket') ?? env.get('CONTROL_SOCKET', null, socketPath);
  if (file === null)
    throw new UsageError('set CONTROL_SOCKET to that of the process, or pass --socket');
  const sent = request({
    socketPath: file,
    method,
    path,
    timeout: LIMIT_SECONDS * 1_000,
  });
  const late = new OperationFailed(`${file}: no reply within ${LIMIT_SECONDS} s`);
  sent.on('timeout', () => sent.destroy(late));
  sent.end(body && JSON.stringify(body));
  try {
    const [response]: IncomingMessage[] = await once(sent, 'response');
    const reply = membersOf(response && JSON.parse(await text(response)));
    if (response?.statusCode === 200) return reply;
    throw new OperationFailed(String(membersOf(reply.error).message));
  } catch (error) {
    if (error instanceof OperationFailed) throw error;
    throw new OperationFailed(`${file}: ${reasonOf(codeOf(error))}`);
  }
}

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'no process listens there. Is one running, with this CONTROL_SOCKET?',
  ECONNREFUSED: 'the process that made it does not run any more',
  EACCES: 'it belongs to another user. Run the command as that user, or as root',
};
const reasonOf = (code: string) => REASONS[code] ?? `no reply (${code})`;
