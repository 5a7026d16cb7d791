import {
  type ErrorCode,
  ERRORS,
  Failure,
  type TextReply,
} from '../../platform/http/route/errors.ts';
import type { Call } from '../../platform/http/route/route.ts';
import { HTML } from '../../platform/http/site/html.ts';
import type { PortalService } from '../service.ts';
import type { Keys } from './keys.ts';

/** What the handlers of OpenID Connect work with, and what they answer. */

export type OidcService = PortalService &
  Readonly<{ keys: Keys; countOidc: (labels: readonly [OidcEvent]) => void }>;
type OidcEvent = 'code' | 'token' | 'refresh' | 'refused';

/** The form of a program. */
export type FormCall = Call<null, unknown, unknown, URLSearchParams>;

/** A reply in JSON without the envelope of the other routes. */
export const jsonReply = (data: object, headers: TextReply['headers'] = {}): TextReply => ({
  text: JSON.stringify(data),
  contentType: 'application/json; charset=utf-8',
  headers,
});

/** The code of the program may be in the address. */
export const redirect = (address: string): TextReply => ({
  text: '',
  contentType: HTML,
  headers: { Location: address, 'Referrer-Policy': 'no-referrer' },
});

/** A mistake of a program, in the form of RFC 6749, 5.2. */
export const oauthFailure = (error_description: string, error = 'invalid_request') =>
  new Failure('invalid_request', { page: jsonReply({ error, error_description }) });

/** Others are `invalid_request`. */
const OAUTH_CODES: Partial<Record<ErrorCode, string>> = {
  unauthorized: 'invalid_client',
  too_many_requests: 'temporarily_unavailable',
  key_unknown: 'temporarily_unavailable',
  overloaded: 'temporarily_unavailable',
  service_failed: 'server_error',
  internal: 'server_error',
};

/** Any other failure, in the same form. */
export const oauthPage = ({ code, details }: Failure) =>
  jsonReply({
    error: OAUTH_CODES[code] ?? 'invalid_request',
    error_description: details.message ?? ERRORS[code][1],
  });
