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

const KEY = 'Key (the part of the link after #): ';
const PASSPHRASE = 'Passphrase: ';
const AGAIN = 'Repeat the passphrase: ';
const SECRET = 'Secret: (end with Enter and Ctrl-D) ';

testOnTerminal('get: prompts for the key without echo, and prints the text', async (t) => {
  const { id, secret } = await client.keep('what was kept');
  const terminal = start(t, 'get', id);
  await terminal.sees(KEY);
  terminal.types(`${secret}${ENTER}`);
  assert.deepEqual(await terminal.left, {
    code: 0,
    isAsBefore: true,
    shown: `${KEY}\nwhat was kept\n`,
  });
});

testOnTerminal('get: prompts for the passphrase without echo, only if required', async (t) => {
  const { id, secret } = await client.keep('what was kept', { passphrase: 'five wörds' });
  const terminal = start(t, 'get', `${url}/s/${id}`);
  await terminal.sees(KEY);
  terminal.types(`${url}/s/${id}#${secret}${ENTER}`);
  await terminal.sees(PASSPHRASE);
  terminal.types(`five wörds${ENTER}`);
  assert.deepEqual(await terminal.left, {
    code: 0,
    isAsBefore: true,
    shown: `${KEY}\n${PASSPHRASE}\nwhat was kept\n`,
  });
});

testOnTerminal(
  'put: prompts for passphrase and secret without echo, and prints the link',
  async (t) => {
    const terminal = start(t, 'put', '--passphrase', '--max-reads', '1');
    await terminal.sees(PASSPHRASE);
    terminal.types(`five wörds${ENTER}`);
    await terminal.sees(AGAIN);
    terminal.types(`five wörds${ENTER}`);
    await terminal.sees(SECRET);
    terminal.types(` hunter2 "ü" ${ENTER}${CONTROL_D}`);
    const { code, isAsBefore, shown } = await terminal.left;
    assert.deepEqual([code, isAsBefore], [0, true], shown);
    assert.match(
      shown,
      /^Passphrase: \nRepeat the passphrase: \nSecret: \(end with Enter and Ctrl-D\) \nStored until /,
    );
    assert.match(
      shown,
      /\nStored until \S+Z\. Link \(shown only once\):\nhttp\S+\nReceipt, for you alone: http\S+\n$/,
    );
    assert.equal(await textBehind(shown, 'five wörds'), ' hunter2 "ü" ');
  },
);

testOnTerminal('put: two different passphrases store nothing', async (t) => {
  const before = await file.sql`select count(*) from secrets.secrets`;
  const terminal = start(t, 'put', '--passphrase');
  await terminal.sees(PASSPHRASE);
  terminal.types(`five words${ENTER}`);
  await terminal.sees(AGAIN);
  terminal.types(`five wrods${ENTER}`);
  const { code, shown } = await terminal.left;
  assert.deepEqual(
    [code, shown.split('\n').at(-2)],
    [2, 'gatehouse: secret put: the passphrases do not match. See: gatehouse secret put --help'],
  );
  assert.deepEqual(await file.sql`select count(*) from secrets.secrets`, before);
});

testOnTerminal('hidden input can be edited', async (t) => {
  const { id, secret } = await client.keep('what was kept');
  const terminal = start(t, 'get', id);
  await terminal.sees(KEY);
  terminal.types(`oops\u0015${secret}x\u007f${ENTER}`);
  assert.deepEqual(await terminal.left, {
    code: 0,
    isAsBefore: true,
    shown: `${KEY}\nwhat was kept\n`,
  });
});

for (const [name, keys] of [
  ['Ctrl-C', CONTROL_C],
  ['Ctrl-D', CONTROL_D],
] as const) {
  testOnTerminal(`${name} at the first prompt: exit 1, and the terminal is restored`, async (t) => {
    for (const [words, prompt] of [
      [['get', '00000000-0000-4000-8000-000000000000'], KEY],
      [['put'], SECRET],
    ] as const) {
      const terminal = start(t, ...words);
      await terminal.sees(prompt);
      terminal.types(keys);
      assert.deepEqual(await terminal.left, {
        code: 1,
        isAsBefore: true,
        shown: `${prompt}\ngatehouse: nothing was entered\n`,
      });
    }
  });

  testOnTerminal(
    `${name} at the second prompt: exit 1, and nothing is stored or read`,
    async (t) => {
      const { id, secret } = await client.keep('x', { passphrase: 'five words', max_reads: 1 });
      const getting = start(t, 'get', id);
      await getting.sees(KEY);
      getting.types(`${secret}${ENTER}`);
      await getting.sees(PASSPHRASE);
      getting.types(keys);
      assert.deepEqual(await getting.left, {
        code: 1,
        isAsBefore: true,
        shown: `${KEY}\n${PASSPHRASE}\ngatehouse: nothing was entered\n`,
      });
      assert.deepEqual(
        [(await client.receipt(id)).json.status, (await client.receipt(id)).json.failed_reads],
        ['stored', 0],
      );

      const before = await file.sql`select count(*) from secrets.secrets`;
      const putting = start(t, 'put', '--passphrase');
      await putting.sees(PASSPHRASE);
      putting.types(`five words${ENTER}`);
      await putting.sees(AGAIN);
      putting.types(`five words${ENTER}`);
      await putting.sees(SECRET);
      putting.types(keys);
      assert.deepEqual(await putting.left, {
        code: 1,
        isAsBefore: true,
        shown: `${PASSPHRASE}\n${AGAIN}\n${SECRET}\ngatehouse: nothing was entered\n`,
      });
      assert.deepEqual(await file.sql`select count(*) from secrets.secrets`, before);
    },
  );
}

