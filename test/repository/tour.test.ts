/** The tour and its pages as a reader runs them: each command, and what it prints. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { promisify } from 'node:util';
import { createEmptyDatabase } from '../support/database.ts';
import { makeDirectory } from '../support/directories.ts';
import { documentedMetrics, readDocument as read } from '../support/documents.ts';
import { AUTH_TOKEN, startGatehouse, WEBHOOK_TOKEN } from '../support/gatehouse.ts';

const run = promisify(execFile);

/**
 * Every value of a text that holds one JSON value after the other, each beginning on its own line.
 */
function jsonValues(text: string): unknown[] {
  const values: unknown[] = [];
  let gathered = '';
  for (const line of text.trim().split('\n')) {
    gathered += line;
    try {
      values.push(JSON.parse(gathered));
      gathered = '';
    } catch {
      // Goes on in the next line.
    }
  }
  assert.equal(gathered, '', 'every value is complete');
  return values;
}

/**
 * Replaces what differs from run to run. A token is recognized by its length. Error messages are
 * not compared.
 */
function comparable(value: unknown): unknown {
  const withoutMessage = (key: string, member: unknown): unknown =>
    key === 'error' ? { ...Object(member), message: '…' } : member;
  const text = JSON.stringify(value, withoutMessage);
  return JSON.parse(
    text
      .replaceAll(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, '<uuid>')
      .replaceAll(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g, '<time>')
      .replaceAll(/"([A-Za-z0-9_-]{43}|key:[A-Za-z0-9_-]{49})"/g, '"<key>"')
      .replaceAll(/"curl\/[0-9.]+"/g, '"curl"'),
  );
}

/** @returns each series of Prometheus's text format as its metric's name, type and labels */
function seriesOf(text: string): string[] {
  const types = new Map(
    [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name = '', type = '']) => [name, type]),
  );
  const series = [...text.matchAll(/^([a-z0-9_]+)(?:\{(.*)\})? \S+$/gm)].map(
    ([, name = '', labels = '']) => {
      const family = types.has(name) ? name : name.replace(/_(bucket|sum|count)$/, '');
      const names = [...labels.matchAll(/([a-z_]+)="/g)]
        .map(([, label = '']) => label)
        .filter((label) => label !== 'le');
      return `${family} ${types.get(family)} ${names.join()}`;
    },
  );
  return [...new Set(series)];
}

test('every command of the tour gets the printed reply, and the metrics are as documented', async (context) => {
  const database = await createEmptyDatabase(context);
  const directory = makeDirectory({ after }, 'tour');
  const state = join(directory, '.data');
  mkdirSync(state);
  const environment = {
    ADMIN_PASSWORD: undefined,
    FIRST_CREDENTIALS_DIR: state,
    SHARE_PAGES: 'on', // as `make start` does
  };
  const { url } = await startGatehouse(
    context,
    ['identity', 'secrets', 'webhook'],
    database.url,
    environment,
  );
  writeFileSync(join(directory, '.data/auth-token'), AUTH_TOKEN);
  writeFileSync(join(directory, '.data/webhook-token'), WEBHOOK_TOKEN);
  const pages = ['tour', 'secrets', 'sessions', 'identity', 'audit'];
  const tour = pages.map((name) => read(`docs/${name}.md`)).join('\n');
  const steps = [...tour.matchAll(/```sh\n([\s\S]*?)```(?:\n```json\n([\s\S]*?)```)?/g)];
  assert.ok(steps.length >= 10, 'the tour has its steps');
  // One shell for all steps, as in a terminal.
  const script = steps
    .map(([, commands = '']) => `${commands}echo ----`)
    .join('\n')
    .replace('http://localhost:3000', url.identity)
    .replace('http://localhost:8080', url.secrets)
    .replace('http://localhost:8000', url.webhook);
  const { stdout } = await run('sh', ['-c', script], { cwd: directory });
  const replies = stdout.split('----\n').slice(0, -1);
  assert.deepEqual(
    replies.map((reply) => jsonValues(reply || 'null').map(comparable)),
    steps.map(([, , reply = 'null']) => jsonValues(reply).map(comparable)),
  );
  const series = seriesOf(await (await fetch(`${url.metrics}/metrics`)).text());
  const documented = documentedMetrics().map(
    ({ name, type, labels }) => `${name} ${type} ${labels.join()}`,
  );
  assert.deepEqual(
    series.filter((one) => !documented.includes(one)),
    [],
    'metrics with other types or labels',
  );
  assert.ok(series.length >= 18, `the tour leads to most metrics, not only ${series.length}`);
});
