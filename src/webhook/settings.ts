import { isAbsolute } from 'node:path';
import { DAY_SECONDS, parseDurationMs, UNITS_MS } from '../platform/runtime/duration.ts';
import { readDatabase } from '../platform/db/url.ts';
import { readUsers, readUserSource } from '../platform/http/credentials/user-source.ts';
import {
  type Env,
  Expected,
  list,
  matching,
  oneOf,
  type Purpose,
  satisfying,
  wholeNumber,
} from '../platform/runtime/env.ts';
import type { Command, Target } from './model.ts';
import { standardKey } from './signatures.ts';

export const PORT = 8000;
export const STYLE = { wrapping: 'bare', unavailable: 'unavailable' } as const;
export const PREFIXES = [];
const LIST_PAUSES =
  'was removed: list the pauses between attempts in WEBHOOK_RETRY_SCHEDULE, such as';
export const REMOVED = {
  WEBHOOK_MAX_ATTEMPTS: `${LIST_PAUSES} 5s,30s,2m for four attempts`,
  WEBHOOK_BACKOFF_BASE_MS: `${LIST_PAUSES} 500ms,1s,2s`,
} as const;
export const OWNS_HOST_AND_PORT = true;

export const COMMAND_FORM =
  'a JSON array of a program and its arguments, such as ["/usr/local/bin/handle", "-v"]';
export const FORWARD_URL = 'an http or https URL without a user name and without a fragment (#)';
export const FORWARD_SECRET = '24 to 64 bytes in Base64, with or without the prefix whsec_';
// These characters need no encoding in a query or a header.
const queryToken = matching(
  /^[A-Za-z0-9._~-]{1,512}$/,
  'at most 512 characters of A-Z a-z 0-9 . _ ~ -',
);

export type WebhookSettings = ReturnType<typeof read>;
export type DeliverySettings = WebhookSettings['delivery'];
export type WorkSettings = Pick<DeliverySettings, 'concurrency' | 'timeoutMs' | 'pausesMs'>;

export const isHttpUrl = (text: string) =>
  URL.canParse(text) && /^https?:$/.test(new URL(text).protocol);
const baseAddress = satisfying(
  isHttpUrl,
  'the address of the webhook service, such as https://hooks.example.org',
);

/** What a command needs that reads the events of the service. */
export const readClient = (env: Env) => ({
  url: env.get('GATEHOUSE_WEBHOOK_URL', 'http://localhost:8000', baseAddress),
  token: env.text('OPERATOR_TOKEN', null),
});

export const logFields = ({ appName }: WebhookSettings) => ({ app: appName });

export function read(env: Env, purpose: Purpose) {
  // For a command, whose variables are known here as well: programs do not get them.
  readClient(env);
  const variant = env.get('WEBHOOK_VARIANT', 'extended', oneOf(['extended', 'plain']));
  const isPlain = variant === 'plain' && purpose === 'serve';
  const token = env.secret('WEBHOOK_TOKEN', queryToken);
  if (isPlain && token === null) {
    env.warnings.add(
      'WEBHOOK_TOKEN is not set: the plain webhook receiver accepts events from anyone.',
    );
  }
  return {
    token,
    /** The first seals signing secrets, all of them open them. None: tokens cannot have one. */
    secrets: env.secrets('WEBHOOK_SECRET'),
    appName: env.text('APP_NAME', 'gatehouse-webhook'),
    ...readTarget(env, isPlain),
    delivery: readDelivery(env),
    /** Requests per second for each token, in this process. */
    rate: env.number('WEBHOOK_RATE', 20_000, 1, 1_000_000),
    /** For an event from a signed source. Undefined: MAX_BODY_BYTES. */
    maxSignedBytes:
      env.number('WEBHOOK_MAX_BODY_BYTES', null, 1_024, 25 * 1024 * 1024) ?? undefined,
    // At least a week: senders retry for days, and a removed event's delivery id no longer
    // identifies repetitions.
    eventSeconds: env.get('EVENT_RETENTION', 30 * DAY_SECONDS, retention),
    deadSeconds: env.get('DEAD_RETENTION', 90 * DAY_SECONDS, retention),
    inboxPage: env.isOn('INBOX_PAGE'),
    /** Who may use the inbox without a token. A user is not an operator by default. */
    inboxUsers: { names: readUsers(env, 'INBOX_USERS'), source: readUserSource(env) },
    /** Null: the plain variant. */
    database: isPlain ? null : readDatabase(env, 'WEBHOOK_DATABASE_URL'),
  } as const;
}

const retention = wholeNumber(7 * DAY_SECONDS, 3_660 * DAY_SECONDS);

