/** The form of the log: text on a terminal, JSON elsewhere, or as LOG_FORMAT says. */
import assert from 'node:assert/strict';
import { hostname } from 'node:os';
import { buildProgram, startProgram } from '../support/process.ts';
import { startOnTerminal, withoutTerminal } from '../support/terminal.ts';
import { test, until } from '../support/until.ts';

const program = buildProgram();
const environment = {
  INSTANCE_NAME: 'hooks-1',
  WEBHOOK_VARIANT: 'plain',
  WEBHOOK_TOKEN: 'a-webhook-token-of-32-characters',
  HOST: '127.0.0.1',
  PORT: '0',
};
const TEXT = /^\d\d:\d\d:\d\d\.\d{3} INFO {2}webhook {2}ready app=gatehouse-webhook$/m;
const JSON_LINE =
  /^\{"time":"[^"]+","level":"info","instance":"hooks-1","version":"[0-9.]+","service":"webhook","app":"gatehouse-webhook","message":"ready"\}$/m;

test(
  'on a terminal, the log is text unless LOG_FORMAT is json',
  async (t) => {
    const assertForm = async (format: string, expected: RegExp) => {
      const command = [process.execPath, `${program}/dist/cli.js`, 'serve', 'webhook'];
      const terminal = startOnTerminal(t, command, { ...environment, LOG_FORMAT: format });
      await terminal.sees('ready');
      terminal.interrupts();
      const { code, shown } = await terminal.left;
      assert.equal(code, 0, shown);
      assert.match(shown, expected, format);
    };
    await Promise.all([assertForm('auto', TEXT), assertForm('json', JSON_LINE)]);
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
  await Promise.all([assertForm('auto', JSON_LINE), assertForm('text', TEXT)]);
});

test('why serve ended has the form of the log', async (t) => {
  async function fail(given: Readonly<Record<string, string>>, service = 'webhook') {
    const running = startProgram(t, program, ['serve', service], { ...environment, ...given });
    const { code } = await running.ended;
    return { code, notes: running.notes(), stderr: running.stderr() };
  }
  const [text, ...all] = await Promise.all([
    fail({ LOG_LEVEL: 'loud', LOG_FORMAT: 'text' }),
    fail({ LOG_LEVEL: 'loud' }),
    fail({ INSTANCE_NAME: 'a\nb' }),
    // No machine has this address (RFC 5737).
    fail({ HOST: '192.0.2.1' }),
    fail({}, 'letterbox'),
  ]);
  const expected = [
    [78, 'hooks-1', /^LOG_LEVEL must be one of debug, info, warn, error, silent\.$/],
    [78, hostname(), /^INSTANCE_NAME must be one line of at most 300 characters\.$/],
    [1, 'hooks-1', /^webhook cannot listen on 192\.0\.2\.1:0 \(EADDRNOTAVAIL\)/],
    [2, 'hooks-1', /^serve: "letterbox" is not one of /],
  ] as const;
  for (const [index, { code, notes, stderr }] of all.entries()) {
    const [end, name, said] = expected[index] ?? assert.fail();
    assert.deepEqual([code, notes.length], [end, 1], stderr);
    const [{ level, instance, version, message } = {}] = notes;
    assert.deepEqual([level, instance, typeof version], ['error', name, 'string']);
    assert.match(String(message), said);
  }
  assert.deepEqual(text.notes, []);
  assert.match(text.stderr, /^gatehouse: LOG_LEVEL must be one of [^\n]*\n$/);
});
