/**
 * The secret commands on a real terminal: prompts, hidden input, and the state of the terminal
 * afterwards.
 */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, type TestContext } from 'node:test';
import { createDatabase } from '../../support/database.ts';
import { AUTH_TOKEN, startGatehouse } from '../../support/gatehouse.ts';
import { buildProgram } from '../../support/process.ts';
import { startRecorder } from '../../support/recorder.ts';
import { secretsClient } from '../../support/secrets.ts';
import {
  CONTROL_C,
  CONTROL_D,
  ENTER,
  type Left,
  startOnTerminal,
  withoutTerminal,
} from '../../support/terminal.ts';
import { test, until } from '../../support/until.ts';
import { plainKeys, plainOpen } from '../../unit/vectors/plain-browser-envelope.ts';

const program = buildProgram();
const file = await createDatabase();
const url = (await startGatehouse({ after }, ['secrets'], file.url, { SHARE_PAGES: 'on' })).url
  .secrets;
const client = secretsClient(url);

const testOnTerminal = (name: string, work: Parameters<typeof test>[1]) =>
  test(name, work, withoutTerminal);

const start = (t: TestContext, ...words: readonly string[]) =>
  startOnTerminal(t, [process.execPath, join(program, 'dist/cli.js'), 'secret', ...words], {
    GATEHOUSE_URL: url,
    AUTH_TOKEN,
  });

/** Types the keys after each prompt. @returns how the command ends */
async function answer(
  t: TestContext,
  words: readonly string[],
  ...dialogue: ReadonlyArray<readonly [prompt: string, keys: string]>
): Promise<Left> {
  const terminal = start(t, ...words);
  for (const [prompt, keys] of dialogue) {
    await terminal.sees(prompt);
    terminal.types(keys);
  }
  return terminal.left;
}

/** The text behind the link that `put` has printed. */
async function textBehind(shown: string, passphrase = ''): Promise<string> {
  const [, id = '', secret = '', key = ''] =
    /\/s\/([0-9a-f-]{36})#1\.([\w-]{43})\.([\w-]{48})\n/.exec(shown) ?? [];
  const { content, proof } = plainKeys(key, passphrase);
  return plainOpen(
    content,
    String((await client.decrypt(id, secret, proof)).json.password),
  ).bytes.toString();
}

const countStored = async () => (await file.sql`select from secrets.secrets`).length;

const KEY = 'Key (the part of the link after #): ';
const PASSPHRASE = 'Passphrase: ';
const AGAIN = 'Repeat the passphrase: ';
const SECRET = 'Secret: (end with Enter and Ctrl-D) ';
const ERASE_LINE = '\u0015';
const ERASE = '\u007f';

testOnTerminal('get: prompts for the key without echo, and the key can be edited', async (t) => {
  const { id, secret } = await client.keep('what was kept');
  const keys = `oops${ERASE_LINE}${secret}x${ERASE}${ENTER}`;
  assert.deepEqual(await answer(t, ['get', id], [KEY, keys]), {
    code: 0,
    isAsBefore: true,
    shown: `${KEY}\nwhat was kept\n`,
  });
});

testOnTerminal(
  'get: prompts for the passphrase only if required, and takes it early',
  async (t) => {
    const { id, secret } = await client.keep('what was kept', { passphrase: 'five wörds' });
    const expected = {
      code: 0,
      isAsBefore: true,
      shown: `${KEY}\n${PASSPHRASE}\nwhat was kept\n`,
    };
    const place = `${url}/s/${id}`;
    const link = `${place}#${secret}${ENTER}`;
    const words = `five wörds${ENTER}`;
    assert.deepEqual(await answer(t, ['get', place], [KEY, link], [PASSPHRASE, words]), expected);
    const early = await answer(t, ['get', id], [KEY, `${secret}${ENTER}${words}`]);
    assert.deepEqual(early, expected, 'input before the prompt is not shown');
  },
);

testOnTerminal(
  'put: prompts for passphrase and secret without echo, and prints the link',
  async (t) => {
    const { code, isAsBefore, shown } = await answer(
      t,
      ['put', '--passphrase', '--max-reads', '1'],
      [PASSPHRASE, `five wörds${ENTER}`],
      [AGAIN, `five wörds${ENTER}`],
      [SECRET, ` hunter2 "ü" ${ENTER}${CONTROL_D}`],
    );
    assert.deepEqual([code, isAsBefore], [0, true], shown);
    const [prompts = '', printed] = shown.split(/^(?=Stored until )/m);
    assert.equal(prompts, `${PASSPHRASE}\n${AGAIN}\n${SECRET}\n`);
    assert.match(
      printed ?? '',
      /^Stored until \S+Z\. Link \(shown only once\):\nhttp\S+\nReceipt, for you alone: http\S+\n$/,
    );
    assert.equal(await textBehind(shown, 'five wörds'), ' hunter2 "ü" ');
  },
);

