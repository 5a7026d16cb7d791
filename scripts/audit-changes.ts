/** What has changed in src/ since the commit of a review. */
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from './reading.ts';

export interface ChangedFile {
  readonly file: string;
  /** Its path at that commit: another one if the file was moved. */
  readonly from: string;
  /** The declarations that changed; none for a file that was only moved, or that holds no code. */
  readonly names: readonly string[];
  /** The present text; null if the file was removed. */
  readonly text: string | null;
}

/** Also the version of the one dependency. */
const PATHS = ['src', 'package-lock.json'];

/** Whether git knows a commit by this name. */
export function isCommit(name: string, repository = root): boolean {
  const options = ['rev-parse', '--verify', '--quiet', '--end-of-options'];
  const { status } = spawnSync('git', [...options, `${name}^{commit}`], { cwd: repository });
  return status === 0;
}

/**
 * Compares the working tree with a commit.
 * @throws if git does not know the commit
 */
export function changesSince(commit: string, repository = root): readonly ChangedFile[] {
  const options = ['diff', '--unified=0', '--find-renames', '--no-color', '--no-ext-diff'];
  const diff = execFileSync('git', [...options, commit, '--', ...PATHS], {
    cwd: repository,
    encoding: 'utf8',
    maxBuffer: 256 * 1024 * 1024,
  });
  const parts = diff.split(/^diff --git /m).slice(1);
  return parts.map((part) => changedFile(part, repository));
}

function changedFile(part: string, repository: string): ChangedFile {
  const [, from = '', file = ''] = /^a\/(\S+) b\/(\S+)$/m.exec(part) ?? [];
  if (/^deleted file mode /m.test(part)) return { file, from, names: [], text: null };
  const text = readFileSync(join(repository, file), 'utf8');
  const lines = [...part.matchAll(/^@@ -\S+ \+(\d+)(?:,(\d+))? @@/gm)].flatMap(
    ([, start = '1', count = '1']) => {
      // A removal changes the declaration around it.
      const length = Math.max(1, Number(count));
      return Array.from({ length }, (_, at) => Number(start) + at);
    },
  );
  const isCode = /\.(ts|js|sql)$/.test(file);
  return { file, from, names: isCode ? declarationsAt(text, lines) : [], text };
}

/** Of TypeScript, or of SQL, such as `identity.users`. */
const DECLARATION =
  /^(?:(?:export )?(?:default )?(?:async )?(?:function\*?|const|let|class|interface|type)|create (?:unique )?(?:table|index|view)) ([\w$.]+)/;

/** @returns the names of the declarations at the top level that hold these lines, from 1 */
function declarationsAt(text: string, lines: readonly number[]): readonly string[] {
  const names: string[] = [];
  let current = 'the head of the file';
  let pending: number[] = []; // lines of a comment, which belongs to the declaration after it
  const changed = new Set(lines);
  for (const [at, line] of text.split('\n').entries()) {
    const [, name] = DECLARATION.exec(line) ?? [];
    if (name !== undefined) {
      current = name;
      if (pending.length > 0) names.push(name);
      pending = [];
    }
    if (!changed.has(at + 1) || line.trim() === '') continue;
    if (/^(\/\*\*| \*|\/\/|--)/.test(line)) pending.push(at);
    else names.push(current);
  }
  return [...new Set(names)];
}
