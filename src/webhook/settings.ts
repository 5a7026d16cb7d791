import { isAbsolute } from 'node:path';
import { sha256 } from '../crypto/token.ts';
import type { DatabaseAddress } from '../db/url.ts';
import {
  checkUserList,
  earlierSecrets,
  Expected,
  list,
  matching,
  number,
  numberOrNull,
  oneOf,
  secret,
  secretValues,
  type SettingsInput,
  text,
  toggle,
  userList,
  type Values,
  type Variable,
} from '../runtime/variables.ts';
import { retrySchedule } from './schedule.ts';
import { standardKey } from './signatures.ts';
import { DAY_SECONDS } from '../runtime/duration.ts';

export const PORT = 8000;
export const STYLE = { wrapping: 'bare', unavailable: 'unavailable' } as const;
export const PREFIXES = [];
const LIST_PAUSES = 'list the pauses between attempts in WEBHOOK_RETRY_SCHEDULE, such as';
export const REMOVED = {
  WEBHOOK_MAX_ATTEMPTS: `${LIST_PAUSES} 5s,30s,2m for four attempts`,
  WEBHOOK_BACKOFF_BASE_MS: `${LIST_PAUSES} 500ms,1s,2s`,
} as const;
export const OWNS_HOST_AND_PORT = true;

export const COMMAND_FORM =
  'a JSON array of a program and its arguments, such as ["/usr/local/bin/handle", "-v"]';
export const FORWARD_SECRET = '24 to 64 bytes in Base64, with or without the prefix whsec_';
export const VARIABLES = {
  WEBHOOK_VARIANT: oneOf('extended', ['extended', 'plain']),
  WEBHOOK_SECRET: secret(),
  WEBHOOK_SECRET_PREVIOUS: earlierSecrets(0),
  // These characters need no encoding in a query or a header.
  WEBHOOK_TOKEN: secret(
    matching(/^[A-Za-z0-9._~-]{1,512}$/, 'at most 512 characters of A-Z a-z 0-9 . _ ~ -'),
  ),
  APP_NAME: text('gatehouse-webhook'),
  WEBHOOK_FORWARD_URL: text(null, checkForwardUrl),
  WEBHOOK_FORWARD_SECRET: text(null, (value) => (standardKey(value) ? null : FORWARD_SECRET)),
  WEBHOOK_FORWARD_ALLOW_PRIVATE: toggle('off'),
  WEBHOOK_COMMAND: command(),
  WEBHOOK_HANDLER: text(null, (value) =>
    isAbsolute(value) ? null : 'the absolute path of a module',
  ),
  WEBHOOK_EVENTS: list(),
  WEBHOOK_ORDER: oneOf('none', ['none', 'page_id']),
  WEBHOOK_CONCURRENCY: number(10, 1, 256),
  WEBHOOK_TIMEOUT: number(30, 1, 3_600),
  WEBHOOK_RETRY_SCHEDULE: retrySchedule('5s,30s,2m,10m,30m,1h,2h,4h,8h,12h,20h,24h'),
  WEBHOOK_MAX_BODY_BYTES: numberOrNull(null, 1_024, 25 * 1024 * 1024),
  WEBHOOK_RATE: number(20_000, 1, 1_000_000),
  // At least a week: senders retry for days, and a removed event's delivery id no longer identifies
  // repetitions.
  EVENT_RETENTION: number(30 * DAY_SECONDS, 7 * DAY_SECONDS, 3_660 * DAY_SECONDS),
  DEAD_RETENTION: number(90 * DAY_SECONDS, 7 * DAY_SECONDS, 3_660 * DAY_SECONDS),
  INBOX_PAGE: toggle('off'),
  INBOX_USERS: userList(),
} as const;

/** A program and its arguments. */
export type Command = readonly [string, ...string[]];
/**
 * The target of one token. A command comes from the command line alone. Without `events` or
 * `timeout_seconds`, those of the process apply. `is_signed`: whether a signing secret of
 * its own signs the requests.
 */
export type OwnTarget = Readonly<{
  events: readonly string[] | null;
  timeout_seconds: number | null;
  is_signed: boolean;
}> &
  Readonly<{ url: string; command?: never } | { command: Command; url?: never }>;

/** `secret` signs the requests by Standard Webhooks; null for no signature. */
export type ForwardSettings = {
  readonly url: URL;
  readonly secret: string | null;
  readonly allowPrivate: boolean;
};
export type TargetSettings = NonNullable<ReturnType<typeof targetOf>>;
export type WebhookSettings = ReturnType<typeof read>;
export type DeliverySettings = WebhookSettings['delivery'];
export type WorkSettings = Pick<DeliverySettings, 'concurrency' | 'timeoutMs' | 'pausesMs'>;

export const logFields = ({ appName }: WebhookSettings) => ({ app: appName });

