import { randomUUID } from 'node:crypto';
import type { Writable } from 'node:stream';
import { sha256, equalDigests } from '../platform/crypto/token.ts';
import { type BodyRule, json, type JsonLimits } from '../platform/http/route/json-body.ts';
import { bindRoutes, type Call, type Guard, route } from '../platform/http/route/route.ts';
import { Failure } from '../platform/http/route/errors.ts';
import { createCredentialCheck } from '../platform/http/credentials/guess-limit.ts';
import { withBuiltIns } from '../platform/http/site/built-in-routes.ts';
import type { ServiceContext } from '../platform/runtime/context.ts';
import { Overloaded, Unavailable } from '../platform/runtime/errors.ts';
import { escapeUnsafe } from '../platform/runtime/text.ts';
import { EVENT_LIMITS, withoutMark } from './body.ts';
import { readDeliveryId } from './content.ts';
import { bearerOrQuery, TOKEN_NEEDED } from './guard.ts';
import { check, FACTS, webhook } from './routes.ts';
import type { WebhookSettings } from './settings.ts';
import { inputErrors, PONG, type ReceiveReply } from './reply.ts';
import { genericSchema, SOURCES } from './sources.ts';

type PlainService = ReturnType<typeof createPlain>;

/** The plain variant: no database. Each event becomes one JSON line on standard output. */
export const startPlain = (settings: WebhookSettings, context: ServiceContext) => ({
  routes: bindRoutes(createPlainRoutes(settings.token !== null), createPlain(settings, context)),
});

/** @param isGuarded whether requests carry a token, so that it does not matter who sends them */
export const createPlainRoutes = (isGuarded = false) =>
  withBuiltIns(
    [
      route({
        ...webhook,
        summary: 'Accept an event; the reply is sent once it is printed',
        guard: plainToken,
        anySite: isGuarded,
        body: plainBody,
        // The operator may ask senders for no token.
        maxBodyBytes: (_caller, { MAX_BODY_BYTES }) => MAX_BODY_BYTES,
        errors: [...inputErrors, 'unavailable'],
        handle: receivePlain,
      }),
      route({
        ...check,
        guard: plainToken,
        handle: async () => ({ data: PONG }),
      }),
    ],
    FACTS,
    new URL('openapi/plain.json', import.meta.url),
  );

const createPlain = ({ token, appName }: WebhookSettings, context: ServiceContext) => ({
  ...context,
  appName,
  /** Null: no token is required. */
  tokenDigest: token === null ? null : sha256(token),
  ...createCredentialCheck(),
  readiness: async () => null,
});

const plainToken: Guard<PlainService, true | null> = {
  security: ['token', 'bearer'],
  errors: ['unauthorized', 'too_many_requests'],
  isAnonymous: (caller) => caller === null,
  async check(request, { tokenDigest, checkCredential }) {
    if (tokenDigest === null) return null;
    const token = bearerOrQuery(request);
    if (token === null) return new Failure('unauthorized', { message: TOKEN_NEEDED.sender });
    const sent = sha256(token);
    return checkCredential(request.network, {
      kind: 'token',
      key: sent.toString('hex'),
      message: TOKEN_NEEDED.sender,
      find: async () => (equalDigests(sent, tokenDigest) ? true : null),
    });
  },
};

/** How much may wait if the reader of standard output has stopped. Beyond this, senders get 503. */
const MAX_UNPRINTED_BYTES = 8 * 1024 * 1024;

function print(stdout: Writable, line: string) {
  if (stdout.writableLength > MAX_UNPRINTED_BYTES)
    throw new Overloaded('standard output is not being read');
  return new Promise<void>((resolve, reject) => {
    stdout.write(line, (error) => {
      if (error) reject(new Unavailable('standard output is closed', false));
      else resolve();
    });
  });
}

const generic = (limits: JsonLimits) => json(genericSchema, 'required', limits);
const fromSender = generic(EVENT_LIMITS);
/** Without a token: what a body of 64 KiB can have. */
const fromAnyone = generic({ parts: 65_536, depth: 512 });
const plainBody: BodyRule<Buffer> = { ...fromSender, parse: (raw) => raw };

/** Prints a valid generic event. The reply is sent once the line has left the process. */
async function receivePlain(
  { caller, request, body }: Call<true | null, unknown, unknown, Buffer>,
  { appName, stdout }: PlainService,
) {
  const invalid = (caller === null ? fromAnyone : fromSender).parse(withoutMark(body));
  if (invalid instanceof Failure) return invalid;
  const { headers, requestId } = request;
  const deliveryId = readDeliveryId(SOURCES.generic, headers, {});
  if (deliveryId instanceof Failure) return deliveryId;
  const id = randomUUID();
  const eventMembers = {
    time: new Date().toISOString(),
    app: appName,
    message: 'event',
    id,
    request_id: requestId,
    delivery_id: deliveryId,
  };
  // The sender's own text: parsing and printing it again would change long numbers. It is valid
  // JSON, so a line break or a tab can only be between two tokens.
  const text = escapeUnsafe(
    withoutMark(body)
      .toString('utf8')
      .replace(/[\r\n\t]+/g, ' '),
  );
  await print(stdout, `${JSON.stringify(eventMembers).slice(0, -1)},"body":${text}}\n`);
  const data: ReceiveReply = { id, status: 'accepted' };
  return { data };
}
