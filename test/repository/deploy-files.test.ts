/**
 * The files in deploy/ against the image, the code, the metrics and each other, and the processes
 * that they start.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { TABLES } from '../../scripts/routes.ts';
import { ERRORS } from '../../src/platform/http/route/errors.ts';
import { configure, SERVICE_NAMES } from '../../src/serve.ts';
import {
  alertRules,
  compose,
  COMPOSED,
  composeServices,
  dashboardExpressions,
  type Deployed,
  KUBERNETES,
  kubernetesWorkloads,
  ofKind,
  readDeployFile,
  secretKeys,
  systemdUnits,
  unitOf,
  unitValues,
  valuesOf,
  workloads,
} from '../support/deploy.ts';
import { makeDirectory } from '../support/directories.ts';
import { documentedMetrics, readDocument, rowsUnder } from '../support/documents.ts';
import { root } from '../support/process.ts';
import { VARIABLES } from '../support/settings.ts';

const { version }: { version: string } = JSON.parse(readDocument('package.json'));
const dockerfile = readDocument('Dockerfile');
const deployments = ofKind('Deployment').map((text) => ({
  text,
  service: valuesOf(text, 'app.kubernetes.io/component')[0] ?? '',
  ports: valuesOf(text, 'containerPort'),
}));

test('every image has the version of the package, or is pinned by its digest', () => {
  const images = [compose, ...workloads].flatMap((text) => valuesOf(text, 'image'));
  const bases = ['Dockerfile', 'Dockerfile.minimal', '.github/workflows/check.yml'].flatMap(
    (file) => readDocument(file).match(/(?<=^ARG NODE=|image: )\S+/gm) ?? [],
  );
  const own = images.filter((image) => image.includes('gatehouse:'));
  assert.deepEqual(new Set(own.map((image) => image.replace(/^.*:/, ''))), new Set([version]));
  const others = [...images, ...bases].filter((image) => !own.includes(image));
  assert.deepEqual([own.length, others.length], [5, 5]);
  for (const image of others) assert.match(image, /^\w+:\d[\w.-]*@sha256:[0-9a-f]{64}$/);
  for (const job of ofKind('Job'))
    assert.ok(valuesOf(job, 'name')[0]?.endsWith(version.replaceAll('.', '-')));
});

test('the ports are those of the image and the code, also for Caddy and Prometheus', () => {
  const [, exposed = ''] = /^EXPOSE (.*)$/m.exec(dockerfile) ?? [];
  const all = deployments.map(({ ports: [port] }) => port);
  assert.deepEqual(all.sort(), exposed.split(' ').sort());
  const [metrics = ''] = valuesOf(readDeployFile('prometheus/kubernetes.yaml'), 'port');
  const caddy = readDeployFile('compose/Caddyfile');
  const scraped = readDeployFile('prometheus/prometheus.yaml');
  for (const { service, ports } of deployments) {
    assert.deepEqual(ports, [VARIABLES[`${service.toUpperCase()}_PORT`], metrics]);
    assert.ok(caddy.includes(`\treverse_proxy ${service}:${ports[0]}\n`));
    assert.ok(scraped.includes(`"${service}:${metrics}"`));
    const own = ofKind('Service').filter((text) => text.includes(`name: gatehouse-${service}\n`));
    assert.deepEqual(valuesOf(own.join(), 'port'), [ports[0]]);
  }
});

/** Lines that each pod, the services of Compose, and each unit must have. */
const HARDENED: ReadonlyArray<readonly [texts: readonly string[], lines: readonly string[]]> = [
  [
    workloads,
    [
      'automountServiceAccountToken: false',
      'enableServiceLinks: false',
      'runAsNonRoot: true',
      'runAsUser: 1000',
      'runAsGroup: 1000',
      'type: RuntimeDefault',
      'allowPrivilegeEscalation: false',
      'readOnlyRootFilesystem: true',
      'drop: [ALL]',
      'memory: 256Mi',
    ],
  ],
  [
    deployments.map(({ text }) => text),
    ['path: /livez', 'path: /readyz', '- name: http', '- name: metrics'],
  ],
  [
    [compose.split(/^x-environment/m)[0] ?? ''],
    [
      'read_only: true',
      'cap_drop: [ALL]',
      'security_opt: ["no-new-privileges:true"]',
      'mem_limit: 256m',
    ],
  ],
  // A wrong setting does not become right by itself.
  [
    SERVICE_NAMES.map(unitOf),
    ['MemoryMax=256M', 'Restart=always', 'RestartPreventExitStatus=78', 'NoNewPrivileges=yes'],
  ],
];

