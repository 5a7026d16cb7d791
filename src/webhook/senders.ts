/** The tokens of senders: what an operator does with them over HTTP and on the inbox page. */
import { randomUUID } from 'node:crypto';
import { sealSecret, unsealServiceSecret } from '../platform/crypto/service-secret.ts';
import { randomToken, sha256 } from '../platform/crypto/token.ts';
import type { Database } from '../platform/db/pool.ts';
import { replaceToken, revokeToken } from '../platform/db/tokens.ts';
import { type ErrorCode, Failure } from '../platform/http/route/errors.ts';
import { invalidBody } from '../platform/http/route/json-body.ts';
import type { Infer } from '../platform/http/route/schema.ts';
import { DAY_SECONDS } from '../platform/runtime/duration.ts';
import { openTarget } from './dispatcher.ts';
import type { OperatorCall } from './guard.ts';
import { NO_TARGET, stateOf } from './inbox.ts';
import { SCHEMA } from './migrations.ts';
import type * as schemas from './schemas.ts';
import type { WebhookService } from './service.ts';
import { keyOf, type Scheme } from './signatures.ts';
import { orderProblem, sourceOf } from './order.ts';
import {
  changeSender,
  insertToken,
  listTokens,
  NO_TARGET_OF_ITS_OWN,
  setTarget,
  type Token,
} from './store/tokens.ts';
import { listFailing } from './store/delivery.ts';
import { acceptPending, findSecrets, fingerprint, rotateSecret } from './store/signing-secrets.ts';
import { describeTarget, NO_PLACE, NO_TOKEN, prepareTarget } from './target.ts';
import { UNKNOWN_KEY } from './verification.ts';
import { attemptOnce } from './worker.ts';

/** The active tokens of senders. */
export const listActive = async (database: Database) =>
  (await listTokens(database)).filter(({ role, revoked_at }) => role === 'sender' && !revoked_at);

/** With their targets. */
export async function listSenders(_call: unknown, { database }: WebhookService) {
  const tokens = await listActive(database);
  const failing = await listFailing(database);
  return {
    data: tokens.map((token) => {
      const { role: _role, revoked_at: _revoked, target: own, ...shown } = token;
      const described = own && describeTarget(own);
      const state = failing.find(({ target }) => target === described?.key);
      return {
        ...shown,
        target: described?.name ?? null,
        url: own && 'url' in own ? own.url : null,
        events: own?.events ? [...own.events] : null,
        timeout_seconds: own?.timeout_seconds ?? null,
        is_signed: own?.is_signed ?? false,
        ...stateOf(state),
      };
    }),
  };
}

/** @returns what is wrong with the signing secret of a token, or null */
export function signingSecretProblem(
  token: Pick<Token, 'source' | 'custom'>,
  secret: string | undefined,
) {
  const { source } = token;
  const { scheme, sendsSecret } = sourceOf(token);
  if (scheme === null)
    return secret === undefined ? null : `is not used: requests of source ${source} are not signed`;
  // Notion sends its secret later. Until then its events are rejected.
  if (secret === undefined) return sendsSecret ? null : `is needed for source ${source}`;
  const isOneLine = secret.length >= 8 && !/\p{Cc}/u.test(secret);
  if (isOneLine && secret !== secret.trim()) return 'has spaces around it; remove them';
  if (isOneLine && keyOf(scheme, secret)) return null;
  return `of source ${source} is one line of ${formOf(scheme)}, as the sender shows it`;
}

function formOf({ algorithm, publicPrefix, secretEncoding = 'text' }: Scheme) {
  if (algorithm === 'ed25519') return 'the public key of 32 bytes in hex or Base64';
  if (secretEncoding !== 'text') return `at least 8 characters in ${secretEncoding}`;
  if (publicPrefix === undefined) return 'at least 8 characters';
  return 'whsec_ and 24 to 64 bytes in Base64, or whpk_ and a public key';
}

/** @returns null without a secret */
function sealGiven(
  token: Pick<Token, 'source' | 'custom'>,
  secret: string | undefined,
  { signingKeys: [key] }: WebhookService,
) {
  const lacksKey = secret !== undefined && !key;
  const problem =
    signingSecretProblem(token, secret) ??
    (lacksKey ? 'needs WEBHOOK_SECRET, under which it is stored' : null);
  if (problem !== null) return invalidBody(problem, '/signing_secret');
  return secret !== undefined && key ? sealSecret(key, secret) : null;
}

/** Never the token of an operator: who may use the inbox must not make others who may. */
export async function createSender(
  { body, caller, request }: OperatorCall<unknown, Infer<typeof schemas.newSenderSchema>>,
  service: WebhookService,
) {
  const { name, source, signing_secret, order_by = null } = body;
  const about = { source, custom: null, order_by };
  const problem = orderProblem(about, order_by);
  if (problem !== null) return invalidBody(problem, '/order_by');
  const sealed = sealGiven(about, signing_secret, service);
  if (sealed instanceof Failure) return sealed;
  const id = randomUUID();
  const token = randomToken();
  const row = { id, name, role: 'sender', digest: sha256(token), ...about } as const;
  await insertToken(service.database, row, sealed);
  const { requestId: request_id } = request;
  service.log.warn('token created', { token_id: id, source, by: caller.id, request_id });
  return { data: { id, token } };
}