export function read(input: SettingsInput<typeof VARIABLES, DatabaseAddress>) {
  const { values, purpose, foreign, findings, userSource } = input;
  const isPlain = values.WEBHOOK_VARIANT === 'plain' && purpose === 'serve';
  if (isPlain && values.WEBHOOK_TOKEN === null) {
    findings.warnings.push(
      'WEBHOOK_TOKEN is not set: the plain webhook receiver accepts events from anyone.',
    );
  }
  checkUserList('INBOX_USERS', values.INBOX_USERS, userSource, findings);
  return {
    /** Null: the plain variant. */
    database: isPlain ? null : input.requireDatabase(),
    token: values.WEBHOOK_TOKEN,
    /** The first seals signing secrets, all of them open them. None: tokens cannot have one. */
    secrets: secretValues(
      'WEBHOOK_SECRET',
      values.WEBHOOK_SECRET,
      values.WEBHOOK_SECRET_PREVIOUS,
      findings,
    ),
    appName: values.APP_NAME,
    /** For all tokens without a target of their own. Null: their events stay stored. */
    commonTarget: targetOf(values, isPlain, findings.problems),
    delivery: {
      allowPrivate: values.WEBHOOK_FORWARD_ALLOW_PRIVATE,
      /** Event names in which `*` stands for any characters; none selects every event. */
      events: values.WEBHOOK_EVENTS,
      isOrdered: values.WEBHOOK_ORDER === 'page_id',
      concurrency: values.WEBHOOK_CONCURRENCY,
      timeoutMs: values.WEBHOOK_TIMEOUT * 1000,
      /** Before the second attempt, the third, and so on. After the last one the event is dead. */
      pausesMs: values.WEBHOOK_RETRY_SCHEDULE,
      /** For commands and handlers. Without Gatehouse's own variables, which hold its secrets. */
      environment: foreign,
    },
    /** Requests per second for each token, in this process. */
    rate: values.WEBHOOK_RATE,
    /** For an event from a signed source. Undefined: MAX_BODY_BYTES. */
    maxSignedBytes: values.WEBHOOK_MAX_BODY_BYTES ?? undefined,
    eventSeconds: values.EVENT_RETENTION,
    deadSeconds: values.DEAD_RETENTION,
    inboxPage: values.INBOX_PAGE,
    /** Who may use the inbox without a token. A user is not an operator by default. */
    inboxUsers: { names: values.INBOX_USERS, source: userSource },
  } as const;
}

/** At most one target, so that it is clear which one processed an event. */
function targetOf(values: Values<typeof VARIABLES>, isPlain: boolean, problems: string[]) {
  const { WEBHOOK_FORWARD_URL: url, WEBHOOK_COMMAND: command, WEBHOOK_HANDLER: module } = values;
  const names = ['WEBHOOK_FORWARD_URL', 'WEBHOOK_COMMAND', 'WEBHOOK_HANDLER'] as const;
  const given = names.filter((name) => values[name] !== null);
  if (given.length > 1)
    problems.push(`${given.join(' and ')} are set together; set only one of them.`);
  if (given.length > 0 && isPlain) {
    problems.push(
      `${given.join(', ')} requires WEBHOOK_VARIANT=extended: the plain variant stores no events.`,
    );
  }
  if (url !== null) {
    return forwardTarget(url, values.WEBHOOK_FORWARD_SECRET, values.WEBHOOK_FORWARD_ALLOW_PRIVATE);
  }
  if (command !== null) return commandTarget(command);
  return module === null ? null : { ...identify('handler', module, module), module };
}

/**
 * `key`: under which the state of the target is kept. Another target, in a later setting, begins
 * without failures.
 * @param label without the path and the query of a URL, and the arguments of a program, which may
 * hold a credential
 */
const identify = <Kind extends string>(kind: Kind, id: string, label: string) => ({
  kind,
  key: sha256(`${kind} ${id}`).toString('base64url'),
  name: `${kind} ${label}`,
});

function forwardTarget(address: string, secret: string | null, allowPrivate: boolean) {
  const url = new URL(address);
  return { ...identify('forward', url.href, url.origin), url, secret, allowPrivate };
}

const commandTarget = (command: Command) => ({
  ...identify('command', command.join('\0'), command[0]),
  command,
});

/** @param secret null for none, and for a description without it */
export function ownTarget(own: OwnTarget, secret: string | null, allowPrivate: boolean) {
  return own.command ? commandTarget(own.command) : forwardTarget(own.url, secret, allowPrivate);
}

export function checkForwardUrl(value: string) {
  const url = URL.canParse(value) ? new URL(value) : null;
  const isValid = url && /^https?:$/.test(url.protocol) && url.username === '' && url.hash === '';
  return isValid ? null : 'an http or https URL without a user name';
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

function command(): Variable<Command | null> {
  const parse = (text: string) => parseCommand(text) ?? new Expected(COMMAND_FORM);
  return { fallback: '–', unset: null, parse };
}
