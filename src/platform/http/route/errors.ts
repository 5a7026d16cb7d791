/**
 * Every error reply: its code, its status, and the message used when the code that fails gives no
 * better one. No other file names an error status.
 */
export const ERRORS = {
  signin_needed: [303, 'Sign in at the address in the Location header.'],
  invalid_request: [400, 'The request is not valid HTTP/1.1. Check the request line and headers.'],
  invalid_target: [400, 'The target must be a percent-encoded path that starts with a single "/".'],
  invalid_path: [400, 'The path is invalid; see "fields".'],
  invalid_query: [400, 'The query is invalid; see "fields".'],
  invalid_header: [400, 'A header is invalid; see "fields".'],
  invalid_body: [400, 'The request body is invalid; see "fields".'],
  invalid_session_token: [
    400,
    'The session token is malformed or unknown. Send it Base64-encoded.',
  ],
  unauthorized: [401, 'Send a valid credential as "Authorization: Bearer …".'],
  invalid_credentials: [401, 'The username or password is wrong, or the account cannot sign in.'],
  invalid_session: [401, 'The session is unknown or has ended. Log in again.'],
  second_factor_needed: [
    401,
    'A second factor is required. Send its code as "otp" with the username and password.',
  ],
  invalid_code: [401, 'The code is wrong, too old, or was used before. Enter a new one.'],
  invalid_passkey: [401, 'The passkey was not accepted. Try again, or sign in another way.'],
  signin_too_old: [
    401,
    'Sign in again, with your second factor if you have one. The last sign-in is too old for this.',
  ],
  forbidden: [403, 'You do not have permission to do this. Ask a super administrator.'],
  cross_site: [403, 'A page of another site sent this request. Send it from a page of this host.'],
  passphrase_needed: [403, 'This secret needs its passphrase as well. No read was used.'],
  wrong_passphrase: [403, 'The passphrase is wrong. No read was used. Check it and try again.'],
  no_such_path: [404, 'This path does not exist. See /openapi.json for the paths that do.'],
  not_found: [404, 'The record does not exist.'],
  method_not_allowed: [405, 'This path does not support the method. See the Allow header.'],
  request_timeout: [408, 'The request took too long to arrive. Send it again.'],
  conflict: [409, 'The request conflicts with existing data; see "fields".'],
  body_too_large: [413, 'The request body is too large. Send less, or have MAX_BODY_BYTES raised.'],
  unsupported_media_type: [415, 'Send the body as uncompressed JSON.'],
  too_many_requests: [429, 'Too many requests. Wait for the time in Retry-After, then try again.'],
  headers_too_large: [431, 'The request headers are too large. Send less than 16 KiB.'],
  internal: [500, 'Internal error. Report the request id to the operator.'],
  service_failed: [500, 'The database is unavailable. No partial change was made. Try again soon.'],
  secret_damaged: [
    500,
    'The stored secret or request was altered. No read was used. Contact the operator.',
  ],
  unavailable: [503, 'The database or the sign-in service is unavailable. Try again soon.'],
  too_slow: [503, 'The list took too long. Narrow it, ask for a shorter page, or try again later.'],
  overloaded: [503, 'The service is overloaded. The request was not processed. Try again soon.'],
  key_unknown: [503, 'The key of this secret is missing. No read was used. Contact the operator.'],
} as const satisfies Record<string, readonly [status: number, message: string]>;

export type ErrorCode = keyof typeof ERRORS;

/**
 * What is wrong with one field: a JSON pointer into the body, or the name of a parameter or header.
 */
export interface FieldError {
  readonly path: string;
  readonly message: string;
}

/** A text for a person. `Set-Cookie` may have several values. */
export interface TextReply<Text = string> {
  readonly text: Text;
  readonly contentType: string;
  readonly headers?: Readonly<Record<string, string | readonly string[]>>;
  /** Further ids for the line of the request in the log. */
  readonly ids?: CallerIds;
}
export type CallerIds = Readonly<Record<string, string | undefined>>;

interface FailureDetails {
  /** Replaces the message of the table. Never contains a secret, a query or a stack trace. */
  readonly message?: string;
  readonly fields?: readonly FieldError[];
  readonly retryAfterSeconds?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly page?: TextReply; // shown to a person in place of the JSON
  /** The kind of a credential that was refused: counted and logged as an event (ASVS 16.3.1). */
  readonly credential?: string;
}

/**
 * An error reply as a value: returned, never thrown. The type of a transaction refuses one, because
 * it would commit.
 */
export class Failure<Code extends ErrorCode = ErrorCode> {
  readonly code: Code;
  readonly details: FailureDetails;
  constructor(code: Code, details: FailureDetails = {}) {
    this.code = code;
    this.details = details;
  }
}

/** For a page: shows a failure to a person, as HTML. */
export type FailurePage = (failure: Failure) => TextReply;
