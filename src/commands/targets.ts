import { validate } from '../http/schema.ts';
import { COMMAND_FORM, parseCommand } from '../webhook/settings.ts';
import type { OwnTarget, WebhookSettings } from '../webhook/settings.ts';
import type { Database } from '../db/pool.ts';
import type { SigningKeys } from '../webhook/service.ts';
import { changeTarget, checkTarget, type NewTarget, targetSchema } from '../webhook/targets.ts';
import { ownTarget } from '../webhook/settings.ts';
import {
  type Arguments,
  type Command,
  flag,
  type Option,
  option,
  type Terminal,
  UsageError,
} from './command.ts';
import { orThrow, requireUuid } from './database.ts';
import { parseDuration, readSecretFile } from './terminal.ts';
import { withWebhook } from './webhook-database.ts';

export const TARGET_OPTIONS: Readonly<Record<string, Option>> = {
  forward: option('URL', 'send the events of this token to this URL'),
  command: option('JSON', `run this program for each event: ${COMMAND_FORM}`),
  events: option('NAMES', 'deliver only these, separated by commas; * stands for any characters'),
  timeout: option('TIME', 'of an attempt, such as 30s; default WEBHOOK_TIMEOUT'),
  'forward-secret-file': option('FILE', "signs the requests; '-' for standard input"),
  'keep-signature': flag("pass the sender's own signature headers on, from the next event on"),
};

/** @returns null without an option that sets a target */
export async function readTarget(given: Arguments, terminal: Terminal): Promise<NewTarget | null> {
  const url = given.text('forward');
  const command = given.text('command');
  const timeout = given.text('timeout');
  const file = given.text('forward-secret-file');
  const names = given
    .text('events')
    ?.split(',')
    .map((name) => name.trim());
  const timeout_seconds = timeout === undefined ? timeout : parseDuration('--timeout', timeout);
  const keep_signature = given.flag('keep-signature');
  const options = { events: names, timeout_seconds, keep_signature };
  if (url !== undefined && command !== undefined)
    throw new UsageError('give --forward or --command, not both');
  if (url !== undefined) {
    const secret =
      file === undefined ? file : await readSecretFile('forward-secret-file', file, terminal);
    return orThrow(
      validate(targetSchema, withoutUndefined({ url, secret, ...options }), 'invalid_body'),
    );
  }
  const hasOptions = names ?? timeout ?? file;
  if (command === undefined && hasOptions !== undefined)
    throw new UsageError(
      '--events, --timeout and --forward-secret-file need --forward or --command',
    );
  if (command === undefined) return null;
  if (file !== undefined)
    throw new UsageError('a program gets no signature: leave out --forward-secret-file');
  const words = parseCommand(command);
  if (!words) throw new UsageError(`--command must be ${COMMAND_FORM}`);
  const checked = validate(
    targetSchema,
    withoutUndefined({ url: 'http://none', ...options }),
    'invalid_body',
  );
  const { url: _none, ...valid } = orThrow(checked);
  return { ...valid, command: words };
}

const withoutUndefined = (members: object) =>
  Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined));

/** What a list shows. */
export function targetText(own: OwnTarget | null): string {
  if (!own) return 'default';
  const { kind, label } = ownTarget(own, null, false);
  return `${kind} ${label}`;
}

export const TARGET_COMMAND: Command = {
  name: 'token target',
  positionals: 'ID',
  summary: 'Set the target of a token, for new and waiting events, on every replica at once',
  options: { default: flag('deliver to the target of the process again'), ...TARGET_OPTIONS },
  async run(given, terminal) {
    const id = requireUuid(given.positionals[0] ?? '', ' from gatehouse token list');
    const target = await readTarget(given, terminal);
    if ((target === null) !== given.flag('default'))
      throw new UsageError('give --forward, --command or --default');
    await withWebhook(terminal, (database, keys, settings) =>
      storeTarget(database, id, target, keys, settings),
    );
    terminal.note(`The events of token ${id} go to ${target ? 'its own' : 'the default'} target.`);
  },
};

export async function storeTarget(
  database: Database,
  id: string,
  target: NewTarget | null,
  keys: SigningKeys | null,
  { delivery }: WebhookSettings,
): Promise<void> {
  const failure = await changeTarget(database, id, target, delivery.allowPrivate, keys ?? []);
  if (failure) orThrow(failure);
}

/** Before a token is created for it. @throws UsageError if the target could not be set */
export async function requireValid(
  target: NewTarget,
  keys: SigningKeys | null,
  { delivery }: WebhookSettings,
): Promise<void> {
  const failure = await checkTarget(target, delivery.allowPrivate, keys ?? []);
  if (failure) orThrow(failure);
}
