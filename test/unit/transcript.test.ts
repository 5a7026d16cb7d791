/** What a transcript must notice, by faults in what a command prints and in the file itself. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compare, fill, parseTranscript, type Result, splitWords } from '../support/transcript.ts';

const ID = '00000000-0000-4000-8000-000000000000';
const TEXT = `serve identity

# A comment.
## the keys of a user are counted
$ gatehouse key list --user {name}
< a line
ID          COUNT
{ada=id}  {number}

the end
2> one note
exit 1

## a user is shown
$ gatehouse user show {ada}
`;
const RIGHT = { code: 1, stdout: `ID   COUNT\n${ID}   12\n\nthe end\n`, stderr: 'one note\n' };

/** Of the first command, which prints `result`. */
function judge(result: Result): { difference: string; ada: string | undefined } {
  const [section] = parseTranscript(TEXT, ['name']).sections;
  const [step] = section?.steps ?? [];
  assert.ok(step);
  const values = new Map([['name', 'Ada']]);
  return { difference: compare(step, result, values), ada: values.get('ada') };
}

test('a transcript has directives, tests, commands, input, output and exit codes', () => {
  const { header, sections } = parseTranscript(TEXT, ['name']);
  assert.deepEqual(header, [['serve', 'identity']]);
  assert.deepEqual(
    sections.map(({ title, steps }) => [title, ...steps.map(({ line }) => line)]),
    [
      ['the keys of a user are counted', 5],
      ['a user is shown', 15],
    ],
  );
  const [step] = sections[0]?.steps ?? [];
  assert.deepEqual([step?.input, step?.code, step?.stderr], ['a line\n', 1, 'one note\n']);
  assert.deepEqual(judge(RIGHT), { difference: '', ada: ID });
});

const FAULTS: ReadonlyArray<readonly [what: string, fault: Partial<Result>, said: string]> = [
  ['a wrong line', { stderr: 'a note\n' }, '-2> one note\n+2> a note\n'],
  ['a missing line', { stdout: `ID   COUNT\n${ID}   12\n\n` }, '-the end\n'],
  ['an extra line', { stdout: `new\n${RIGHT.stdout}` }, '+new\n'],
  ['an extra empty line', { stdout: `${RIGHT.stdout}\n` }, '+\n'],
  ['no newline at the end', { stderr: 'one note' }, '+2> \\ no newline at the end\n'],
  ['output where none belongs', { stderr: `one note\nat x.js:1\n` }, '+2> at x.js:1\n'],
  ['nothing', { stderr: '' }, '-2> one note\n'],
  ['another exit code', { code: 2 }, '-exit 1\n+exit 2\n'],
  ['a signal', { code: null }, '-exit 1\n+exit null\n'],
  [
    'a value of another kind',
    { stdout: RIGHT.stdout.replace('12', 'many') },
    `-{ada=id}  {number}\n+${ID}   many\n`,
  ],
  [
    'a column without a gap',
    { stdout: RIGHT.stdout.replace('ID   C', 'ID C') },
    '-ID          COUNT\n+ID COUNT\n',
  ],
];

test('every difference in output or exit code is shown', () => {
  for (const [what, fault, said] of FAULTS)
    assert.equal(judge({ ...RIGHT, ...fault }).difference, said, what);
});

test('"$= " begins a command with the input, output and exit code of the one before', () => {
  const [section] = parseTranscript('## t\n$ x\n< y\n2> z\nexit 1\n$= w\n').sections;
  const [first, second] = section?.steps ?? [];
  assert.deepEqual(second, { ...first, line: 6, command: 'w' });
});

test('a command that must print nothing is noticed when it prints', () => {
  const step = parseTranscript(TEXT, ['name']).sections[1]?.steps[0];
  assert.ok(step);
  assert.equal(compare(step, { code: 0, stdout: '', stderr: '' }, new Map()), '');
  assert.equal(compare(step, { code: 0, stdout: '\n', stderr: '' }, new Map()), '+\n');
});

const MISTAKES: ReadonlyArray<readonly [text: string, said: RegExp]> = [
  ['', /the file has no command/],
  ['# A comment.\n', /the file has no command/],
  ['## a test\n# A comment.\n', /"a test" has no command/],
  ['start identity\n## t\n$ x\n', /line 1: "start identity" is no directive, heading or command/],
  ['$ x\n## t\n$ x\n', /line 1: "\$ x" is no directive/],
  ['## t\n$ x\n## u\nserve identity\n$ x\n', /line 4: "serve identity" is no directive/],
  ['## t\n$ x\nexit 1\nmore\n', /line 2: there is a line after "exit 1"/],
  ['## t\n$= x\n', /line 2: "\$= x" is no directive, heading or command/],
  ['## t\n$ x\n$= y\nmore\n', /line 4: "more" is no directive, heading or command/],
  ['## t\n$ x\n{ada=id}\n$= y {ada}\n', /line 4: \{ada\} cannot stand here/],
  ['## t\n$ x\n{ada=id}\n', /line 2: \{ada\} is never used/],
  ['## t\n$ x {ada}\n', /line 2: \{ada\} cannot stand here/],
  ['## t\n$ x {id}\n', /line 2: \{id\} cannot stand here/],
  ['## t\n$ x\n{ada=uuid}\n', /line 2: \{ada\} cannot stand here/],
  ['## t\n$ x\n{ada=id}\n{ada=id}\n', /line 2: \{ada\} cannot stand here/],
  ['## t\n$ x\n{id=id}\n', /line 2: \{id\} cannot stand here/],
  ['## t\n$ x\nexit 0\n', /line 2: "exit 0" is meant without a line/],
];

test('a file that means nothing, or less than it seems, is refused', () => {
  for (const [text, said] of MISTAKES) assert.throws(() => parseTranscript(text), said, text);
});

test('words are those of a shell', () => {
  const command = `gatehouse 'a b'"c" $'d\\ne' --name= f=''`;
  assert.deepEqual(splitWords(command), ['gatehouse', 'a bc', 'd\ne', '--name=', 'f=']);
  assert.throws(() => splitWords(`x 'y`), /a quote does not end/);
  assert.equal(fill('\\{ada}', new Map()), '{ada}');
  assert.equal(fill('{ada} {n*3} {"a":{}}', new Map([['ada', '$&']])), '$& nnn {"a":{}}');
});
