/** A dependency did not do its part: database gone, statement refused. */
export class Unavailable extends Error {
  override readonly name = 'Unavailable';
  /** Whether waiting may help, as opposed to a wrong password or a missing table. */
  readonly isTemporary: boolean;
  /** @param message for an operator: never a query, a parameter or a foreign message */
  constructor(message: string, mayPass: boolean) {
    super(message);
    this.isTemporary = mayPass;
  }
}

/** Work refused before it starts, to protect the process. Always answered 503 with `Retry-After`. */
export class Overloaded extends Error {
  override readonly name = 'Overloaded';
}

/** Something that waiting does not mend: the process says this sentence and ends. */
export class StartupError extends Error {
  override readonly name = 'StartupError';
}

/**
 * What a log may say of anything thrown. Only our own two kinds have messages that are known to hold no secret; of
 * everything else the kind and the place are told, because a foreign message may quote what was being worked on.
 */
export function describeError(error: unknown): { readonly error: string; readonly stack?: string } {
  if (error instanceof Unavailable || error instanceof Overloaded) return { error: error.message };
  if (!(error instanceof Error)) return { error: typeof error };
  // The stack begins with the message, which may have lines of its own.
  const { stack = '', message } = error;
  const places = stack.slice(stack.indexOf(message) + message.length).split('\n').filter((line) => line.startsWith('    at '));
  return { error: error.name, stack: places.slice(0, 6).map((line) => line.trim()).join(' | ') };
}
