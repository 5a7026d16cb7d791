/** Finds what makes a test run incomplete although no test failed. */

/** The members of node:test's events that matter here. */
export interface TestEvent {
  name: string;
  file?: string | undefined;
  skip?: string | boolean | undefined;
  todo?: string | boolean | undefined;
}

/** A test may be skipped only with a reason. */
export function findSilentSkip(event: TestEvent): string | undefined {
  for (const kind of ['skip', 'todo'] as const) {
    const reason = event[kind];
    if (reason === undefined || reason === false) continue;
    if (reason !== true && reason.trim() !== '') continue;
    return `${kind} without a reason: "${event.name}"${event.file ? ` in ${event.file}` : ''}`;
  }
  return undefined;
}

/** `only` skips all other tests silently. */
export function findNarrowing(file: string, source: string): string[] {
  const narrowing = /\.only\s*\(|\bonly\s*:\s*true\b|\brunOnly\s*\(\s*true\b/;
  return source
    .split('\n')
    .flatMap((line, index) =>
      narrowing.test(line) ? [`narrowed with only: ${file}:${index + 1}`] : [],
    );
}

/**
 * While a file awaits between its tests, node:test may find that all tests so far have ended and
 * call the file's `after`, which closes what the later tests need. This happens only on a slow
 * machine.
 */
export function findLateAwait(file: string, source: string): string[] {
  let isLate = false;
  let isBlock = false;
  return source.split('\n').flatMap((line, index) => {
    // Code at the margin, and in loops and conditions that begin there, runs while the file is
    // loaded.
    if (/^\S/.test(line)) isBlock = /^(for|if|while|try|\{)\b.*\{$/.test(line);
    const isLoaded = /^\S/.test(line) || (isBlock && /^ {2}\S/.test(line));
    const isFound =
      isLate && isLoaded && /\bawait\b/.test(line) && !/\basync\b|^\s*(\/\/|\*)/.test(line);
    isLate ||= /^\s*test\(/.test(line);
    return isFound ? [`waits between tests: ${file}:${index + 1}`] : [];
  });
}
