import { isAbsolute } from 'node:path';
import { fromBase64 } from '../crypto/text.ts';
import type { DatabaseAddress } from '../db/connection.ts';
import { DAY, Expected, number, oneOf, type SettingsInput, text, toggle, type Values, type Variable } from '../runtime/variables.ts';

export const PORT = 8000;
export const STYLE = { envelope: 'bare', unavailable: 'unavailable' } as const;
export const PREFIXES = [];
export const OWNS_HOST_AND_PORT = true;

export const VARIABLES = {
  WEBHOOK_VARIANT: oneOf('extended', ['extended', 'plain']),
  WEBHOOK_SECRET: text(null),
  WEBHOOK_TOKEN: text(null, checkToken),
  APP_NAME: text('gatehouse-webhook'),
  WEBHOOK_FORWARD_URL: text(null, checkForwardUrl),
  WEBHOOK_FORWARD_SECRET: text(null, checkForwardSecret),
  WEBHOOK_FORWARD_ALLOW_PRIVATE: toggle('off'),
  WEBHOOK_COMMAND: command(),
  WEBHOOK_HANDLER: text(null, checkModule),
  WEBHOOK_EVENTS: text(null),
  WEBHOOK_ORDER: oneOf('none', ['none', 'page_id']),
  WEBHOOK_CONCURRENCY: number(10, 1, 256),
  WEBHOOK_TIMEOUT: number(30, 1, 3_600),
  WEBHOOK_MAX_ATTEMPTS: number(12, 1, 100),
  WEBHOOK_BACKOFF_BASE_MS: number(1_000, 1, 3_600_000),
  WEBHOOK_RATE: number(20_000, 1, 1_000_000),
  // At least a week: senders retry for days, and the delivery id of a removed event is forgotten.
  EVENT_RETENTION: number(30 * DAY, 7 * DAY, 3_660 * DAY),
  DEAD_RETENTION: number(90 * DAY, 7 * DAY, 3_660 * DAY),
  INBOX_PAGE: toggle('off'),
} as const;

type WebhookValues = Values<typeof VARIABLES>;
export type Target =
  | { readonly kind: 'forward'; readonly url: URL; readonly secret: string | null; readonly allowPrivate: boolean }
  | { readonly kind: 'command'; readonly command: readonly [string, ...string[]] }
  | { readonly kind: 'handler'; readonly module: string };

export type WebhookSettings = ReturnType<typeof read>;
export type DeliverySettings = WebhookSettings['delivery'];

export const needsDatabase = ({ WEBHOOK_VARIANT }: WebhookValues): boolean => WEBHOOK_VARIANT === 'extended';
export const logFields = ({ appName }: WebhookSettings) => ({ app: appName });

export function read({ values, database, purpose, foreign, findings }: SettingsInput<typeof VARIABLES, DatabaseAddress>) {
  const isPlain = values.WEBHOOK_VARIANT === 'plain' && purpose === 'serve';
  if (isPlain && values.WEBHOOK_TOKEN === null) {
    findings.warnings.push('The plain webhook receiver accepts events from anybody, because WEBHOOK_TOKEN is not set.');
  }
  return {
    /** Null in the plain variant, which stores nothing. */
    database: isPlain ? null : database,
    token: values.WEBHOOK_TOKEN,
    /** Seals signing secrets; null: there can be none. */
    secret: values.WEBHOOK_SECRET,
    appName: values.APP_NAME ?? 'gatehouse-webhook',
    /** Where events are delivered; null: they wait in the inbox. */
    target: targetOf(values, isPlain, findings.problems),
    delivery: {
      /** Names in which `*` stands for any characters; none selects every event. */
      events: (values.WEBHOOK_EVENTS ?? '').split(',').map((pattern) => pattern.trim()).filter(Boolean),
      ordered: values.WEBHOOK_ORDER === 'page_id',
      concurrency: values.WEBHOOK_CONCURRENCY,
      timeoutMs: values.WEBHOOK_TIMEOUT * 1000,
      maxAttempts: values.WEBHOOK_MAX_ATTEMPTS,
      /** Seconds. */
      backoffBase: values.WEBHOOK_BACKOFF_BASE_MS / 1000,
      /** For commands and handlers: the environment without Gatehouse's own variables, which hold its secrets. */
      environment: foreign,
    },
    /** Events a second for each token, in one process. */
    rate: values.WEBHOOK_RATE,
    eventSeconds: values.EVENT_RETENTION,
    deadSeconds: values.DEAD_RETENTION,
    inboxPage: values.INBOX_PAGE,
  } as const;
}

/** At most one target, so that it is clear which one has handled an event. */
function targetOf(values: WebhookValues, isPlain: boolean, problems: string[]): Target | null {
  const { WEBHOOK_FORWARD_URL: url, WEBHOOK_COMMAND: command, WEBHOOK_HANDLER: module } = values;
  const names = ['WEBHOOK_FORWARD_URL', 'WEBHOOK_COMMAND', 'WEBHOOK_HANDLER'] as const;
  const given = names.filter((name) => values[name] !== null);
  if (given.length > 1) problems.push(`${given.join(' and ')} are set together; events go to one of them.`);
  if (given.length > 0 && isPlain) {
    problems.push(`${given.join(', ')} needs WEBHOOK_VARIANT=extended: the plain receiver keeps nothing that could be delivered again.`);
  }
  if (url !== null && URL.canParse(url)) {
    const allowPrivate = values.WEBHOOK_FORWARD_ALLOW_PRIVATE;
    return { kind: 'forward', url: new URL(url), secret: values.WEBHOOK_FORWARD_SECRET, allowPrivate };
  }
  if (command !== null) return { kind: 'command', command };
  return module === null ? null : { kind: 'handler', module };
}

/** A token must survive a query string and a header unchanged. */
function checkToken(value: string): string | null {
  return /^[A-Za-z0-9._~-]{16,512}$/.test(value) ? null : '16 to 512 characters of A-Z a-z 0-9 . _ ~ -';
}

function checkForwardUrl(value: string): string | null {
  const url = URL.canParse(value) ? new URL(value) : null;
  const isPlainUrl = url && /^https?:$/.test(url.protocol) && url.username === '' && url.hash === '';
  return isPlainUrl ? null : 'an http or https URL without a user name';
}

function checkForwardSecret(value: string): string | null {
  const bytes = fromBase64(value.replace(/^whsec_/, ''))?.length ?? 0;
  return bytes >= 24 && bytes <= 64 ? null : '24 to 64 bytes in Base64, with or without whsec_ before them';
}

function checkModule(value: string): string | null {
  return isAbsolute(value) ? null : 'the absolute path of a module';
}

function command(): Variable<readonly [string, ...string[]] | null> {
  const parse = (text: string) => {
    try {
      const words: unknown = JSON.parse(text);
      if (Array.isArray(words) && words.every((word) => typeof word === 'string' && !word.includes('\0'))) {
        const [program, ...rest]: string[] = words;
        if (program) return [program, ...rest] as const;
      }
    } catch {
      // Reported below.
    }
    return new Expected('a JSON array of a program and its arguments, such as ["/usr/local/bin/handle", "--fast"]');
  };
  return { fallback: '–', unset: null, parse };
}
