import { validate } from '../platform/http/route/schema.ts';
import type { Target } from '../webhook/model.ts';
import { COMMAND_FORM, type WebhookSettings } from '../webhook/settings.ts';
import { NO_TARGET_OF_ITS_OWN, setTarget } from '../webhook/store/tokens.ts';
import { listActive } from '../webhook/senders.ts';
import { describeTarget, NO_PLACE, NO_TOKEN, prepareTarget } from '../webhook/target.ts';
import { programSchema, type TargetInput, targetSchema } from '../webhook/schemas.ts';
import {
  type Command,
  flag,
  type Invocation,
  OperationFailed,
  option,
  UsageError,
} from './command.ts';
import { orThrow, requireUuid } from './database.ts';
import { readDuration, readSecretFile } from './terminal.ts';
import { inWebhook, keysOf } from './webhook-database.ts';

export const TARGET_OPTIONS = {
  forward: option('URL', 'send the events of this token to this URL'),
  command: option('JSON', `run this program for each event: ${COMMAND_FORM}`),
  events: option('NAMES', 'deliver only these, separated by commas; * stands for any characters'),
  timeout: option('TIME', 'of an attempt, such as 30s; default WEBHOOK_TIMEOUT'),
  'forward-secret-file': option('FILE', "signs the requests; '-' for standard input"),
  'keep-signature': flag("pass the sender's own signature headers on, from the next event on"),
};

/** What `--reset` takes, and what it sends. */
const RESETS = {
  events: { events: null },
  timeout: { timeout_seconds: null },
  'forward-secret': { secret: null },
  'keep-signature': { keep_signature: false },
} as const;

const isReset = (name: string): name is keyof typeof RESETS => Object.hasOwn(RESETS, name);

function readResets(call: Invocation) {
  const names = call.text('reset')?.split(',') ?? [];
  const known = names.filter(isReset);
  if (known.length < names.length)
    throw new UsageError(`--reset takes ${Object.keys(RESETS).join(', ')}, separated by commas`);
  return known.reduce<TargetInput>((all, name) => ({ ...all, ...RESETS[name] }), {});
}

/** @returns null without an option that sets a target */
export async function readTarget(call: Invocation): Promise<TargetInput | null> {
  const url = call.text('forward');
  const command = call.text('command');
  const file = call.text('forward-secret-file');
  const names = call.text('events')?.split(',');
  if (url !== undefined && command !== undefined)
    throw new UsageError('give --forward or --command, not both');
  const options = {
    events: names?.map((name) => name.trim()),
    timeout_seconds: readDuration(call, 'timeout'),
    keep_signature: call.flag('keep-signature') || undefined,
    ...readResets(call),
  };
  if (command !== undefined)
    return orThrow(validate(programSchema, { command, ...options }, 'invalid_body'));
  const secret = file && (await readSecretFile('forward-secret-file', file, call));
  const given = {
    ...(url === undefined ? {} : { url }),
    ...(secret ? { secret } : {}),
    ...options,
  };
  const isGiven = Object.values(given).some((value) => value !== undefined);
  return isGiven ? orThrow(validate(targetSchema, given, 'invalid_body')) : null;
}

/** @returns what `setTarget` stores */
export function prepare(target: TargetInput, settings: WebhookSettings) {
  const signingKeys = keysOf(settings);
  return orThrow(prepareTarget(target, { ...settings, signingKeys }));
}

/** What a list shows. */
export const targetText = (own: Target | null) => (own ? describeTarget(own).name : 'default');

export const TARGET_COMMAND: Command = {
  name: 'token target',
  positionals: 'ID',
  summary:
    'Change the target of a token, for new and waiting events at once; what is not given stays',
  options: {
    default: flag('deliver to the target of the process again'),
    reset: option('NAMES', `take back: ${Object.keys(RESETS).join(', ')}`),
    ...TARGET_OPTIONS,
  },
  async run(call) {
    const id = requireUuid(call.first, ' from gatehouse token list');
    const target = await readTarget(call);
    if ((target === null) !== call.flag('default'))
      throw new UsageError('give what to change, or --default');
    await inWebhook(call, async (database, settings) => {
      const isKnown = (await listActive(database)).some((token) => token.id === id);
      if (!isKnown) throw new OperationFailed(NO_TOKEN);
      const change = target ? prepare(target, settings) : NO_TARGET_OF_ITS_OWN;
      const isSet = await setTarget(database, id, change);
      if (!isSet) throw new OperationFailed(NO_PLACE);
    });
    return `The events of token ${id} go to ${target ? 'its own' : 'the default'} target.`;
  },
};
