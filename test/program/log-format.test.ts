/** The form of the log: text on a terminal, JSON elsewhere, or as LOG_FORMAT says. */
import assert from 'node:assert/strict';
import { buildProgram, startProgram } from '../support/process.ts';
import { CONTROL_C, startOnTerminal, withoutTerminal } from '../support/terminal.ts';
import { test, until } from '../support/until.ts';

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

test(
  'on a terminal, the log is text unless LOG_FORMAT is json',
  async (t) => {
    const assertForm = async (format: string, expected: RegExp) => {
      const command = [process.execPath, `${program}/dist/cli.js`, 'serve', 'webhook'];
      const terminal = startOnTerminal(t, command, { ...environment, LOG_FORMAT: format });
      await terminal.sees('ready');
      terminal.types(CONTROL_C);
      const { code, shown } = await terminal.left;
      assert.equal(code, 0, shown);
      assert.match(shown, expected, format);
    };
    await Promise.all([
      assertForm('auto', TEXT),
      assertForm('text', TEXT),
      assertForm('json', JSON_LINE),
    ]);
  },
  withoutTerminal,
);

test('in a pipe, the log is JSON unless LOG_FORMAT is text', async (t) => {
  const assertForm = async (format: string, expected: RegExp) => {
    const given = { ...environment, LOG_FORMAT: format };
    const running = startProgram(t, program, ['serve', 'webhook'], given);
    await until(() => expected.test(running.stdout()), `the line of ${format}`);
    running.signal('SIGTERM');
    assert.equal((await running.ended).code, 0, format);
  };
  await Promise.all([
    assertForm('auto', JSON_LINE),
    assertForm('text', TEXT),
    assertForm('json', JSON_LINE),
  ]);
});
