/**
 * Every answer that is not a success: code, status, and what to do when the place that found it says nothing better.
 * The one table; no other file names an error status.
 */
export const ERRORS = {
  invalid_request: { status: 400, message: 'The request is not valid HTTP/1.1. Send it again with a well-formed request line and headers.' },
  invalid_target: { status: 400, message: 'The request target must be a path that begins with exactly one "/" and is correctly percent-encoded.' },
  invalid_path: { status: 400, message: 'Correct the path as told in "fields".' },
  invalid_query: { status: 400, message: 'Correct the query parameters as told in "fields".' },
  invalid_header: { status: 400, message: 'Correct the header as told in "fields".' },
  invalid_body: { status: 400, message: 'Correct the request body as told in "fields".' },
  invalid_session_token: { status: 400, message: 'The session token is malformed or unknown. Send the token that login returned, Base64 encoded.' },
  unauthorized: { status: 401, message: 'Send a valid credential as "Authorization: Bearer …".' },
  invalid_credentials: { status: 401, message: 'The username or the password is wrong, or the account may not log in.' },
  invalid_session: { status: 401, message: 'The session is unknown or has ended. Log in again.' },
  forbidden: { status: 403, message: 'You may not do this. Ask a super administrator.' },
  passphrase_needed: { status: 403, message: 'This secret is locked with a passphrase. Nothing was used up. Send the passphrase as well.' },
  wrong_passphrase: { status: 403, message: 'The passphrase is wrong. Nothing was used up. Check it for typing mistakes and try again.' },
  no_such_path: { status: 404, message: 'There is nothing at this path. See /openapi.json for what there is.' },
  not_found: { status: 404, message: 'There is no such record.' },
  method_not_allowed: { status: 405, message: 'This path does not answer this method. The Allow header names those it does.' },
  request_timeout: { status: 408, message: 'The request did not arrive in time. Send it again, faster.' },
  conflict: { status: 409, message: 'This would clash with what is already there. Change what is told in "fields".' },
  body_too_large: { status: 413, message: 'The request body is too large. Send less, or have the operator raise MAX_BODY_BYTES.' },
  unsupported_media_type: { status: 415, message: 'Send the body as uncompressed JSON.' },
  too_many_requests: { status: 429, message: 'Too many attempts have failed. Wait as long as Retry-After says, then try again.' },
  headers_too_large: { status: 431, message: 'The request headers are too large. Send less than 16 KiB.' },
  internal: { status: 500, message: 'A fault in the service. Report the request id to its operator.' },
  service_failed: { status: 500, message: 'The service could not reach or use its database. Nothing was changed by halves. Try again shortly.' },
  secret_damaged: { status: 500, message: 'The stored secret has been altered and cannot be opened. Nothing was used up. Tell the operator.' },
  unavailable: { status: 503, message: 'The service could not reach or use its database. Try again shortly.' },
  overloaded: { status: 503, message: 'The service is busy. Nothing was done. Try again shortly.' },
  key_unknown: { status: 503, message: 'The server does not have the key that this secret was sealed under. Nothing was used up. Tell the operator.' },
} as const satisfies Record<string, { status: number; message: string }>;

export type ErrorCode = keyof typeof ERRORS;

/** What is wrong with one field: a JSON pointer into the body, or the name of a parameter or header. */
export interface FieldError {
  readonly path: string;
  readonly message: string;
}

export interface FailureDetails {
  /** Says what to do; never a secret, a query text or a stack. */
  readonly message?: string;
  readonly fields?: readonly FieldError[];
  readonly retryAfterSeconds?: number;
  readonly headers?: Readonly<Record<string, string>>;
}

/** The caller's fault, as a value that is returned and never thrown: inside a transaction a returned value would commit. */
export class Failure<Code extends ErrorCode = ErrorCode> {
  readonly code: Code;
  readonly details: FailureDetails;
  constructor(code: Code, details: FailureDetails = {}) {
    this.code = code;
    this.details = details;
  }
}
