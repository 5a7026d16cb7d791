import type { Command } from './command.ts';

/** What may follow each beginning of a command line: pairs of the words so far and the words that can come next. */
function wordsAfter(commands: readonly Command[]): ReadonlyMap<string, ReadonlySet<string>> {
  const found = new Map<string, Set<string>>();
  const add = (before: string, word: string) =>
    found.set(before, (found.get(before) ?? new Set()).add(word));
  for (const { name, options, among = [] } of commands) {
    const words = name.split(' ');
    for (const [index, word] of words.entries()) add(words.slice(0, index).join(' '), word);
    for (const word of [...among, ...Object.keys(options).map((option) => `--${option}`), '--help'])
      add(name, word);
  }
  for (const word of ['help', '--help', '--version']) add('', word);
  return found;
}

type Line = (before: string, isWhole: boolean, words: string) => string;

/** One case for each beginning. Options and arguments may follow a whole command, but no word inside its name. */
function cases(commands: readonly Command[], line: Line): string {
  const isWhole = (before: string) => commands.some(({ name }) => name === before);
  const lines = [...wordsAfter(commands)].map(([before, words]) =>
    line(before, isWhole(before), [...words].join(' ')),
  );
  return lines.join('\n');
}

/** For bash and zsh: prints what may follow its arguments. */
const shellFunction = (commands: readonly Command[]): string => `_gatehouse_words() {
  case "$*" in
${cases(commands, (before, isWhole, words) => `    '${before}'${isWhole ? `|'${before} '*` : ''}) echo '${words}' ;;`)}
  esac
}`;

/** A script for each shell, to be read by it at its start. */
export const SCRIPTS: Readonly<Record<string, (commands: readonly Command[]) => string>> = {
  bash: (commands) => `${shellFunction(commands)}
_gatehouse() {
  local words
  words=$(_gatehouse_words "\${COMP_WORDS[@]:1:COMP_CWORD-1}")
  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _gatehouse gatehouse`,
  zsh: (commands) => `${shellFunction(commands)}
_gatehouse() {
  compadd -- \${=$(_gatehouse_words "\${(@)words[2,CURRENT-1]}")}
}
compdef _gatehouse gatehouse`,
  fish: (commands) => `function __gatehouse_words
  set -l words (commandline -opc)
  set -e words[1]
  switch (string join -- ' ' $words)
${cases(
  commands,
  (before, isWhole, words) =>
    `    case '${before}'${isWhole ? ` '${before} *'` : ''}\n      printf '%s\\n' ${words}`,
)}
  end
end
complete -c gatehouse -f -a '(__gatehouse_words)'`,
};
