import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { supervise } from '../../../scripts/supervise.ts';
import { root } from '../../support/process.ts';
import { test, until } from '../../support/until.ts';

const directory = mkdtempSync(join(tmpdir(), 'gatehouse-supervise-'));
after(() => rmSync(directory, { recursive: true }));
const options = { cwd: directory, env: process.env };

/**
 * A command that says in a file that it is up and which signals it gets; it ends after a number of
 * them.
 */
function listener(
  name: string,
  signals: number,
): { command: [string, string[]]; said: () => string[] } {
  const file = join(directory, name);
  const program = `
    const { appendFileSync } = require('node:fs');
    const say = (word) => appendFileSync(${JSON.stringify(file)}, word + '\\n');
    let left = ${signals};
    for (const signal of ['SIGINT', 'SIGTERM']) {
      process.on(signal, () => { say(signal); left -= 1; if (left === 0) process.exit(7); });
    }
    setInterval(() => {}, 60_000);
    say('up');`;
  const said = () => (existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : []);
  return { command: [process.execPath, ['-e', program]], said };
}

test('the end of a command is reported with its status', async () => {
  assert.equal(await supervise('TERM', 'sh', ['-c', 'exit 7'], options).ended, 7);
  assert.equal(await supervise('TERM', 'sh', ['-c', 'kill -9 $$'], options).ended, 128 + 9);
});

test('signals are forwarded one by one', async (t) => {
  const { command, said } = listener('told', 2);
  const run = supervise('TERM', ...command, options);
  t.after(() => run.tell('QUIT'));
  await until(() => said().includes('up'));
  run.tell('INT');
  await until(() => said().includes('SIGINT'));
  run.tell('TERM');
  assert.equal(await run.ended, 7);
  assert.deepEqual(said(), ['up', 'SIGINT', 'SIGTERM']);
});

test('a command gets its last signal when its parent is killed', async () => {
  const { command, said } = listener('orphan', 1);
  const starter = join(directory, 'starter.mjs');
  const module = JSON.stringify(join(root, 'scripts/supervise.js'));
  writeFileSync(
    starter,
    `import { supervise } from ${module}; supervise('TERM', ...${JSON.stringify(command)}, ${JSON.stringify({ cwd: directory, env: {} })});`,
  );
  const parent = spawn(process.execPath, [starter], { stdio: 'ignore' });
  await until(() => said().includes('up'));
  parent.kill('SIGKILL');
  await once(parent, 'exit');
  await until(() => said().length > 1);
  assert.deepEqual(said(), ['up', 'SIGTERM']);
});
