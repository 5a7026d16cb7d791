/** Other programs may read the same standard input. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createTerminal, runCommand } from '../../../src/commands/command.ts';

test('a command that reads nothing does not look at standard input', async () => {
  let looks = 0;
  const { stdin, stdout, stderr } = process;
  const streams = {
    get stdin() {
      looks += 1;
      return stdin;
    },
    stdout,
    stderr,
  };
  const terminal = createTerminal(streams, {}, () => true);
  const command = { name: 'nothing', summary: 'Do nothing', run: async () => {} };
  assert.equal(await runCommand([command], ['nothing'], terminal), 0);
  assert.equal(looks, 0);
});
