import { createHmac } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { memberAt } from './places.ts';
import type { ReceiveReply } from './reply.ts';

type Asked = Readonly<{
  headers: IncomingHttpHeaders;
  body: unknown;
  /** The signing secret with which the request was verified; null if it is not signed. */
  secret: string | null;
}>;

type Challenge = Readonly<{
  /** What the sender wants back. Undefined: the request is no challenge of this kind. */
  find: (asked: Asked) => unknown;
  answer: (found: string, secret: string) => ReceiveReply | string;
}>;

/** How senders check that an address expects them, from their documentation. */
const CHALLENGES: readonly Challenge[] = [
  // Twitch EventSub
  {
    find: ({ headers, body }) =>
      headers['twitch-eventsub-message-type'] === 'webhook_callback_verification'
        ? memberAt(body, '/challenge')
        : undefined,
    answer: (challenge) => challenge,
  },
  // Azure Event Grid, with its own schema
  {
    find: ({ headers, body }) =>
      headers['aeg-event-type'] === 'SubscriptionValidation'
        ? memberAt(body, '/0/data/validationCode')
        : undefined,
    answer: (validationResponse) => ({ validationResponse }),
  },
  // Okta, by GET
  {
    find: ({ headers }) => headers['x-okta-verification-challenge'],
    answer: (verification) => ({ verification }),
  },
  // Smartsheet
  {
    find: ({ headers }) => headers['smartsheet-hook-challenge'],
    answer: (smartsheetHookResponse) => ({ smartsheetHookResponse }),
  },
  // Zoom. What is signed for it must not pass for a request, which begins with "v0:".
  {
    find: ({ body, secret }) => {
      const isAsked = secret !== null && memberAt(body, '/event') === 'endpoint.url_validation';
      const token = memberAt(body, '/payload/plainToken');
      return isAsked && /^[\w-]+$/.test(String(token)) ? token : undefined;
    },
    answer: (plainToken, secret) => ({
      plainToken,
      encryptedToken: createHmac('sha256', secret).update(plainToken).digest('hex'),
    }),
  },
  // Feishu, Lark, and others with the form of Slack
  {
    find: ({ body }) =>
      memberAt(body, '/type') === 'url_verification' ? memberAt(body, '/challenge') : undefined,
    answer: (challenge) => ({ challenge }),
  },
  // monday.com
  {
    find: ({ body }) =>
      Object.keys(Object(body)).length === 1 ? memberAt(body, '/challenge') : undefined,
    answer: (challenge) => ({ challenge }),
  },
];

/** A short text that no program takes for a page or a script (CWE-79). */
const isHarmless = (found: unknown) =>
  typeof found === 'string' && /^[\w .:,;=+/~-]{1,1024}$/.test(found) ? found : null;

/** @returns null if the request is an event */
export function answerChallenge(
  headers: IncomingHttpHeaders,
  body: unknown,
  secret: string | null,
) {
  for (const { find, answer } of CHALLENGES) {
    const found = isHarmless(find({ headers, body, secret }));
    if (found !== null) return answer(found, secret ?? '');
  }
  return null;
}

/**
 * @returns the value of the first of these parameters, which is the reply; null if there is none
 */
export function echoOf(query: URLSearchParams, names: readonly string[] = []) {
  const name = names.find((one) => query.has(one));
  return name === undefined ? null : isHarmless(query.get(name));
}
