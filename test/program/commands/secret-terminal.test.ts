/**
 * The secret commands on a real terminal: prompts, hidden input, and the state of the terminal
 * afterwards.
 */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, type TestContext } from 'node:test';
import { startCommand } from '../../support/commands.ts';
import { AUTH_TOKEN, launch } from '../../support/gatehouse.ts';
import { buildProgram } from '../../support/process.ts';
import { startRecorder } from '../../support/recorder.ts';
import { secretsClient } from '../../support/secrets.ts';
import {
  CONTROL_C,
  CONTROL_D,
  ENTER,
  startOnTerminal,
  withoutTerminal,
} from '../../support/terminal.ts';
import { test, until } from '../../support/until.ts';
import { plainKeys, plainOpen } from '../../unit/vectors/plain-browser-envelope.ts';

const { secrets: url, sql } = await launch(['secrets'], { SHARE_PAGES: 'on' }, { after });
const client = secretsClient(url);
const environment = { GATEHOUSE_URL: url, AUTH_TOKEN };
const program = join(buildProgram(), 'dist/cli.js');
const testOnTerminal = (name: string, work: Parameters<typeof test>[1]) =>
  test(name, work, withoutTerminal);

const start = (t: TestContext, ...words: readonly string[]) =>
  startOnTerminal(t, [process.execPath, program, 'secret', ...words], environment);

type Dialogue = ReadonlyArray<readonly [prompt: string, keys: string]>;

/** Types the keys after each prompt. @returns how the command ends */
async function answer(t: TestContext, words: readonly string[], ...dialogue: Dialogue) {
  const terminal = start(t, ...words);
  for (const [prompt, keys] of dialogue) {
    await terminal.sees(prompt);
    terminal.types(keys);
  }
  return terminal.left;
}

/** The text behind the link that `put` has printed. */
async function textBehind(shown: string, passphrase: string): Promise<string> {
  const [, id = '', secret = '', key = ''] =
    /\/s\/([0-9a-f-]{36})#1\.([\w-]{43})\.([\w-]{48})\n/.exec(shown) ?? [];
  const { content, proof } = plainKeys(key, passphrase);
  const { password } = (await client.decrypt(id, secret, proof)).json;
  return plainOpen(content, String(password)).bytes.toString();
}
const countStored = async () => (await sql`select from secrets.secrets`).length;

const KEY = 'Key (the part of the link after #): ';
const PASSPHRASE = 'Passphrase: ';
const AGAIN = 'Repeat the passphrase: ';
const SECRET = 'Secret: (end with Enter and Ctrl-D) ';
const ERASE_LINE = '\u0015';
const ERASE = '\u007f';
const WORDS = `five wörds${ENTER}`;

testOnTerminal('get: takes an edited key and a passphrase that are typed early', async (t) => {
  const { id, secret } = await client.keep('what was kept', { passphrase: 'five wörds' });
  const place = `${url}/s/${id}`;
  const edited = `oops${ERASE_LINE}${place}#${secret}x${ERASE}${ENTER}`;
  const left = await answer(t, ['get', place], [KEY, edited + WORDS]);
  const shown = `${KEY}\n${PASSPHRASE}\nwhat was kept\n`;
  assert.deepEqual(left, { code: 0, isAsBefore: true, shown });
});

testOnTerminal('put: prompts without echo, takes pasted lines, and prints the link', async (t) => {
  const lines = ['-----BEGIN KEY-----', ' bm8ga2V5 "ü" ', '', '-----END KEY-----', ''];
  // Like a terminal that sends pasted text.
  const pasted = `${lines.join(ENTER)}${CONTROL_D}`;
  const { code, isAsBefore, shown } = await answer(
    t,
    ['put', '--passphrase'],
    [PASSPHRASE, WORDS],
    [AGAIN, WORDS],
    [SECRET, pasted],
  );
  assert.deepEqual([code, isAsBefore], [0, true], shown);
  const [prompts, printed = ''] = shown.split(/^(?=Stored until )/m);
  assert.equal(prompts, `${PASSPHRASE}\n${AGAIN}\n${SECRET}\n`);
  assert.match(
    printed,
    /^Stored until \S+Z\. Link .*:\nhttp\S+\nReceipt, for you alone: http\S+\n$/,
  );
  assert.equal(await textBehind(shown, 'five wörds'), lines.join('\n'));
});

testOnTerminal(
  'Ctrl-C, Ctrl-D and wrong input end it, store nothing, and restore the terminal',
  async (t) => {
    const { id, secret } = await client.keep('x', { passphrase: 'five words', max_reads: 1 });
    const before = await countStored();
    const nothing = 'gatehouse: nothing was entered\n';
    const mismatch =
      'gatehouse: secret put: the passphrases do not match. See: gatehouse secret put --help\n';
    const cases: ReadonlyArray<readonly [code: number, said: string, words: string, ...Dialogue]> =
      [
        [1, nothing, `get ${id}`, [KEY, `${secret}${ENTER}`], [PASSPHRASE, CONTROL_D]],
        [1, nothing, 'put', [SECRET, `marked-line${ENTER}marked-text${CONTROL_C}`]],
        [2, mismatch, 'put --passphrase', [PASSPHRASE, WORDS], [AGAIN, `five wrods${ENTER}`]],
      ];
    const assertLeft = async ([code, said, words, ...dialogue]: (typeof cases)[number]) => {
      const prompts = dialogue.map(([prompt]) => `${prompt}\n`).join('');
      const left = await answer(t, words.split(' '), ...dialogue);
      assert.deepEqual(left, { code, isAsBefore: true, shown: prompts + said });
    };
    await Promise.all(cases.map(assertLeft));
    const { status, failed_reads } = (await client.receipt(id)).json;
    assert.deepEqual([status, failed_reads, await countStored()], ['stored', 0, before]);
  },
);

testOnTerminal('Ctrl-C ends the command while it waits for a reply', async (t) => {
  const silent = await startRecorder(t);
  silent.answer(() => {});
  const terminal = start(t, 'get', `${silent.url}/s/00000000-0000-4000-8000-000000000000`);
  await terminal.sees(KEY);
  terminal.types(`${'A'.repeat(43)}${ENTER}`);
  await until(() => silent.received.length === 1);
  terminal.interrupts();
  const { code, isAsBefore, shown } = await terminal.left;
  assert.deepEqual([code === 0, isAsBefore], [false, true]);
  assert.doesNotMatch(shown, /did not answer/, 'it was not the time limit that ended it');
});

test('control characters and the last line end of a secret are removed on a terminal', async () => {
  const { id, secret } = await client.keep('one\u001b[2Jtwo\nthree\tfour\u0007\u009b\n');
  const words = ['secret', 'get', id];
  const { stdout, stderr } = await startCommand(words, environment, secret, true).ended;
  assert.equal(stdout, 'one[2Jtwo\nthree\tfour\n');
  assert.match(stderr, /^Control characters were removed\.[^\n]*\n$/);
});