testOnTerminal('Ctrl-C within a secret shows and stores nothing', async (t) => {
  const terminal = start(t, 'put');
  await terminal.sees(SECRET);
  terminal.types(`marked-line${ENTER}marked-text${CONTROL_C}`);
  assert.deepEqual(await terminal.left, {
    code: 1,
    isAsBefore: true,
    shown: `${SECRET}\ngatehouse: nothing was entered\n`,
  });
});

testOnTerminal('an empty input is exit 2 with a message', async (t) => {
  const { id } = await client.keep('x');
  for (const [words, prompt, said] of [
    [['get', id], KEY, /no key on standard input/],
    [['put'], SECRET, /no secret on standard input/],
  ] as const) {
    const terminal = start(t, ...words);
    await terminal.sees(prompt);
    terminal.types(`${ENTER}${prompt === SECRET ? CONTROL_D : ''}`);
    const { code, isAsBefore, shown } = await terminal.left;
    assert.deepEqual([code, isAsBefore], [2, true], shown);
    assert.match(shown, said);
  }
});

testOnTerminal('an empty passphrase uses nothing up', async (t) => {
  const { id, secret } = await client.keep('x', { passphrase: 'five words' });
  const terminal = start(t, 'get', id);
  await terminal.sees(KEY);
  terminal.types(`${secret}${ENTER}`);
  await terminal.sees(PASSPHRASE);
  terminal.types(ENTER);
  const { code, shown } = await terminal.left;
  assert.equal(code, 1, shown);
  assert.match(shown, /requires a passphrase[^\n]* No read was used up\n$/);
  assert.equal((await client.receipt(id)).json.failed_reads, 0);
});

testOnTerminal('a pasted secret of several lines is stored whole and not shown', async (t) => {
  const terminal = start(t, 'put');
  await terminal.sees(SECRET);
  // Like a terminal that sends pasted text.
  terminal.types(
    `-----BEGIN KEY-----${ENTER}bm8ga2V5${ENTER}${ENTER}-----END KEY-----${ENTER}${CONTROL_D}`,
  );
  const { code, isAsBefore, shown } = await terminal.left;
  assert.deepEqual([code, isAsBefore], [0, true], shown);
  assert.match(shown, /^Secret: \(end with Enter and Ctrl-D\) \nStored/);
  assert.equal(await textBehind(shown), '-----BEGIN KEY-----\nbm8ga2V5\n\n-----END KEY-----\n');
});

testOnTerminal('input before the prompt is not shown', async (t) => {
  const { id, secret } = await client.keep('what was kept', { passphrase: 'five words' });
  const terminal = start(t, 'get', id);
  await terminal.sees(KEY);
  terminal.types(`${secret}${ENTER}five words${ENTER}`);
  assert.deepEqual(await terminal.left, {
    code: 0,
    isAsBefore: true,
    shown: `${KEY}\n${PASSPHRASE}\nwhat was kept\n`,
  });
});

testOnTerminal(
  'control characters of a secret are removed on a terminal, with a note',
  async (t) => {
    const { id, secret } = await client.keep('one\u001b[2Jtwo\nthree\tfour\u0007\u009b');
    const terminal = start(t, 'get', id);
    await terminal.sees(KEY);
    terminal.types(`${secret}${ENTER}`);
    const { code, shown } = await terminal.left;
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
  terminal.types(CONTROL_C);
  const { code, isAsBefore, shown } = await terminal.left;
  assert.notEqual(code, 0);
  assert.ok(isAsBefore);
  assert.doesNotMatch(shown, /did not answer/, 'it was not the time limit that ended it');
});
