/** The completion scripts, run by the shells that are installed. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test, type TestContext } from 'node:test';
import { findProgram } from '../../scripts/programs.ts';
import { buildProgram, runProgram } from '../support/process.ts';

const program = buildProgram();

async function script(t: TestContext, shell: string): Promise<string> {
  const { code, stdout, stderr } = await runProgram(t, program, ['completion', shell], {});
  assert.deepEqual([code, stderr], [0, '']);
  return stdout;
}

/** What may follow, and whether words are completed by the beginning of the next one. */
const LINES: ReadonlyArray<
  readonly [before: readonly string[], begun: string, words: readonly string[]]
> = [
  [[], 'se', ['serve', 'secret']],
  [['serve'], '', ['identity', 'secrets', 'webhook', '--help']],
  [['serve', 'identity'], 'w', ['webhook']],
  [['user'], 'l', ['list']],
  [['user', 'factors'], '', ['remove']],
  [['user', 'create', '--verified'], '--u', ['--username']],
  [['key', 'list', '--user', 'ada'], '--j', ['--json']],
  [['completion'], '', ['bash', 'zsh', 'fish', '--help']],
  [['nothing'], '', []],
];

const quoted = (words: readonly string[]) => words.map((word) => `'${word}'`).join(' ');

/** Each prints the words that its shell would offer. */
const SHELLS = {
  bash: (source: string, before: readonly string[], begun: string) => [
    '-c',
    `${source}
    COMP_WORDS=(gatehouse ${quoted([...before, begun])}); COMP_CWORD=${before.length + 1}
    _gatehouse; printf '%s\\n' "\${COMPREPLY[@]}"`,
  ],
  // Outside of its editor, zsh has neither of the two.
  zsh: (source: string, before: readonly string[], begun: string) => [
    '-fc',
    `
    compdef() { :; }
    compadd() { shift; for word in "$@"; do [[ $word == ${begun}* ]] && print -- $word; done; }
    ${source}
    words=(gatehouse ${quoted([...before, begun])}); CURRENT=${before.length + 2}; _gatehouse; true`,
  ],
  fish: (source: string, before: readonly string[], begun: string) => [
    '--no-config',
    '-c',
    `${source}
    complete -C '${['gatehouse', ...before, begun].join(' ')}'`,
  ],
} as const;

for (const [shell, argumentsOf] of Object.entries(SHELLS)) {
  const path = findProgram(shell);
  test(
    `${shell} completes commands, services and options`,
    { skip: !path && `${shell} is not installed` },
    async (t) => {
      const source = await script(t, shell);
      for (const [before, begun, words] of LINES) {
        const printed = execFileSync(path ?? '', argumentsOf(source, before, begun), {
          encoding: 'utf8',
        });
        assert.deepEqual(
          printed.split('\n').filter(Boolean).sort(),
          [...words].sort(),
          [...before, begun].join(' '),
        );
      }
    },
  );
}
