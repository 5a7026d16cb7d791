import { sealSecret, staleKeys, unsealServiceSecret } from '../platform/crypto/service-secret.ts';
import type { Database } from '../platform/db/pool.ts';
import type { NewToken } from '../platform/db/tokens.ts';
import { SCHEMA } from '../webhook/migrations.ts';
import { listActive, signingSecretProblem } from '../webhook/senders.ts';
import { ORDER_FORM, orderProblem, parseOrder, sourceOf } from '../webhook/order.ts';
import { SOURCE_NAMES } from '../webhook/sources.ts';
import {
  changeSender,
  insertToken,
  listTokens,
  revokeRestored,
  setTarget,
  type Token,
} from '../webhook/store/tokens.ts';
import {
  acceptPending,
  countByKey,
  findSecrets,
  fingerprint,
  resealSecrets,
  rotateSecret,
} from '../webhook/store/signing-secrets.ts';
import type { WebhookSettings } from '../webhook/settings.ts';
import { NO_TOKEN } from '../webhook/target.ts';
import {
  choice,
  type Command,
  flag,
  type Invocation,
  OperationFailed,
  option,
  requiredOption,
  type Terminal,
  UsageError,
} from './command.ts';
import { CUSTOM_OPTIONS, customText, readCustomSource } from './custom-source.ts';
import { counted, requireUuid, restoredCommand } from './database.ts';
import { DAY_SECONDS } from '../platform/runtime/duration.ts';
import { OUTBOX_COMMANDS } from './outbox.ts';
import { prepare, readTarget, TARGET_COMMAND, TARGET_OPTIONS, targetText } from './targets.ts';
import { printRows, readSecretFile } from './terminal.ts';
import { TEST_COMMAND } from './token-test.ts';
import { readName, tokenCommands } from './tokens.ts';
import { inWebhook, requireKeys } from './webhook-database.ts';

export const COMMANDS: readonly Command[] = [
  ...tokenCommands({
    name: 'token',
    noun: 'webhook token',
    schema: SCHEMA.name,
    prefix: '',
    roles: 'sender, or operator to read and redeliver events; default sender',
    createOptions: {
      source: option('SOURCE', `${SOURCE_NAMES.join(', ')}; default generic`),
      'signing-secret-file': option('FILE', "the sender's signing secret; '-' for standard input"),
      'order-by': option('PLACE', `deliver its events in order: ${ORDER_FORM}`),
      ...TARGET_OPTIONS,
      ...CUSTOM_OPTIONS,
    },
    rotateOptions: {
      'signing-secret-file': option(
        'FILE',
        "replace the signing secret instead of the token; '-' for standard input",
      ),
    },
    inService: inWebhook,
    list: async (call) =>
      printRows(call, await inWebhook(call, listTokens), {
        ID: 'id',
        NAME: 'name',
        ROLE: 'role',
        SOURCE: 'source',
        CREATED: 'created_at',
        'LAST USED': 'last_used_at',
        'REFUSED IN 24 H': 'refused',
        'LAST REFUSAL': ({ last_refusal, last_refused_at: at }) =>
          last_refusal === null ? null : `${last_refusal} ${at?.toISOString() ?? ''}`,
        TARGET: ({ target }) => targetText(target),
        ORDER: 'order_by',
        CUSTOM: ({ custom }) => customText(custom),
        STATE: stateOf,
      }),
    create,
    rotateSecret: rotateSigningSecret,
  }),
  {
    name: 'token rename',
    positionals: 'ID',
    summary: 'Rename the token of a sender',
    options: { name: requiredOption('NAME', 'the new name') },
    async run(call) {
      const id = requireUuid(call.first, ' from gatehouse token list');
      const name = readName(call);
      const isKnown = await inWebhook(call, (database) => changeSender(database, id, { name }));
      if (!isKnown) throw new OperationFailed(NO_TOKEN);
      return `Renamed token ${id}.`;
    },
  },
  {
    name: 'token order',
    positionals: 'ID',
    summary: 'Choose by what the events of a sender are delivered in order, from the next one on',
    options: {
      by: requiredOption('PLACE', `${ORDER_FORM}; or process: as WEBHOOK_ORDER says`),
    },
    async run(call) {
      const id = requireUuid(call.first, ' from gatehouse token list');
      const order_by = call.text('by') === 'process' ? null : readOrder(call, 'by');
      await inWebhook(call, async (database) => {
        const token = (await listActive(database)).find((one) => one.id === id);
        if (token) checkOrder(token, order_by, 'by');
        const isKnown = await changeSender(database, id, { order_by });
        if (!isKnown) throw new OperationFailed(NO_TOKEN);
      });
      return `Changed the order of token ${id}.`;
    },
  },
  TARGET_COMMAND,
  TEST_COMMAND,
  {
    name: 'token confirm',
    positionals: 'ID',
    summary: 'Show the pending signing secret that a sender sent, or activate it',
    options: {
      accept: option('FINGERPRINT', 'activate this secret; the old one stays valid for 24 hours'),
    },
    async run(call) {
      const id = requireUuid(call.first, ' from gatehouse token list');
      const accepted = call.text('accept');
      await inWebhook(call, async (database, settings) => {
        const keys = requireKeys(settings);
        if (accepted !== undefined) {
          const isActive = await acceptPending(database, id, keys, accepted, DAY_SECONDS);
          if (isActive) return call.note(`The signing secret of token ${id} is active.`);
          throw new OperationFailed(
            `no pending secret has this fingerprint; see: gatehouse token confirm ${id}`,
          );
        }
        const [pending] = await findSecrets(database, id, 'pending');
        if (!pending)
          throw new OperationFailed(
            'no signing secret is pending; have the sender send it again, and see: gatehouse token list',
          );
        const secret = unsealServiceSecret(keys, pending);
        if (secret === null)
          throw new OperationFailed(
            'the pending secret is sealed under another WEBHOOK_SECRET; set the one that the service has',
          );
        call.note(
          'Anyone with the token can send a secret. Activate this one only if it is the one that the sender shows.',
        );
        call.note(
          `To activate it, run: gatehouse token confirm ${id} --accept ${fingerprint(secret)}`,
        );
        call.print(secret);
      });
    },
  },
  {
    name: 'token reseal',
    summary: 'Encrypt all signing secrets under WEBHOOK_SECRET, to replace WEBHOOK_SECRET_PREVIOUS',
    async run(call) {
      const { replaced, kept } = await inWebhook(call, (database, settings) =>
        resealSecrets(database, requireKeys(settings)),
      );
      call.note(`${counted(replaced, 'signing secret')} encrypted under WEBHOOK_SECRET.`);
      if (kept > 0)
        throw new OperationFailed(
          `${kept} could not be decrypted: add the WEBHOOK_SECRET that they are sealed under to WEBHOOK_SECRET_PREVIOUS, or rotate them`,
        );
    },
  },
  ...OUTBOX_COMMANDS,
  restoredCommand(
    inWebhook,
    {
      name: 'restored webhook',
      summary:
        'After a restore, revoke all webhook tokens: some may have been revoked or replaced since the backup',
      options: { 'keep-senders': flag('revoke only operator tokens') },
    },
    async (sql, call) => {
      const roles = await revokeRestored(sql, !call.flag('keep-senders'));
      const tokens = roles.map(({ role, revoked }) => counted(revoked, `${role} token`));
      return `${tokens.join(', ') || 'no token'} revoked`;
    },
    '\nCreate new tokens with: gatehouse token create',
  ),
];

