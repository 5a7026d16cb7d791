/** What operators send, and what they get. */
import {
  boolean,
  dateTime,
  type Infer,
  integer,
  list,
  nullable,
  object,
  oneLine,
  oneOf,
  optional,
  scalar,
  text,
  timestamp,
  uuid,
  type Values,
  withDefault,
  withoutNul,
} from '../platform/http/route/schema.ts';
import { DAY_SECONDS } from '../platform/runtime/duration.ts';
import { STATUSES } from './model.ts';
import {
  COMMAND_FORM,
  FORWARD_SECRET,
  FORWARD_URL,
  isForwardUrl,
  parseCommand,
} from './settings.ts';
import { standardKey } from './signatures.ts';
import { ORDER_FORM, parseOrder } from './order.ts';
import { SOURCE_NAMES } from './sources.ts';

const wholeNumber = integer({ min: 0, max: Number.MAX_SAFE_INTEGER });
const textOf = (description: string) => text({ description });
const textOrNull = nullable(text());
const nullableText = (description: string) => nullable(textOf(description));
/** An event without its body. `token` is the name of the sender's token. */
export const summarySchema = object({
  id: uuid(),
  event: text(),
  source: text(),
  delivery_id: textOrNull,
  token: textOrNull,
  received_at: dateTime(),
  status: oneOf(...STATUSES),
  attempts: integer({ min: 0, max: 1e9, description: 'Since the last redelivery' }),
  total_attempts: wholeNumber,
  last_error: nullableText('Null once the event is delivered'),
  next_attempt_at: nullable(dateTime('Null while the event is being delivered, too')),
});
export type EventSummary = Infer<typeof summarySchema>;

const name = (description: string) =>
  optional(
    text({
      min: 1,
      max: 1_024,
      pattern: withoutNul,
      description,
    }),
  );
/** What a list of events can select. */
export const filterMembers = {
  status: optional(oneOf(...STATUSES)),
  event: name('The event name; * stands for any characters'),
  source: name("The source of the event's token"),
  text: name('A text in the body, as it was sent'),
  delivery_id: name("The sender's id of the delivery"),
  since: optional(timestamp('Only events received at this time or later')),
  until: optional(timestamp('Only events received at this time or earlier')),
};
/** `after` is the last id of the previous page. */
export type EventFilter = Partial<Values<typeof filterMembers> & { after: string | undefined }>;

/**
 * An attempt that has ended. `run` is 1, and one more for each redelivery; `error` is null for a
 * success.
 */
export const attemptSchema = object({
  run: wholeNumber,
  attempt: wholeNumber,
  ended_at: dateTime(),
  duration_ms: nullable(wholeNumber),
  error: textOrNull,
  answer_status: nullable(integer({ min: 0, max: 999 })),
  answer: textOrNull,
  target: nullableText('Kind and origin, program or module'),
});
export type Attempt = Infer<typeof attemptSchema>;

export const bulkSchema = object(
  {
    ids: optional(list(uuid())),
    filter: optional(object(filterMembers, 'rejected')),
    after: optional(uuid('With "filter": the "next" of the last reply')),
    dry_run: withDefault(boolean(), false),
  },
  'rejected',
);

export const detailsSchema = object({
  event: summarySchema,
  token_id: uuid(),
  ip: textOrNull,
  headers: object({}),
  body: textOf('As received'),
  attempts: list(attemptSchema),
});
export const redeliverySchema = object({ id: uuid(), status: oneOf('waiting') });

export const bulkReplySchema = object({
  matched: wholeNumber,
  redelivered: wholeNumber,
  next: nullable(uuid('The "after" of the next request; null if this was the last')),
});

export const deliverySchema = object({
  target: nullableText('Kind and origin, program or module; null without a target'),
  own_targets: integer({ min: 0, max: 1e9, description: 'Tokens with a target of their own' }),
  schedule: list(textOf('A pause before another attempt, as 30s or 2h')),
  paused_at: nullable(dateTime()),
  paused_by: textOrNull,
  failures: wholeNumber,
  failing_since: nullable(dateTime()),
  next_probe_at: nullable(dateTime('Set if the target fails, so that it is only probed')),
  user: nullableText('Who asks, without a token'),
});

export const visitorSchema = object({
  user: nullableText('Who is signed in'),
  problem: nullableText('Why this user may not use the inbox'),
  sign_in: nullableText('The address of the sign-in page'),
});

const bars = list(object({ from: dateTime(), received: wholeNumber, dead: wholeNumber }));
export const countsSchema = object({
  counts: object({
    stored: wholeNumber,
    waiting: wholeNumber,
    done: wholeNumber,
    dead: wholeNumber,
    skipped: wholeNumber,
  }),
  minutes: bars,
  hours: bars,
});

