import type { DatabaseAddress } from './db/pool.ts';
import { type Environment, type Settings, VARIABLES } from './variables.ts';
import type { WebhookSettings } from './webhook/start.ts';

/** At most one place, so that nobody wonders which of two has dealt with an event. */
function targetOf(settings: Settings, plain: boolean, problems: string[]): WebhookSettings['target'] {
  const { WEBHOOK_FORWARD_URL: url, WEBHOOK_COMMAND: command, WEBHOOK_HANDLER: module } = settings;
  const given = Object.entries({ WEBHOOK_FORWARD_URL: url, WEBHOOK_COMMAND: command, WEBHOOK_HANDLER: module }).flatMap(([name, value]) => (value === null ? [] : [name]));
  if (given.length > 1) problems.push(`${given.join(' and ')} are set together; events go to one of them.`);
  if (given.length > 0 && plain) problems.push(`${given.join(', ')} needs WEBHOOK_VARIANT=extended: the plain receiver keeps nothing that could be delivered again.`);
  if (url !== null && URL.canParse(url)) {
    return { kind: 'forward', url: new URL(url), secret: settings.WEBHOOK_FORWARD_SECRET, allowPrivate: settings.WEBHOOK_FORWARD_ALLOW_PRIVATE === 'on' };
  }
  if (Array.isArray(command) && command !== null) return { kind: 'command', command };
  return module === null ? null : { kind: 'handler', module };
}

function foreignOnly(environment: Environment): Record<string, string> {
  const ours = (name: string) => Object.hasOwn(VARIABLES, name.replace(/_FILE$/, '')) || Object.hasOwn(VARIABLES, name);
  return Object.fromEntries(Object.entries(environment).flatMap(([name, value]) => (value === undefined || ours(name) ? [] : [[name, value]])));
}

/** @param database null for the plain variant, which keeps nothing */
export function webhookSettings(
  settings: Settings,
  environment: Environment,
  database: DatabaseAddress | null,
  problems: string[],
  warnings: string[],
): WebhookSettings {
  const plain = database === null;
  if (plain && settings.WEBHOOK_TOKEN === null) {
    warnings.push('The plain webhook receiver accepts events from anybody, because WEBHOOK_TOKEN is not set.');
  }
  return {
    database,
    token: settings.WEBHOOK_TOKEN,
    secret: settings.WEBHOOK_SECRET,
    appName: settings.APP_NAME ?? 'gatehouse-webhook',
    target: targetOf(settings, plain, problems),
    delivery: {
      events: (settings.WEBHOOK_EVENTS ?? '').split(',').map((pattern) => pattern.trim()).filter((pattern) => pattern !== ''),
      ordered: settings.WEBHOOK_ORDER === 'page_id',
      concurrency: settings.WEBHOOK_CONCURRENCY,
      timeoutMs: settings.WEBHOOK_TIMEOUT * 1000,
      maxAttempts: settings.WEBHOOK_MAX_ATTEMPTS,
      backoffBase: settings.WEBHOOK_BACKOFF_BASE_MS / 1000,
      environment: foreignOnly(environment),
    },
    rate: settings.WEBHOOK_RATE,
    eventSeconds: settings.EVENT_RETENTION,
    deadSeconds: settings.DEAD_RETENTION,
    inboxPage: settings.INBOX_PAGE === 'on',
  };
}
