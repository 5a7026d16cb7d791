/** The alert rules and the dashboard against the metrics that the program has. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Route } from '../../src/platform/http/route/route.ts';
import { ERRORS } from '../../src/platform/http/route/errors.ts';
import { createRoutes as createIdentityRoutes } from '../../src/identity/routes.ts';
import { createRoutes as createSecretsRoutes } from '../../src/secrets/routes.ts';
import { createRoutes as createWebhookRoutes } from '../../src/webhook/routes.ts';
import { SITE } from '../support/service-context.ts';
import { alertRules, dashboardExpressions, only, readDeployFile } from '../support/deploy.ts';
import { documentedMetrics, readDocument } from '../support/documents.ts';
import { listAt, mapAt, readYaml, textAt, type YamlMap } from '../support/yaml.ts';

const limits = {
  expires_in: { default: 1, max: 1 },
  max_reads: { default: 1, max: 1 },
  password: { max_bytes: 64_512 },
};
const ROUTES: ReadonlyArray<Route<never>> = [
  ...(await createIdentityRoutes(SITE)),
  ...(await createSecretsRoutes(limits, SITE)),
  ...(await createWebhookRoutes(SITE)),
];
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

for (const [title, expr] of [
  ...rules.map((rule) => [`alert ${rule.alert}`, rule.expr] as const),
  ...board.map(([panel, expr]) => [`panel ${panel}`, expr] as const),
]) {
  test(`${title}: its metrics, labels and values exist`, () => {
    const names = namesIn(expr);
    assert.ok(names.length > 0);
    for (const name of names) assert.ok(metrics.has(name), name);
    for (const [, name = '', selector = ''] of expr.matchAll(/([a-z0-9_]+)\{([^}]*)\}/g)) {
      for (const [, label = '', operator = '', value = ''] of selector.matchAll(
        /([a-z]+)(=~|!=|!~|=)"([^"]*)"/g,
      )) {
        assert.ok(
          [...PROMETHEUS, ...(metrics.get(family(name)) ?? [])].includes(label),
          `${name} has no label ${label}`,
        );
        const values = operator.endsWith('~') ? value.split('|') : [value];
        if (label === 'route')
          for (const one of values)
            assert.ok(
              ROUTES.some(({ method, pattern }) => `${method} ${pattern}` === one),
              one,
            );
        if (label === 'reason')
          for (const one of values) assert.ok(Object.hasOwn(ERRORS, one), one);
        if (label === 'job') assert.equal(value, 'gatehouse');
      }
    }
    const possible = [...PROMETHEUS, ...names.flatMap((name) => metrics.get(name) ?? [])];
    for (const [, list = ''] of expr.matchAll(/\bby \(([^)]*)\)/g)) {
      for (const label of list.split(', '))
        assert.ok(possible.includes(label), `no metric has the label ${label}`);
    }
  });
}

test('the dashboard shows every metric', () => {
  const shown = new Set(board.flatMap(([, expr]) => namesIn(expr)));
  assert.deepEqual(
    [...metrics.keys()].filter((name) => name !== 'up' && !shown.has(name)),
    [],
  );
});

test('every alert has a test in which it is silent and then fires', () => {
  const tested = listAt(only(readYaml(readDeployFile('prometheus/rules.test.yaml'))), 'tests').map(
    (one) => {
      const [silent, firing] = listAt(one, 'alert_rule_test').map((step): YamlMap =>
        mapAt({ step }, 'step'),
      );
      assert.ok(silent && firing && !('exp_alerts' in silent));
      assert.equal(listAt(firing, 'exp_alerts').length, 1);
      assert.equal(textAt(silent, 'alertname'), textAt(firing, 'alertname'));
      return textAt(firing, 'alertname');
    },
  );
  assert.deepEqual(
    [...new Set(tested)],
    rules.map(({ alert }) => alert),
  );
});

test('the runbook has an entry for every alert, which the alert names, and no other', () => {
  const entries = [...readDocument('docs/runbook.md').matchAll(/^## (.*)\n\n(\w+)\. /gm)];
  assert.deepEqual(
    entries.map(([, name, severity]) => [name, severity?.toLowerCase()]),
    rules.map(({ alert, severity }) => [alert, severity]),
  );
  assert.deepEqual(
    rules.map(({ runbook }) => runbook),
    rules.map(({ alert }) => `docs/runbook.md#${alert.toLowerCase()}`),
  );
});
