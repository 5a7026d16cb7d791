/** What `util.parseArgs` understands, with a line of help. */
export interface Option {
  readonly type: 'string' | 'boolean';
  readonly value?: string;
  readonly required?: true;
  readonly help: string;
}

export interface Arguments {
  readonly text: (name: string) => string | undefined;
  readonly flag: (name: string) => boolean;
  readonly positionals: readonly string[];
}

/** What a command asks for, one thing after the other. */
export interface Lines {
  /** The next line. */
  next(prompt: string): Promise<string>;
  /** All that follows, but for a newline at its end, which `echo`, editors and Enter put there. */
  rest(prompt: string): Promise<string>;
  /** Whether a person types them unseen, and may mistype. */
  readonly isTyped: boolean;
  close(): void;
}

export interface Terminal {
  readonly print: (line: string) => void;
  /** Standard error: for people, where standard output may be read by a program. */
  readonly note: (line: string) => void;
  readonly readInput: () => Promise<string>;
  /** Asks for secrets: on a terminal without showing what is typed, from a pipe line by line. To be closed. */
  readonly openLines: () => Promise<Lines>;
  /** Whether there is still somebody at the other end of standard output. */
  readonly isRead: () => boolean;
  /** Whether standard output is a terminal, which obeys control characters. */
  readonly isShown: boolean;
}

export interface Command {
  /** `user create` */
  readonly name: string;
  readonly summary: string;
  /** As shown behind the name, such as `ID` or `[SERVICE…]`. */
  readonly positionals?: { readonly shown: string; readonly least: number; readonly most: number };
  readonly options: Readonly<Record<string, Option>>;
  run(given: Arguments, terminal: Terminal): Promise<void>;
}

/** The words of the command are wrong: exit 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** The command was understood and could not be done: exit 1. */
export class OperationFailed extends Error {
  override readonly name = 'OperationFailed';
}
