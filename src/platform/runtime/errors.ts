/** A dependency failed: the database is gone, or it rejected a statement. */
export class Unavailable extends Error {
  /** Whether waiting may help. It does not help against a wrong password or a missing table. */
  readonly isTemporary: boolean;
  /** @param message for an operator: never a query, a parameter or a foreign message */
  constructor(message: string, isTemporary = true) {
    super(message);
    this.isTemporary = isTemporary;
  }
}

/** A list took longer than its statement may. The database itself may be well. */
export class TooSlow extends Unavailable {}

/**
 * Work was rejected before it started, to protect the process. Always answered 503 with
 * `Retry-After`.
 */
export class Overloaded extends Error {}

/** Waiting does not help: the process prints the message and ends. */
export class StartupError extends Error {}

/** Any value but a `Failure`, which has `details`. */
export type Data =
  (object & { readonly details?: never }) | string | number | boolean | null | undefined | void;

/** The SQLSTATE, or the code of a system error. Never the message, which may quote a value. */
export function codeOf(error: unknown) {
  return error instanceof Error && 'code' in error && typeof error.code === 'string'
    ? error.code
    : 'unknown';
}

/**
 * What a log may say about anything thrown. A foreign message may quote a secret, so of any other
 * error only the kind and the stack frames are logged.
 */
export function describeError(error: unknown) {
  if (error instanceof Unavailable || error instanceof Overloaded) return { error: error.message };
  if (!(error instanceof Error)) return { error: typeof error };
  // The stack starts with the message, which may have several lines.
  const { name, message, stack = '' } = error;
  const afterMessage = stack.slice(stack.indexOf(message) + message.length);
  const frames = afterMessage.match(/(?<=^ {4})at .*$/gm) ?? [];
  return {
    error: name,
    stack: frames.slice(0, 6).join(' | '),
  };
}
