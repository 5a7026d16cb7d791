import { spawn } from 'node:child_process';
import { once } from 'node:events';
import http, { type IncomingMessage } from 'node:http';
import https from 'node:https';
import type { LookupFunction } from 'node:net';
import { claimNotices, endNotices } from '../db/notified.ts';
import { hasPrivateAddress, publicLookup } from '../http/wire/private-address.ts';
import { codeOf, StartupError, Unavailable } from '../runtime/errors.ts';
import type { Job } from '../runtime/jobs.ts';
import type { Metrics } from '../runtime/metrics.ts';
import type { Service } from './service.ts';
import type { Notify } from './settings.ts';

/**
 * Tells the operator what a service has seen: everything at least once, by one replica, and in one
 * message a minute, so that an attack causes no flood.
 * @throws StartupError if every message would fail
 */
export function noticeJobs(
  name: string,
  { storage, observe }: Service,
  site: string,
  notify: Notify,
  metrics: Metrics,
): readonly Job[] {
  if (!storage || !observe) return [];
  const { database, schema } = storage;
  const send = createSender(notify);
  const count = metrics.counter(
    'gatehouse_notifications_sent_total',
    'Messages to NOTIFY_URL or NOTIFY_COMMAND.',
    ['service'],
  );
  return [
    {
      name: 'notify',
      everySeconds: 5,
      async batch() {
        const span = await claimNotices(database, schema.name);
        if (!span) return;
        const seen = await observe(span.since, span.until);
        if (seen.length > 0) {
          await send(`${site}, ${name}: ${seen.join('; ')}.`);
          count([name]);
        }
        await endNotices(database, schema.name, span.until);
      },
    },
  ];
}

const PRIVATE = 'NOTIFY_URL is a private address; set NOTIFY_ALLOW_PRIVATE=on to allow it';
const LIMIT_SECONDS = 10;
const LIMIT_MS = LIMIT_SECONDS * 1_000;
/** The error code after the time limit. */
const LATE = 'ABORT_ERR';
const IN_TIME = `within ${LIMIT_SECONDS} s`;

function createSender({ target, environment, allowPrivate }: Notify) {
  if (typeof target === 'string') {
    return (text: string) => runCommand(target, environment, text);
  }
  if (!allowPrivate && hasPrivateAddress(target)) throw new StartupError(`${PRIVATE}.`);
  return (text: string) => post(target, allowPrivate ? undefined : publicLookup(PRIVATE), text);
}

/** The form that most chat services take. */
async function post(url: URL, lookup: LookupFunction | undefined, text: string) {
  const { request } = url.protocol === 'https:' ? https : http;
  const sent = request(url, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    lookup,
    signal: AbortSignal.timeout(LIMIT_MS),
    agent: false,
  });
  const answered = once(sent.end(JSON.stringify({ text })), 'response');
  const [reply]: IncomingMessage[] = await answered.catch((error) => {
    if (error instanceof Unavailable) throw error;
    const code = codeOf(error);
    throw new Unavailable(`NOTIFY_URL did not answer ${code === LATE ? IN_TIME : `(${code})`}`);
  });
  reply?.on('error', () => {}).destroy();
  const { statusCode = 0 } = reply ?? {};
  if (statusCode < 200 || statusCode > 299)
    throw new Unavailable(`NOTIFY_URL answered with ${statusCode}`);
}

async function runCommand(program: string, env: Notify['environment'], text: string) {
  // A program that cannot be started has an error code, too.
  const outcome = await outcomeOf(program, env, text).catch(codeOf);
  if (outcome === LATE) throw new Unavailable(`NOTIFY_COMMAND did not end ${IN_TIME}`);
  if (outcome !== 0) throw new Unavailable(`NOTIFY_COMMAND ended with ${outcome}`);
}

/** @returns the exit code or the signal with which the program has ended */
async function outcomeOf(program: string, env: Notify['environment'], text: string) {
  const child = spawn(program, {
    env,
    signal: AbortSignal.timeout(LIMIT_MS),
    killSignal: 'SIGKILL',
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  const ended = once(child, 'exit');
  // There is none if the pipe could not be created. The program need not read its input.
  child.stdin?.on('error', () => {}).end(`${text}\n`);
  const [code, signal]: unknown[] = await ended;
  return code ?? signal;
}