const readDelivery = (env: Env) => ({
  /** Event names in which `*` stands for any characters; none selects every event. */
  events: env.get('WEBHOOK_EVENTS', [], list()),
  isOrdered: env.get('WEBHOOK_ORDER', 'none', oneOf(['none', 'page_id'])) === 'page_id',
  concurrency: env.number('WEBHOOK_CONCURRENCY', 10, 1, 256),
  timeoutMs: env.number('WEBHOOK_TIMEOUT', 30, 1, 3_600) * 1000,
  /** Before the second attempt, the third, and so on. After the last one the event is dead. */
  pausesMs: readSchedule(env),
  allowPrivate: env.isOn('WEBHOOK_FORWARD_ALLOW_PRIVATE'),
  /** For commands and handlers: not Gatehouse's own variables, which hold its secrets. */
  environment: env.foreign,
});

/**
 * At most one target, so that it is clear which one processed an event.
 * @returns the target of all tokens without one of their own, null if their events stay stored; and
 * what signs the requests to it
 */
function readTarget(env: Env, isPlain: boolean) {
  const url = env.get('WEBHOOK_FORWARD_URL', null, satisfying(isForwardUrl, FORWARD_URL));
  const secret = env.get('WEBHOOK_FORWARD_SECRET', null, signingSecret);
  const command = env.get('WEBHOOK_COMMAND', null, (text) => {
    const words = parseCommand(text);
    if (words) return words;
    throw new Expected(COMMAND_FORM);
  });
  const isModule = satisfying(isAbsolute, 'the absolute path of a module');
  const module = env.get('WEBHOOK_HANDLER', null, isModule);
  const targets = { WEBHOOK_FORWARD_URL: url, WEBHOOK_COMMAND: command, WEBHOOK_HANDLER: module };
  const given = Object.entries(targets).flatMap(([name, value]) => (value === null ? [] : name));
  if (given.length > 1) env.problem(given.join(' and '), 'are set together; set only one of them.');
  if (given.length > 0 && isPlain) {
    env.problem(
      given.join(', '),
      'requires WEBHOOK_VARIANT=extended: the plain variant stores no events.',
    );
  }
  let commonTarget: Target | null = null;
  if (url !== null) commonTarget = { url };
  else if (command !== null) commonTarget = { command };
  else if (module !== null) commonTarget = { module };
  return { commonTarget, forwardSecret: secret };
}

const signingSecret = satisfying((text) => standardKey(text) !== null, FORWARD_SECRET);

export function isForwardUrl(text: string) {
  if (!isHttpUrl(text)) return false;
  const { username, hash } = new URL(text);
  return username === '' && hash === '';
}

/** @returns the program and its arguments, or undefined */
export function parseCommand(text: string): Command | undefined {
  try {
    const words: unknown = JSON.parse(text);
    const isValid =
      Array.isArray(words) &&
      words.every((word) => typeof word === 'string' && !word.includes('\0'));
    const [program, ...rest]: string[] = isValid ? words : [];
    return program ? [program, ...rest] : undefined;
  } catch {
    return undefined;
  }
}

/** The largest first. */
const UNITS = ['d', 'h', 'm', 's', 'ms'] as const;
const MAX_PAUSES = 99;
const MAX_PAUSE_MS = 7 * DAY_SECONDS * 1_000;

const USUAL = '5s,30s,2m,10m,30m,1h,2h,4h,8h,12h,20h,24h';

/** Pauses between attempts in milliseconds, of 500ms,5s,2m,4h,1d; `none` is a single attempt. */
const readSchedule = (env: Env): readonly number[] =>
  env.get('WEBHOOK_RETRY_SCHEDULE', readPauses(USUAL), parseSchedule, USUAL);

function parseSchedule(text: string) {
  const pauses = readPauses(text);
  const areShort = pauses.every((pauseMs) => pauseMs <= MAX_PAUSE_MS);
  if (pauses.length <= MAX_PAUSES && areShort) return pauses;
  throw new Expected(`none, or up to ${MAX_PAUSES} pauses of at most 7d each, such as ${USUAL}`);
}

/** @returns infinity for what is not a pause */
function readPauses(text: string) {
  if (text === 'none') return [];
  return text.split(',').map((pause) => parseDurationMs(pause.trim(), UNITS) ?? Infinity);
}

/** @returns such as 30s or 2h, in the largest unit without a rest */
export function formatPause(pauseMs: number) {
  const unit = UNITS.find((one) => pauseMs > 0 && pauseMs % UNITS_MS[one] === 0) ?? 's';
  return `${pauseMs / UNITS_MS[unit]}${unit}`;
}
