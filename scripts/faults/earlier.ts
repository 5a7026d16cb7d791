/** The program before secrets and webhook got the second step of their schemas, from the history of this repository. */
import { execFileSync } from 'node:child_process';
import { readFileSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { root } from '../../test/support/process.ts';

/** The name of the step that came first. */
const STEP = 'attempts with answers, pause, failing targets';

/** @returns the commit before that step; null without the history, as in an archive or a shallow clone */
export function earlierCommit(): string | null {
  try {
    const commits = git('log', '--format=%P', `-S${STEP}`, '--', 'src/webhook/migrations.ts')
      .toString()
      .trim()
      .split('\n');
    const commit = commits.at(-1) ?? '';
    git('cat-file', '-e', `${commit}:src/cli.ts`);
    return commit;
  } catch {
    return null;
  }
}

/** @returns the directory, which then holds that program as `make build` makes it */
export function buildEarlier(commit: string, directory: string): string {
  const archive = git('archive', commit, 'src', 'scripts', 'package.json', 'tsconfig.json');
  execFileSync('tar', ['-x', '-C', directory], { input: archive });
  symlinkSync(join(root, 'node_modules'), join(directory, 'node_modules'));
  const { scripts }: { scripts: { build: string } } = JSON.parse(
    readFileSync(join(directory, 'package.json'), 'utf8'),
  );
  const PATH = `${join(root, 'node_modules/.bin')}:${process.env.PATH ?? ''}`;
  execFileSync('sh', ['-c', scripts.build], { cwd: directory, env: { ...process.env, PATH } });
  return directory;
}

function git(...words: readonly string[]): Buffer {
  return execFileSync('git', words, {
    cwd: root,
    maxBuffer: 64 * 2 ** 20,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
}
