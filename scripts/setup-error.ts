/** An error the user can correct. Printed without a stack. */
export class SetupError extends Error {}

export function errorCode(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'string'
    ? error.code
    : undefined;
}

/**
 * Ends the process with the result of `main` as exit status. A failed system call is printed
 * without a stack, too.
 */
export async function runMain(main: () => Promise<number>): Promise<never> {
  try {
    process.exit(await main());
  } catch (error) {
    if (!(error instanceof SetupError || (error instanceof Error && 'syscall' in error)))
      throw error;
    process.stderr.write(`${error.message}\n`);
    process.exit(1);
  }
}