test('every process is without privileges, limited in memory, and probed', () => {
  for (const [texts, needed] of HARDENED) {
    assert.ok(texts.length > 0);
    for (const text of texts) {
      const lines = text.split('\n').map((line) => line.trim());
      assert.deepEqual(
        needed.filter((line) => lines.filter((one) => one === line).length !== 1),
        [],
        text,
      );
    }
  }
  // Node needs what it forbids.
  for (const name of SERVICE_NAMES)
    assert.deepEqual(unitValues(unitOf(name), 'MemoryDenyWriteExecute'), []);
  assert.match(dockerfile, /^USER 1000:1000$/m);
});

test('every file allows enough time for a shutdown', () => {
  const needed = Number(VARIABLES.SHUTDOWN_GRACE) + 2;
  const times = [
    ...valuesOf(compose.split(/^services:/m)[0] ?? '', 'stop_grace_period'),
    ...SERVICE_NAMES.flatMap((name) => unitValues(unitOf(name), 'TimeoutStopSec')),
    ...deployments.map(({ text }) => {
      const [seconds] = valuesOf(text, 'terminationGracePeriodSeconds');
      return String(Number(seconds) - Number(VARIABLES.SHUTDOWN_DELAY));
    }),
  ];
  assert.equal(times.length, 1 + 2 * SERVICE_NAMES.length);
  for (const time of times) assert.ok(Number.parseInt(time, 10) > needed, time);
});

test('only Caddy may say who a client is, and only Caddy is reached from outside', () => {
  const caddy = COMPOSED.find(({ name }) => name === 'caddy')?.text ?? '';
  assert.deepEqual(valuesOf(compose, 'TRUSTED_PROXIES'), valuesOf(caddy, 'ipv4_address'));
  const reached = COMPOSED.flatMap(({ name, text }) => (/^ {4}ports:/m.test(text) ? name : []));
  assert.deepEqual(reached, ['caddy']);
});

const deploying = readDocument('docs/deployment-files.md');

test('the commands for Kubernetes create the Secrets of the pods, and apply every manifest', () => {
  const created = [...deploying.matchAll(/create secret generic (\S+) (.*)$/gm)].map(
    ([, name = '', rest = '']) =>
      [name, [...rest.matchAll(/--from-file=([a-z-]+)/g)].map(([, key = '']) => key)] as const,
  );
  assert.deepEqual(new Map(created), secretKeys);
  const named = workloads.flatMap((text) => valuesOf(text, 'secretName'));
  assert.deepEqual([...secretKeys.keys()].sort(), named.sort());
  const applied = deploying.match(/(?<=-f deploy\/)kubernetes\/\S+/g) ?? [];
  const needed = KUBERNETES.filter((name) => !name.endsWith('webhook-forward.yaml'));
  assert.deepEqual(applied.sort(), needed);
});

test('the commands for systemd install this version and create every credential', () => {
  assert.ok(deploying.includes(`--prefix /usr/local ./gatehouse-services-${version}.tgz`));
  assert.match(unitOf('identity'), /^ExecStart=\/usr\/local\/bin\/gatehouse /m);
  const [, names = ''] = /for name in ([a-z -]+); do openssl/.exec(deploying) ?? [];
  const needed = SERVICE_NAMES.flatMap((name) => unitValues(unitOf(name), 'LoadCredential'));
  const created = ['database-url', ...names.split(' ')].map(
    (name) => `${name}:/etc/gatehouse/credentials/${name}`,
  );
  assert.deepEqual(new Set(needed), new Set(created));
});