type SenderCall<Body> = OperatorCall<{ id: string }, Body>;

/**
 * What an operator does with an active token of a sender. The log names who did it.
 * @param act returns null if the token has ended meanwhile
 */
const ofSender =
  <Body, Data, Code extends ErrorCode = never>(
    action: string,
    act: (
      sender: Token,
      call: SenderCall<Body>,
      service: WebhookService,
    ) => Promise<Data | null | Failure<Code>>,
  ) =>
  async (call: SenderCall<Body>, service: WebhookService) => {
    const sender = (await listActive(service.database)).find(({ id }) => id === call.path.id);
    const data = sender ? await act(sender, call, service) : null;
    if (data === null) return new Failure('not_found', { message: NO_TOKEN });
    if (data instanceof Failure) return data;
    const { requestId: request_id } = call.request;
    const { id: by } = call.caller;
    service.log.warn('sender changed', { action, token_id: call.path.id, by, request_id });
    return { data };
  };

export const change = ofSender(
  'name or order changed',
  async (sender, { body }: SenderCall<Infer<typeof schemas.changeSchema>>, { database }) => {
    const problem = orderProblem(sender, body.order_by);
    if (problem !== null) return invalidBody(problem, '/order_by');
    const { id } = sender;
    return (await changeSender(database, id, body)) ? { id } : null;
  },
);

export const rotate = ofSender(
  'rotated',
  async (sender, { body }: SenderCall<Infer<typeof schemas.rotateSchema>>, service) => {
    const { id } = sender;
    const { database } = service;
    const { overlap_seconds: overlap, signing_secret } = body;
    if (signing_secret !== undefined) {
      const sealed = sealGiven(sender, signing_secret, service);
      if (sealed === null || sealed instanceof Failure) return sealed;
      return (await rotateSecret(database, id, overlap, sealed)) ? { id, token: null } : null;
    }
    const token = randomToken();
    const isReplaced = await replaceToken(database, SCHEMA.name, id, sha256(token), overlap);
    return isReplaced ? { id, token } : null;
  },
);

export const revoke = ofSender('revoked', async ({ id }, _call, { database }) => {
  await revokeToken(database, SCHEMA.name, id);
  return { id };
});

/** The secret that the sender sent: an operator compares it, or enters it at the sender. */
export const showPending = ofSender(
  'pending secret shown',
  async ({ id }, _call, { database, signingKeys }) => {
    const [pending] = await findSecrets(database, id, 'pending');
    if (!pending)
      return new Failure('not_found', { message: 'This sender has not sent a signing secret.' });
    const secret = unsealServiceSecret(signingKeys, pending);
    if (secret === null) return new Failure('key_unknown', { message: UNKNOWN_KEY });
    return { secret, fingerprint: fingerprint(secret) };
  },
);

export const confirm = ofSender(
  'secret confirmed',
  async (
    { id },
    { body }: SenderCall<Infer<typeof schemas.confirmSchema>>,
    { database, signingKeys: [key, ...earlier] },
  ) => {
    const isActive =
      key && (await acceptPending(database, id, [key, ...earlier], body.fingerprint, DAY_SECONDS));
    if (isActive) return { id };
    return new Failure('conflict', {
      message: 'No pending secret has this fingerprint: the sender may have sent another one.',
    });
  },
);

export const patchTarget = ofSender(
  'target set',
  async ({ id, target }, { body }: SenderCall<Infer<typeof schemas.targetSchema>>, service) => {
    if (!target && body.url === undefined) return invalidBody(NO_PLACE, '/url');
    const change = prepareTarget(body, service);
    if (change instanceof Failure) return change;
    const isSet = await setTarget(service.database, id, change);
    service.notifyWorker();
    return isSet ? { id } : null;
  },
);

export const removeTarget = ofSender('target removed', async ({ id }, _call, service) => {
  await setTarget(service.database, id, NO_TARGET_OF_ITS_OWN);
  service.notifyWorker();
  return { id };
});

/** Less than a request may take. */
const TEST_MS = 10_000;
const TEST_EVENT = 'gatehouse.test';

/** Sends an event that is not stored, once, and shows the answer. */
export const testTarget = ofSender('test event sent', async (sender, _call, service) => {
  const { id, source } = sender;
  const target = sender.target ?? service.commonTarget;
  if (!target) return new Failure('conflict', { message: NO_TARGET });
  const event = {
    id: randomUUID(),
    token_id: id,
    event: TEST_EVENT,
    source,
    delivery_id: null,
    headers: {},
    body: Buffer.from(JSON.stringify({ event: TEST_EVENT, data: { page_id: 'test' } })),
    received_at: sender.created_at, // any time: the event is not stored
    lease: '',
    attempt: 1,
  };
  const deliverer = await openTarget(sender.target ? id : null, target, service);
  const result = await attemptOnce(deliverer, event, TEST_MS, new AbortController().signal);
  await deliverer.close();
  const { error, duration_ms, answer_status = null, answer = null } = result;
  return { target: describeTarget(target).name, error, duration_ms, answer_status, answer };
});
