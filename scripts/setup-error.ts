/** What a person can put right: shown as it is, without a stack. */
export class SetupError extends Error {}

export function errorCode(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined;
}

/** Ends the process after `main`, with its result as the exit status. A file or port that cannot be had needs no stack either. */
export async function runMain(main: () => Promise<number>): Promise<never> {
  try {
    process.exit(await main());
  } catch (error) {
    if (!(error instanceof SetupError || (error instanceof Error && 'syscall' in error))) throw error;
    process.stderr.write(`${error.message}\n`);
    process.exit(1);
  }
}