testOnTerminal('put: two different passphrases store nothing', async (t) => {
  const before = await countStored();
  const { code, shown } = await answer(
    t,
    ['put', '--passphrase'],
    [PASSPHRASE, `five words${ENTER}`],
    [AGAIN, `five wrods${ENTER}`],
  );
  const said =
    'gatehouse: secret put: the passphrases do not match. See: gatehouse secret put --help';
  assert.deepEqual([code, shown.split('\n').at(-2)], [2, said]);
  assert.equal(await countStored(), before);
});

const NOTHING_ENTERED = 'gatehouse: nothing was entered\n';

testOnTerminal('Ctrl-C and Ctrl-D at a prompt: exit 1, and the terminal is restored', async (t) => {
  const { id, secret } = await client.keep('x', { passphrase: 'five words', max_reads: 1 });
  const before = await countStored();
  const words = `five words${ENTER}`;
  for (const [command, dialogue] of [
    [['get', id], [[KEY, CONTROL_C]]],
    [['put'], [[SECRET, CONTROL_D]]],
    [['put'], [[SECRET, `marked-line${ENTER}marked-text${CONTROL_C}`]]],
    [
      ['get', id],
      [
        [KEY, `${secret}${ENTER}`],
        [PASSPHRASE, CONTROL_D],
      ],
    ],
    [
      ['put', '--passphrase'],
      [
        [PASSPHRASE, words],
        [AGAIN, words],
        [SECRET, CONTROL_C],
      ],
    ],
  ] as const) {
    const prompts = dialogue.map(([prompt]) => `${prompt}\n`).join('');
    assert.deepEqual(await answer(t, command, ...dialogue), {
      code: 1,
      isAsBefore: true,
      shown: prompts + NOTHING_ENTERED,
    });
  }
  const { status, failed_reads } = (await client.receipt(id)).json;
  assert.deepEqual([status, failed_reads, await countStored()], ['stored', 0, before]);
});

testOnTerminal('an empty input is exit 2 with a message', async (t) => {
  const { id } = await client.keep('x');
  for (const [words, prompt, keys, said] of [
    [['get', id], KEY, ENTER, /no key on standard input/],
    [['put'], SECRET, `${ENTER}${CONTROL_D}`, /no secret on standard input/],
  ] as const) {
    const { code, isAsBefore, shown } = await answer(t, words, [prompt, keys]);
    assert.deepEqual([code, isAsBefore], [2, true], shown);
    assert.match(shown, said);
  }
});

testOnTerminal('an empty passphrase uses nothing up', async (t) => {
  const { id, secret } = await client.keep('x', { passphrase: 'five words' });
  const dialogue = [[KEY, `${secret}${ENTER}`] as const, [PASSPHRASE, ENTER] as const];
  const { code, shown } = await answer(t, ['get', id], ...dialogue);
  assert.equal(code, 1, shown);
  assert.match(shown, /requires a passphrase[^\n]* No read was used up\n$/);
  assert.equal((await client.receipt(id)).json.failed_reads, 0);
});

testOnTerminal('a pasted secret of several lines is stored whole and not shown', async (t) => {
  const lines = ['-----BEGIN KEY-----', 'bm8ga2V5', '', '-----END KEY-----', ''];
  // Like a terminal that sends pasted text.
  const pasted = `${lines.join(ENTER)}${CONTROL_D}`;
  const { code, isAsBefore, shown } = await answer(t, ['put'], [SECRET, pasted]);
  assert.deepEqual([code, isAsBefore], [0, true], shown);
  assert.ok(shown.startsWith(`${SECRET}\nStored`), shown);
  assert.equal(await textBehind(shown), lines.join('\n'));
});

testOnTerminal(
  'control characters of a secret are removed on a terminal, with a note',
  async (t) => {
    const { id, secret } = await client.keep('one\u001b[2Jtwo\nthree\tfour\u0007\u009b');
    const { code, shown } = await answer(t, ['get', id], [KEY, `${secret}${ENTER}`]);
    assert.equal(code, 0, shown);
    assert.match(
      shown,
      /^[^\n]*\nControl characters were removed\.[^\n]*\none\[2Jtwo\nthree\tfour\n$/,
    );
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
  assert.notEqual(code, 0);
  assert.ok(isAsBefore);
  assert.doesNotMatch(shown, /did not answer/, 'it was not the time limit that ended it');
});
