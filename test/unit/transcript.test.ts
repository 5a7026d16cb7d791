/** What a transcript must notice, by faults in what a command prints and in the file itself. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compare, fill, parseTranscript, splitWords } from '../support/transcript.ts';

const ID = '00000000-0000-4000-8000-000000000000';
const TEXT = `serve identity

# A comment.
## the keys of a user are counted
$ gatehouse key list --user {name}
< a line
ID          COUNT
{ada=id}  {number}
2> one note
exit 1

## a user is shown
$ gatehouse user show {ada}
`;
const RIGHT = { code: 1, stdout: `ID   COUNT\n${ID}   12\n`, stderr: 'one note\n' };

test('every difference in output or exit code is shown', () => {
  const { sections } = parseTranscript(TEXT, ['name']);
  const [counted, shown] = sections.flatMap(({ steps }) => steps);
  assert.ok(counted && shown);
  const values = new Map([['name', 'Ada']]);
  assert.equal(compare(counted, RIGHT, values), '');
  assert.equal(values.get('ada'), ID);
  for (const [fault, said] of [
    [{ stderr: 'a note\n' }, '-2> one note\n+2> a note\n'],
    [{ stdout: 'ID   COUNT\n' }, '-{ada=id}  {number}\n'],
    [{ stdout: `${RIGHT.stdout}\n` }, '+\n'],
    [{ stderr: 'one note' }, '+2> \\ no newline at the end\n'],
    [{ code: 2 }, '-exit 1\n+exit 2\n'],
    [{ stdout: RIGHT.stdout.replace('D   C', 'D C') }, '-ID          COUNT\n+ID COUNT\n'],
    [{ stdout: RIGHT.stdout.replace('12', 'x') }, `-{ada=id}  {number}\n+${ID}   x\n`],
  ] as const)
    assert.equal(compare(counted, { ...RIGHT, ...fault }, new Map(values)), said);
  assert.equal(compare(shown, { code: 0, stdout: '\n', stderr: '' }, values), '+\n');
});

test('a file that means nothing, or less than it seems, is refused', () => {
  for (const [text, said] of [
    ['', /the file has no command/],
    ['## a test\n# A comment.\n', /"a test" has no command/],
    ['$ x\n## t\n$ x\n', /line 1: "\$ x" is no directive/],
    ['## t\n$ x\nexit 1\nmore\n', /line 2: there is a line after "exit 1"/],
    ['## t\n$ x\n{ada=id}\n', /line 2: \{ada\} is never used/],
    ['## t\n$ x {ada}\n', /line 2: \{ada\} cannot stand here/],
    ['## t\n$ x\nexit 0\n', /line 2: "exit 0" is meant without a line/],
  ] as const)
    assert.throws(() => parseTranscript(text), said, text);
});

test('words are those of a shell', () => {
  const words = ['gatehouse', 'a bc', 'd\ne', '--name=', 'f='];
  assert.deepEqual(splitWords(`gatehouse 'a b'"c" $'d\\ne' --name= f=''`), words);
  assert.throws(() => splitWords(`x 'y`), /a quote does not end/);
  assert.equal(fill('\\{ada} {ada} {n*3}', new Map([['ada', '$&']])), '{ada} $& nnn');
});
