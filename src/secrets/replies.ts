/** What replies say of secrets and requests. */
import {
  boolean,
  dateTime,
  type Infer,
  integer,
  nullable,
  object,
  oneOf,
  text,
  uuid,
} from '../platform/http/route/schema.ts';

export const count = integer({ min: 0, max: Number.MAX_SAFE_INTEGER });

const state = {
  status: oneOf('stored', 'read', 'expired', 'deleted'),
  reads: count,
  max_reads: nullable(count),
  expires_at: nullable(dateTime()),
};

const receipt = {
  id: uuid(),
  ...state,
  // The last two: of a request for a secret, which has no answer.
  status: oneOf('stored', 'read', 'expired', 'deleted', 'requested', 'withdrawn'),
  created_at: dateTime(),
  last_read_at: nullable(dateTime()),
  failed_reads: count,
};
export const receiptSchema = object(receipt);
export type Receipt = Infer<typeof receiptSchema>;

/** In the list of a user's own links. */
export const ownLinkSchema = object({
  ...receipt,
  title: nullable(text({ description: 'What was asked for, if it is a request' })),
});
export type OwnLink = Infer<typeof ownLinkSchema>;

/** What the holder of a link may know, even after the end of the secret. */
export const linkSchema = object({
  ...state,
  passphrase: boolean(),
  ended_at: nullable(dateTime()),
});
export type LinkState = Infer<typeof linkSchema>;

export const kindSchema = oneOf('text', 'file');

/** What both parties of a request may know. */
export const requestSchema = object({
  status: oneOf('open', 'answered', 'expired', 'withdrawn'),
  kind: kindSchema,
  title: text(),
  asker: nullable(text({ description: 'The user who asks, if one has signed in' })),
  public_key: text(),
  answer_key: nullable(text({ description: 'The public key of the answer' })),
  max_bytes: count,
  expires_at: dateTime('Of the request, or of its answer'),
});
export type RequestState = Infer<typeof requestSchema>;
