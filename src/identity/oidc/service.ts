import type { TextReply } from '../../platform/http/route/errors.ts';
import type { PortalService } from '../service.ts';
import type { Keys } from './keys.ts';

/** What the handlers of OpenID Connect work with. */
export type OidcService = PortalService &
  Readonly<{ keys: Keys; countOidc: (labels: readonly [OidcEvent]) => void }>;
type OidcEvent = 'code' | 'token' | 'refresh' | 'refused';

/** A reply in JSON without the envelope of the other routes. */
export const jsonReply = (data: object, headers: TextReply['headers'] = {}): TextReply => ({
  text: JSON.stringify(data),
  contentType: 'application/json; charset=utf-8',
  headers,
});

/** The body of an error (RFC 6749, 5.2). */
export const oauthBody = (error: string, error_description: string) =>
  jsonReply({ error, error_description });
