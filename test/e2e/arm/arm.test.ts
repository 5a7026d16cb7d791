/**
 * The program on an emulated 64-bit ARM processor, with a PostgreSQL of this machine.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { createEmptyDatabase } from '../../support/database.ts';
import { makeDirectory } from '../../support/directories.ts';
import { ask, logIn, variables, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { buildProgram, startProgram } from '../../support/process.ts';
import { secretsClient } from '../../support/secrets.ts';
import { SERVICES } from '../../support/settings.ts';
import { fetchNode } from './arm.ts';

test('commands and all services run on ARM', { timeout: 280_000 }, async (t) => {
  const node = fetchNode(makeDirectory(t, 'arm'));
  const [program, ...words] = node;
  const facts = execFileSync(program, [...words, '-p', 'process.arch + " " + process.version'], {
    encoding: 'utf8',
  });
  assert.match(facts, /^arm64 v/);
  t.diagnostic(facts.trim());

  const database = await createEmptyDatabase(t);
  // With the cost of a password that is the default.
  const { PASSWORD_SCRYPT: _cost, ...environment } = variables(database.url);
  for (const command of [['migrate'], ['check'], ['user', 'list']]) {
    const one = startProgram(t, buildProgram(), command, environment, { node });
    const { code } = await one.ended;
    assert.equal(code, 0, `${command.join(' ')}: ${one.stderr()}`);
  }
  const running = startProgram(t, buildProgram(), ['serve'], environment, { node });
  await running.ready(...SERVICES);
  const identity = await running.url('identity');
  const bearer = await logIn(identity);
  assert.equal((await ask('GET', `${identity}/api/test/`, { bearer })).status, 200);
  const client = secretsClient(await running.url('secrets'));
  const { id, secret } = await client.keep('for one reader', { max_reads: 1 });
  assert.equal((await client.decrypt(id, secret)).json.password, 'for one reader');
  assert.equal((await client.decrypt(id, secret)).status, 404);
  const event = { bearer: WEBHOOK_TOKEN, body: { event: 'x', data: { page_id: 'p' } } };
  const { json } = await ask('POST', `${await running.url('webhook')}/webhook`, event);
  assert.equal(json.status, 'accepted');
  running.signal('SIGTERM');
  assert.deepEqual(await running.ended, { code: 0, signal: null });
});