export const refusedSchema = object({
  token_id: nullable(uuid('Null for unknown tokens')),
  name: nullableText('Of the token'),
  reason: textOf('An error code'),
  count: integer({ min: 1, max: Number.MAX_SAFE_INTEGER }),
  last_at: dateTime(),
  detail: textOf('What the last one was told'),
  address: textOf('Of the client that sent the last one'),
});

export type Refused = Infer<typeof refusedSchema>;

/** A member that is left out keeps its value, and null removes it (RFC 7396). */
const commonMembers = {
  events: optional(nullable(list(text({ min: 1, max: 1_024, pattern: withoutNul })))),
  timeout_seconds: optional(nullable(integer({ min: 1, max: 3_600 }))),
  keep_signature: optional(boolean()),
};
const checkUrl = (url: string) => (isForwardUrl(url) ? null : `must be ${FORWARD_URL}`);
const checkSecret = (secret: string) =>
  standardKey(secret) ? null : `must have ${FORWARD_SECRET}`;

export const targetSchema = object(
  {
    url: optional(
      text({
        max: 2_048,
        check: checkUrl,
        description: `Gets the events by POST: ${FORWARD_URL}`,
      }),
    ),
    secret: optional(
      nullable(text({ check: checkSecret, description: `Signs the requests: ${FORWARD_SECRET}` })),
    ),
    ...commonMembers,
  },
  'rejected',
);
/** Only the command line sets a program: an HTTP operator must not run one on the server. */
export const programSchema = object(
  {
    command: scalar({}, `must be ${COMMAND_FORM}`, (input) =>
      typeof input === 'string' ? parseCommand(input) : undefined,
    ),
    ...commonMembers,
  },
  'rejected',
);
export type TargetInput = Partial<
  Infer<typeof targetSchema> & Pick<Infer<typeof programSchema>, 'command'>
>;

const tokenName = text({ min: 1, max: 255, pattern: oneLine });
const signingSecret = textOf("The sender's, in the form that its source needs");
const order = scalar(
  { type: 'string', description: `By what its events are delivered in order: ${ORDER_FORM}` },
  `must be ${ORDER_FORM}`,
  (input) => (typeof input === 'string' ? parseOrder(input) : undefined),
);
/** Without an order, or with null: as WEBHOOK_ORDER says. */
export const changeSchema = object(
  { name: optional(tokenName), order_by: optional(nullable(order)) },
  'rejected',
);
export const newSenderSchema = object(
  {
    name: tokenName,
    // The command line describes a custom source.
    source: oneOf(...SOURCE_NAMES.filter((name) => name !== 'custom')),
    signing_secret: optional(signingSecret),
    order_by: optional(order),
  },
  'rejected',
);
export const rotateSchema = object(
  {
    overlap_seconds: withDefault(
      integer({ min: 0, max: 366 * DAY_SECONDS, description: 'The old one stays valid for it' }),
      DAY_SECONDS,
    ),
    signing_secret: optional(signingSecret),
  },
  'rejected',
);
export const newTokenSchema = object({
  id: uuid(),
  token: nullableText('Shown only once; null if the signing secret was replaced'),
});
export const pendingSchema = object({ secret: text(), fingerprint: text() });
export const confirmSchema = object({ fingerprint: text({ max: 64 }) }, 'rejected');
export const testReplySchema = object({
  target: text(),
  error: nullableText('Null for a success'),
  duration_ms: wholeNumber,
  answer_status: nullable(integer({ min: 0, max: 999 })),
  answer: nullableText('The first 1,024 bytes'),
});

export const senderSchema = object({
  id: uuid(),
  name: text(),
  source: text(),
  custom: nullable(object({})),
  pending: boolean(),
  created_at: dateTime(),
  target: nullableText('Kind and origin or program; null: that of the process'),
  url: textOrNull,
  events: nullable(list(text())),
  timeout_seconds: nullable(wholeNumber),
  is_signed: boolean(),
  keep_signature: boolean(),
  order_by: textOrNull,
  failures: wholeNumber,
  next_probe_at: nullable(dateTime('Set if the target fails, so that it is only probed')),
  last_used_at: nullable(dateTime()),
  refused: wholeNumber,
  last_refusal: nullableText('An error code, of the last seven days'),
  last_refusal_detail: textOrNull,
  last_refused_from: nullableText('The address of the client'),
  last_refused_at: nullable(dateTime()),
  last_handshake: nullableText('A check of the address that was answered, of the last seven days'),
  last_handshake_at: nullable(dateTime()),
});
