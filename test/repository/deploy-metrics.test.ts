/** The alert rules and the dashboard against the metrics that the program has. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TABLES } from '../../scripts/routes.ts';
import { ERRORS } from '../../src/platform/http/route/errors.ts';
import { alertRules, dashboardExpressions, readDeployFile } from '../support/deploy.ts';
import { documentedMetrics, readDocument } from '../support/documents.ts';

const ROUTES = new Set(
  Object.values(TABLES).flatMap(({ all }) =>
    all.map(({ method, pattern }) => `${method} ${pattern}`),
  ),
);
const rules = alertRules();
const board = dashboardExpressions();

/** Added by Prometheus, or by its text format. */
const PROMETHEUS = ['job', 'instance', 'le'];
const metrics = new Map([
  ...documentedMetrics().map(({ name, labels }) => [name, labels] as const),
  ['up', []],
]);
const NAME = /\b(?:(?:gatehouse|process|nodejs)_[a-z0-9_]+|up)\b/g;
const family = (name: string) =>
  metrics.has(name) ? name : name.replace(/_(bucket|sum|count)$/, '');
const namesIn = (expr: string) =>
  [...expr.replace(/"[^"]*"/g, '""').matchAll(NAME)].map(([name]) => family(name));
const labelsOf = (...names: readonly string[]) => [
  ...PROMETHEUS,
  ...names.flatMap((name) => metrics.get(family(name)) ?? []),
];
const EXISTING: Readonly<Record<string, (value: string) => boolean>> = {
  route: (value) => ROUTES.has(value),
  reason: (value) => Object.hasOwn(ERRORS, value),
  job: (value) => value === 'gatehouse',
};

function problemsOf(expr: string): string[] {
  const names = namesIn(expr);
  const unknown = names.filter((name) => !metrics.has(name));
  const selected = [...expr.matchAll(/([a-z0-9_]+)\{([^}]*)\}/g)].flatMap(
    ([, name = '', selector = '']) =>
      [...selector.matchAll(/([a-z]+)(=~|!=|!~|=)"([^"]*)"/g)].flatMap(
        ([whole, label = '', operator = '', value = '']) => {
          const values = operator.endsWith('~') ? value.split('|') : [value];
          const exist = values.every(EXISTING[label] ?? (() => true));
          return labelsOf(name).includes(label) && exist ? [] : whole;
        },
      ),
  );
  const grouped = [...expr.matchAll(/\bby \(([^)]*)\)/g)]
    .flatMap(([, list = '']) => list.split(', '))
    .filter((label) => !labelsOf(...names).includes(label));
  return [...(names.length === 0 ? ['no metric'] : []), ...unknown, ...selected, ...grouped];
}

test('the metrics, labels and values of every alert and panel exist', () => {
  assert.ok(rules.length > 10 && board.length > 20);
  for (const [title, expr] of [...rules.map((rule) => [rule.alert, rule.expr] as const), ...board])
    assert.deepEqual(problemsOf(expr), [], title);
  for (const planted of [
    'rate(gatehouse_requests[5m])',
    'gatehouse_requests_total{root="x"}',
    'gatehouse_requests_total{route="GET /nowhere"}',
    'gatehouse_requests_refused_total{reason=~"not_found|no_reason"}',
    'sum by (colour) (gatehouse_requests_total)',
  ])
    assert.equal(problemsOf(planted).length, 1, planted);
});

test('the dashboard shows every metric', () => {
  const shown = new Set(board.flatMap(([, expr]) => namesIn(expr)));
  const hidden = [...metrics.keys()].filter((name) => name !== 'up' && !shown.has(name));
  assert.deepEqual(hidden, []);
});

test('every alert has a test in which it is silent and then fires', () => {
  const [, ...tests] = readDeployFile('prometheus/rules.test.yaml').split(/^ {2}- interval:/m);
  const tested = tests.map((text) => {
    const [silent, firing] = text.split(/^ +alertname: /m).slice(1);
    assert.ok(silent && firing && !silent.includes('exp_alerts:'));
    assert.match(firing, /^\w+\n +exp_alerts:\n +- exp_labels:/);
    assert.equal(silent.split('\n')[0], firing.split('\n')[0]);
    return firing.split('\n')[0];
  });
  assert.deepEqual(
    [...new Set(tested)],
    rules.map(({ alert }) => alert),
  );
});

test('the runbook has an entry for every alert, which the alert names, and no other', () => {
  const entries = [...readDocument('docs/runbook.md').matchAll(/^## (.*)\n\n(\w+)\. /gm)];
  assert.deepEqual(
    entries.map(([, name = '', severity]) => ({
      alert: name,
      severity: severity?.toLowerCase(),
      runbook: `docs/runbook.md#${name.toLowerCase()}`,
    })),
    rules.map(({ alert, severity, runbook }) => ({ alert, severity, runbook })),
  );
});
