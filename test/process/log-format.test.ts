/** The form of the log: text on a terminal, JSON elsewhere, or as LOG_FORMAT says. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { buildProgram, startProgram } from '../support/process.ts';
import { CONTROL_C, startOnTerminal, withoutTerminal } from '../support/terminal.ts';
import { bounded, until } from '../support/until.ts';

const program = buildProgram();
const environment = {
  WEBHOOK_VARIANT: 'plain',
  WEBHOOK_TOKEN: 'a-webhook-token-of-32-characters',
  HOST: '127.0.0.1',
  PORT: '0',
};
const TEXT = /^\d\d:\d\d:\d\d\.\d{3} INFO {2}webhook {2}ready app=gatehouse-webhook$/m;
const JSON_LINE =
  /^\{"time":"[^"]+","level":"info","service":"webhook","app":"gatehouse-webhook","message":"ready"\}$/m;

for (const [format, expected] of [
  ['auto', TEXT],
  ['text', TEXT],
  ['json', JSON_LINE],
] as const) {
  test(
    `on a terminal, with LOG_FORMAT=${format}`,
    { ...bounded, skip: withoutTerminal },
    async (t) => {
      const command = [process.execPath, `${program}/dist/cli.js`, 'serve', 'webhook'];
      const terminal = startOnTerminal(t, command, { ...environment, LOG_FORMAT: format });
      await terminal.sees('ready');
      terminal.types(CONTROL_C);
      const { code, shown } = await terminal.left;
      assert.equal(code, 0, shown);
      assert.match(shown, expected);
    },
  );
}

for (const [format, expected] of [
  ['auto', JSON_LINE],
  ['text', TEXT],
  ['json', JSON_LINE],
] as const) {
  test(`in a pipe, with LOG_FORMAT=${format}`, bounded, async (t) => {
    const running = startProgram(t, program, ['serve', 'webhook'], {
      ...environment,
      LOG_FORMAT: format,
    });
    await until(() => expected.test(running.stdout()), 'the line');
    running.signal('SIGTERM');
    assert.equal((await running.ended).code, 0);
  });
}