test('deployment-files.md lists the names that Caddy answers for', () => {
  const hosts = readDeployFile('compose/Caddyfile').match(/^[a-z]+(?=\.\{\$DOMAIN\} \{$)/gm) ?? [];
  assert.deepEqual(
    rowsUnder('docs/deployment-files.md', 'name | leads to').map(([name]) => name),
    hosts.map((name) => `${name}.example.org`),
  );
});

const ROUTES = Object.values(TABLES).flatMap(({ all }) =>
  all.map(({ method, pattern }) => `${method} ${pattern}`),
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
  route: (value) => ROUTES.includes(value),
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

const DEPLOYED = [...composeServices(), ...systemdUnits(SERVICE_NAMES), ...kubernetesWorkloads()];
const place = makeDirectory({ after }, 'deploy');
const secrets = join(place, 'secrets');
const createSecrets = () => execFileSync('sh', [join(root, 'deploy/compose/new-secrets'), secrets]);
createSecrets();

/** The environment with the secrets in another directory. */
function environmentOf({ environment, secrets: seen }: Deployed, directory = secrets) {
  const moved = Object.entries(environment).map(([name, value]) => [
    name,
    value.replace(`${seen}/`, `${directory}/`),
  ]);
  return { ...Object.fromEntries(moved), FIRST_CREDENTIALS_DIR: place };
}

test('there are files for all services', () => {
  const words = DEPLOYED.map((one) => one.words.join(' '));
  const each = SERVICE_NAMES.map((name) => `serve ${name}`);
  assert.deepEqual(words.sort(), ['migrate', ...each, ...each, ...each].sort());
});

for (const deployed of DEPLOYED) {
  const { from, environment, files, secrets: seen } = deployed;
  const [command, service = 'identity'] = deployed.words;

  test(`${from}: every setting exists and is accepted, and its secrets are there`, async () => {
    const { NODE_OPTIONS: options, ...settings } = environment;
    assert.equal(options, command === 'serve' ? '--max-semi-space-size=8' : undefined);
    const isKnown = (name: string) =>
      Object.hasOwn(VARIABLES, name) || Object.hasOwn(VARIABLES, name.replace(/_FILE$/, ''));
    assert.deepEqual(
      Object.keys(settings).filter((name) => !isKnown(name)),
      [],
    );
    const purpose = command === 'serve' ? 'serve' : 'administer';
    const { services, metrics, warnings } = await configure(
      [service],
      purpose,
      environmentOf(deployed),
    );
    // The connection of compose.yaml stays in a network of the machine. SECURITY.md says when TLS
    // is needed.
    const meant = warnings.filter((text) => !text.includes('to the database at postgres'));
    assert.deepEqual(meant, []);
    const [{ name, port } = { name: '', port: 0 }] = services;
    assert.deepEqual([name, String(port)], [service, VARIABLES[`${service.toUpperCase()}_PORT`]]);
    if (!from.startsWith('systemd')) assert.equal(metrics?.port ?? 9464, 9464);

    const named = Object.values(environment).filter((value) => value.startsWith(`${seen}/`));
    assert.deepEqual(named.map((path) => path.slice(seen.length + 1)).sort(), [...files].sort());
  });
}

test('new-secrets creates the files that compose.yaml names, all different, and changes none', () => {
  const names = valuesOf(compose, 'file').map((path) => path.replace('./compose/secrets/', ''));
  assert.deepEqual(names.sort(), readdirSync(secrets).sort());
  const read = () => names.map((name) => readFileSync(join(secrets, name), 'utf8'));
  const first = read();
  const values = first.filter((value) => value !== '');
  assert.equal(new Set(values).size, names.filter((name) => !name.endsWith('-previous')).length);
  createSecrets();
  assert.deepEqual(read(), first);
  assert.equal(statSync(secrets).mode & 0o777, 0o700);
});

test('the commands for systemd make credentials that their owner can read, and services take', async () => {
  const [commands = ''] = /^install -d -m 700 [\s\S]*?; done\)$/m.exec(deploying) ?? [];
  const directory = join(place, 'systemd');
  execFileSync('sh', ['-e', '-c', commands.replaceAll('/etc/gatehouse/credentials', directory)]);
  for (const name of readdirSync(directory))
    assert.equal(statSync(join(directory, name)).mode & 0o777, 0o600, name);
  for (const unit of systemdUnits(SERVICE_NAMES)) {
    const given = environmentOf(unit, directory);
    assert.deepEqual((await configure(unit.words.slice(1), 'serve', given)).warnings, []);
  }
});
