/** The alert rules, their tests and the queries of the dashboard, as Prometheus reads them. */
import assert from 'node:assert/strict';
import { cpSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { alertRules, dashboardExpressions } from '../../support/deploy.ts';
import { makeDirectory } from '../../support/directories.ts';
import { root } from '../../support/process.ts';
import { runTool } from '../tools.ts';

const place = makeDirectory({ after }, 'prometheus');
cpSync(join(root, 'deploy/prometheus'), place, { recursive: true });
const file = (name: string) => join(place, name);

test('Prometheus accepts every configuration and the rules', () => {
  for (const name of ['prometheus.yaml', 'kubernetes.yaml', 'systemd.yaml']) {
    const { code, output } = runTool('promtool', ['check', 'config', file(name)]);
    assert.equal(code, 0, output);
    assert.match(output, new RegExp(`SUCCESS: ${alertRules().length} rules found`));
  }
});

test('every alert is silent before the trouble of its test, and fires in it', () => {
  const { code, output } = runTool('promtool', ['test', 'rules', file('rules.test.yaml')]);
  assert.equal(code, 0, output);
});

test('Prometheus can read every query of the dashboard', () => {
  const rule = ([, expr]: readonly [string, string], index: number) =>
    `      - record: panel:${index}\n        expr: ${JSON.stringify(expr.replaceAll('$__rate_interval', '5m'))}\n`;
  const rules = dashboardExpressions().map(rule);
  assert.ok(rules.length > 20);
  const text = `groups:\n  - name: board\n    rules:\n${rules.join('')}`;
  writeFileSync(file('board.yaml'), text);
  const { code, output } = runTool('promtool', ['check', 'rules', file('board.yaml')]);
  assert.equal(code, 0, output);
});
