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

export interface Terminal {
  readonly print: (line: string) => void;
  /** Standard error: for people, where standard output may be read by a program. */
  readonly note: (line: string) => void;
  readonly readInput: () => Promise<string>;
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
