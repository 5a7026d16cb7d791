import { randomUUID } from 'node:crypto';
import type { Writable } from 'node:stream';
import { digest, sameDigest } from '../crypto/token.ts';
import { type BodyRule, json } from '../http/body.ts';
import { bindRoutes, type Call, type Guard, type Reply, route } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import { createGuessLimit } from '../http/guesses.ts';
import { withBuiltIns } from '../http/probes.ts';
import type { ServiceContext } from '../runtime/context.ts';
import { Overloaded, Unavailable } from '../runtime/errors.ts';
import { bearerOrQuery, refused, SEND_A_TOKEN } from './guard.ts';
import { facts, inputErrors, webhook } from './routes.ts';
import type { WebhookSettings } from './settings.ts';
import { genericShape, readDeliveryId, type ReceiveReply, SOURCES } from './sources.ts';

type PlainService = ReturnType<typeof createPlain>;

/** The plain variant: no database. Each event becomes one JSON line on standard output. */
export const startPlain = (settings: WebhookSettings, context: ServiceContext) => ({
  routes: bindRoutes(createPlainRoutes(), createPlain(settings, context)),
  storage: null,
  firstRun: async () => {},
  jobs: [],
});

export const createPlainRoutes = () =>
  withBuiltIns(
    [
      route({
        ...webhook,
        summary: 'Accept an event; the reply is sent once it is printed',
        guard: plainToken,
        body: plainBody,
        errors: [...inputErrors, 'unavailable'],
        handle: receivePlain,
      }),
    ],
    facts,
    'unavailable',
  );

function createPlain(
  { token, appName }: WebhookSettings,
  { stdout, isServing, site }: ServiceContext,
) {
  /** Null: no token is required. */
  const tokenDigest = token === null ? null : digest(token);
  const limitGuesses = createGuessLimit();
  return {
    tokenDigest,
    appName,
    stdout,
    limitGuesses,
    isServing,
    site,
    readiness: async () => null,
  };
}

const plainToken: Guard<PlainService, null> = {
  security: ['token', 'bearer'],
  errors: ['unauthorized', 'too_many_requests'],
  async check(request, { tokenDigest, limitGuesses }) {
    if (tokenDigest === null) return null;
    const token = bearerOrQuery(request);
    const sent = digest(token ?? '');
    const compare = async () => (sameDigest(sent, tokenDigest) ? true : null);
    const isValid =
      token === null ? null : await limitGuesses(request.network, sent.toString('hex'), compare);
    if (isValid instanceof Failure) return isValid;
    return isValid ? null : refused(token, SEND_A_TOKEN);
  },
};

/** How much may wait if the reader of standard output has stopped. Beyond this, senders get 503. */
const MAX_UNPRINTED_BYTES = 8 * 1024 * 1024;

function print(stdout: Writable, line: string): Promise<void> {
  return new Promise((resolve, reject) => {
    if (stdout.writableLength > MAX_UNPRINTED_BYTES)
      return reject(new Overloaded('standard output is not being read'));
    stdout.write(line, (error) =>
      error ? reject(new Unavailable('standard output is closed', false)) : resolve(),
    );
  });
}

const generic = json(genericShape, 'required');
/** Checks a generic event and keeps its bytes. */
const plainBody: BodyRule<Buffer> = {
  ...generic,
  parse(raw) {
    const parsed = generic.parse(raw);
    return parsed.ok ? { ok: true, value: raw } : parsed;
  },
};

/** Prints a valid generic event. The reply is sent once the line has left the process. */
async function receivePlain(
  { request, body }: Call<null, unknown, unknown, Buffer>,
  { appName, stdout }: PlainService,
): Promise<Reply<ReceiveReply> | Failure<'invalid_header' | 'invalid_body'>> {
  const { headers, requestId } = request;
  const deliveryId = readDeliveryId(SOURCES.generic, headers, {});
  if (deliveryId instanceof Failure) return deliveryId;
  const [id, time] = [randomUUID(), new Date().toISOString()];
  const facts = {
    time,
    app: appName,
    message: 'event',
    id,
    request_id: requestId,
    delivery_id: deliveryId,
  };
  // The sender's own text: parsing and printing it again would change long numbers. It is valid JSON, so a line break
  // can only be between two tokens.
  const text = body.toString('utf8').replace(/[\r\n]+/g, ' ');
  await print(stdout, `${JSON.stringify(facts).slice(0, -1)},"body":${text}}\n`);
  return { data: { id, status: 'accepted' } };
}