async function create(call: Invocation, token: NewToken) {
  const source = choice(call, 'source', SOURCE_NAMES) ?? 'generic';
  if (token.role === 'operator' && source !== 'generic')
    throw new UsageError('an operator has no source');
  const custom = readCustomSource(call, source);
  const row = {
    ...token,
    source,
    custom,
    order_by: readOrder(call, 'order-by'),
  };
  checkOrder(row, row.order_by, 'order-by');
  const secret = await readSigningSecret(call, row);
  const target = await readTarget(call);
  if (token.role === 'operator' && target) throw new UsageError('an operator has no target');
  if (target && !(target.url ?? target.command))
    throw new UsageError('--events, --timeout and others need --forward or --command');
  await inWebhook(call, async (database, settings) => {
    const prepared = target && prepare(target, settings);
    const sealed = secret === undefined ? null : await seal(secret, settings, database, call);
    await insertToken(database, row, sealed);
    if (prepared) await setTarget(database, token.id, prepared);
  });
  if (custom?.scheme === null)
    call.note('Requests are not signed: whoever has the token can send events.');
}

/** @returns null without the option */
function readOrder({ text }: Invocation, name: string) {
  const given = text(name);
  const order = given === undefined ? null : parseOrder(given);
  if (order === undefined) throw new UsageError(`--${name} must be ${ORDER_FORM}`);
  return order;
}

function checkOrder(
  token: Pick<Token, 'source' | 'custom'>,
  order_by: string | null,
  option: string,
) {
  const problem = orderProblem(token, order_by);
  if (problem !== null) throw new UsageError(`--${option}: ${problem}`);
}

async function rotateSigningSecret(call: Invocation, id: string, overlap: number) {
  if (call.text('signing-secret-file') === undefined) return undefined;
  return inWebhook(call, async (database, settings) => {
    const tokens = await listTokens(database);
    const known = tokens.find((one) => one.id === id && one.revoked_at === null);
    const secret = known && (await readSigningSecret(call, known));
    if (secret === undefined) return false;
    return rotateSecret(database, id, overlap, await seal(secret, settings, database, call));
  });
}

function stateOf({ revoked_at, pending }: Token) {
  if (revoked_at) return `revoked ${revoked_at.toISOString()}`;
  return pending ? 'active, secret pending' : 'active';
}

/** @returns undefined without `--signing-secret-file` */
async function readSigningSecret(call: Invocation, token: Pick<Token, 'source' | 'custom'>) {
  const option = 'signing-secret-file';
  const file = call.text(option);
  const { scheme } = sourceOf(token);
  // Without a signature, the file is not read.
  const secret = file && (scheme === null ? '' : await readSecretFile(option, file, call));
  const problem = signingSecretProblem(token, secret);
  if (problem !== null) throw new UsageError(`--${option}: the signing secret ${problem}`);
  return secret;
}

/** Seals a signing secret. The service can open it only if it has the same WEBHOOK_SECRET. */
async function seal(
  secret: string,
  settings: WebhookSettings,
  database: Database,
  { note }: Terminal,
) {
  const keys = requireKeys(settings);
  const { unknown } = staleKeys(keys, await countByKey(database));
  if (unknown.length > 0)
    note(
      'Warning: signing secrets exist that are sealed under another WEBHOOK_SECRET than the one set here.',
    );
  return sealSecret(keys[0], secret);
}
