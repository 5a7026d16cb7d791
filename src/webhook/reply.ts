import { type Infer, object, oneOf, optional, text, uuid } from '../platform/http/route/schema.ts';

/** What each variant may answer to an event, besides the errors of its guard and its storage. */
export const inputErrors = ['unauthorized', 'invalid_body', 'invalid_header'] as const;

const echo = (description: string) => optional(text({ description }));
/** The reply to an event, or to a sender's handshake. */
export const replySchema = object({
  id: optional(uuid()),
  status: optional(oneOf('accepted', 'duplicate', 'pong', 'pending')),
  challenge: echo("The reply to a sender's handshake"),
  validationResponse: echo('The same, for Azure Event Grid'),
  verification: echo('The same, for Okta'),
  smartsheetHookResponse: echo('The same, for Smartsheet'),
  plainToken: echo('The same, for Zoom'),
  encryptedToken: echo('Its signature, for Zoom'),
});
export type ReceiveReply = Partial<Infer<typeof replySchema>>;
/** Nothing was stored, and nothing was wrong. */
export const PONG: ReceiveReply = { status: 'pong' };
