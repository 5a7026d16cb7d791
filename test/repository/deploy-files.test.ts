/**
 * compose.yaml, the systemd units and the Kubernetes manifests against the image of the program,
 * and each other.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { SERVICE_NAMES } from '../../src/serve.ts';
import {
  compose,
  KUBERNETES,
  manifest,
  ofKind,
  only,
  readDeployFile,
  secretKeys,
  unitOf,
  unitValues,
  workloads,
} from '../support/deploy.ts';
import { readDocument, rowsUnder } from '../support/documents.ts';
import { root } from '../support/process.ts';
import { VARIABLES } from '../support/settings.ts';
import { listAt, mapAt, readYaml, textAt, type Yaml } from '../support/yaml.ts';

const { version }: { version: string } = JSON.parse(
  readFileSync(join(root, 'package.json'), 'utf8'),
);
const dockerfile = readFileSync(join(root, 'Dockerfile'), 'utf8');
const POD = 'spec.template.spec';
const CONTAINER = `${POD}.containers.0`;

const images = [
  ...Object.values(mapAt(compose, 'services')).map((service) => textAt(service, 'image')),
  ...workloads.map((workload) => textAt(workload, `${CONTAINER}.image`)),
];

test('every image has the version of the package, or is pinned by its digest', () => {
  const bases = ['Dockerfile', 'Dockerfile.minimal', '.github/workflows/check.yml'].flatMap(
    (file) =>
      [...readFileSync(join(root, file), 'utf8').matchAll(/(?:^ARG NODE=|image: )(\S+)/gm)].map(
        ([, image = '']) => image,
      ),
  );
  const own = images.filter((image) => image.includes('gatehouse:'));
  const others = [...images, ...bases].filter((image) => !own.includes(image));
  assert.deepEqual(new Set(own.map((image) => image.replace(/^.*:/, ''))), new Set([version]));
  assert.deepEqual([own.length, others.length], [7, 5]);
  for (const image of others) assert.match(image, /^\w+:\d[\w.-]*@sha256:[0-9a-f]{64}$/);
  const jobs = ofKind('Job').map((job) => textAt(job, 'metadata.name'));
  for (const name of jobs) assert.ok(name.endsWith(version.replaceAll('.', '-')), name);
});

test('ports and user are those of the image, and Caddy knows the ports', () => {
  const [, exposed = ''] = /^EXPOSE (.*)$/m.exec(dockerfile) ?? [];
  const ports = ofKind('Deployment').map((one) =>
    textAt(one, `${CONTAINER}.ports.0.containerPort`),
  );
  assert.deepEqual(ports.sort(), exposed.split(' ').sort());
  for (const deployment of ofKind('Deployment')) {
    const name = textAt(deployment, 'metadata.name');
    const [, service = ''] = name.split('-');
    const port = textAt(deployment, `${CONTAINER}.ports.0.containerPort`);
    assert.equal(port, VARIABLES[`${service.toUpperCase()}_PORT`]);
    assert.deepEqual(mapAt(manifest('Service', name), 'spec.ports.0'), {
      name: 'http',
      port: Number(port),
      targetPort: 'http',
    });
    assert.match(
      readDeployFile('compose/Caddyfile'),
      new RegExp(`^\treverse_proxy ${service}:${port}$`, 'm'),
    );
    assert.match(
      readDeployFile('prometheus/prometheus.yaml'),
      new RegExp(`"${service}:${textAt(deployment, `${CONTAINER}.ports.1.containerPort`)}"`),
    );
  }
  const [, user] = /^USER (\d+:\d+)$/m.exec(dockerfile) ?? [];
  for (const workload of workloads) {
    const { runAsUser, runAsGroup } = mapAt(workload, `${POD}.securityContext`);
    assert.equal(`${runAsUser}:${runAsGroup}`, user);
  }
});

test('every pod meets the restricted standard, and has no token and no links', () => {
  for (const workload of workloads) {
    const { automountServiceAccountToken, enableServiceLinks, securityContext } = mapAt(
      workload,
      POD,
    );
    assert.deepEqual([automountServiceAccountToken, enableServiceLinks], [false, false]);
    assert.deepEqual(securityContext, {
      runAsNonRoot: true,
      runAsUser: 1000,
      runAsGroup: 1000,
      fsGroup: 1000,
      seccompProfile: { type: 'RuntimeDefault' },
    });
    assert.deepEqual(mapAt(workload, `${CONTAINER}.securityContext`), {
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ['ALL'] },
    });
    assert.equal(listAt(workload, `${POD}.containers`).length, 1);
  }
});

test('probes use the probes of the program, on the port of its service', () => {
  for (const deployment of ofKind('Deployment')) {
    for (const [probe, path] of [
      ['livenessProbe', '/livez'],
      ['readinessProbe', '/readyz'],
    ]) {
      assert.deepEqual(mapAt(deployment, `${CONTAINER}.${probe}.httpGet`), { path, port: 'http' });
    }
  }
});

const LATE = 2;
const grace = Number(VARIABLES.SHUTDOWN_GRACE);
const delay = Number(VARIABLES.SHUTDOWN_DELAY);

test('every file allows enough time for a shutdown', () => {
  for (const deployment of ofKind('Deployment')) {
    assert.ok(
      Number(textAt(deployment, `${POD}.terminationGracePeriodSeconds`)) > delay + grace + LATE,
    );
  }
  for (const name of SERVICE_NAMES) {
    assert.ok(
      Number.parseInt(textAt(compose, `services.${name}.stop_grace_period`), 10) > grace + LATE,
    );
    assert.ok(Number(unitValues(unitOf(name), 'TimeoutStopSec')[0]) > grace + LATE);
  }
});

test('selectors find their pods, and policies name ports that exist', () => {
  const labels = (workload: Yaml) => mapAt(workload, 'spec.template.metadata.labels');
  for (const deployment of ofKind('Deployment')) {
    const name = textAt(deployment, 'metadata.name');
    assert.deepEqual(mapAt(deployment, 'spec.selector.matchLabels'), labels(deployment));
    assert.deepEqual(mapAt(manifest('Service', name), 'spec.selector'), labels(deployment));
    assert.deepEqual(
      mapAt(manifest('PodDisruptionBudget', name), 'spec.selector.matchLabels'),
      labels(deployment),
    );
    const ports = listAt(deployment, `${CONTAINER}.ports`).map((port) => textAt(port, 'name'));
    const allowed = listAt(manifest('NetworkPolicy', 'gatehouse'), 'spec.ingress').map((rule) =>
      textAt(rule, 'ports.0.port'),
    );
    assert.deepEqual(allowed, ports);
  }
  const forward = mapAt(
    manifest('NetworkPolicy', 'gatehouse-webhook-forward'),
    'spec.podSelector.matchLabels',
  );
  assert.deepEqual(forward, labels(manifest('Deployment', 'gatehouse-webhook')));
});

test('Prometheus finds the pods by the service for metrics', () => {
  const service = manifest('Service', 'gatehouse-metrics');
  const port = textAt(service, 'spec.ports.0.port');
  for (const deployment of ofKind('Deployment')) {
    assert.equal(textAt(deployment, `${CONTAINER}.ports.1.containerPort`), port);
    for (const [label, value] of Object.entries(mapAt(service, 'spec.selector'))) {
      assert.equal(mapAt(deployment, 'spec.template.metadata.labels')[label], value);
    }
  }
  const [scrape] = listAt(
    only(readYaml(readDeployFile('prometheus/kubernetes.yaml'))),
    'scrape_configs',
  );
  assert.ok(scrape);
  const found = mapAt(scrape, 'dns_sd_configs.0');
  assert.deepEqual(found, {
    names: ['gatehouse-metrics.gatehouse.svc.cluster.local'],
    type: 'A',
    port: Number(port),
  });
  assert.equal(
    `${textAt(service, 'metadata.name')}.${textAt(service, 'metadata.namespace')}.svc.cluster.local`,
    textAt(found, 'names.0'),
  );
});

test('every Secret of a pod is described', () => {
  const named = workloads.map((workload) => textAt(workload, `${POD}.volumes.0.secret.secretName`));
  assert.deepEqual([...secretKeys.keys()].sort(), named.sort());
});

test('memory is limited to 256 MiB everywhere', () => {
  for (const workload of workloads)
    assert.equal(textAt(workload, `${CONTAINER}.resources.limits.memory`), '256Mi');
  for (const name of SERVICE_NAMES) {
    assert.equal(textAt(compose, `services.${name}.mem_limit`), '256m');
    assert.deepEqual(unitValues(unitOf(name), 'MemoryMax'), ['256M']);
  }
});

test('the units do not forbid what Node needs, and restart except after a wrong setting', () => {
  for (const name of SERVICE_NAMES) {
    const unit = unitOf(name);
    assert.deepEqual(unitValues(unit, 'MemoryDenyWriteExecute'), []);
    assert.deepEqual(unitValues(unit, 'Restart'), ['always']);
    assert.deepEqual(unitValues(unit, 'RestartPreventExitStatus'), ['78']);
  }
});

test('only Caddy may say who a client is, and only Caddy is reached from outside', () => {
  const services = mapAt(compose, 'services');
  const trusted = new Set(
    SERVICE_NAMES.map((name) => textAt(services, `${name}.environment.TRUSTED_PROXIES`)),
  );
  assert.deepEqual(trusted, new Set([textAt(services, 'caddy.networks.front.ipv4_address')]));
  assert.deepEqual(
    Object.entries(services)
      .filter(([, service]) => Object.hasOwn(Object(service), 'ports'))
      .map(([name]) => name),
    ['caddy'],
  );
  assert.deepEqual(listAt(services, 'postgres.networks'), ['database']);
});

const deploying = readDocument('docs/deployment-files.md');

test('the commands for Kubernetes create the Secrets of the manifests, and apply every manifest', () => {
  const created = [...deploying.matchAll(/create secret generic (\S+) (.*)$/gm)].map(
    ([, name = '', rest = '']) => [
      name,
      [...rest.matchAll(/--from-file=([a-z-]+)/g)].map(([, key = '']) => key),
    ],
  );
  assert.deepEqual(
    new Map(Object.entries(Object.fromEntries(created))),
    new Map([...secretKeys].sort()),
  );
  const applied = [...deploying.matchAll(/-f deploy\/(kubernetes\/\S+)/g)].map(
    ([, name = '']) => name,
  );
  assert.deepEqual(
    applied.sort(),
    KUBERNETES.filter((name) => !name.endsWith('webhook-forward.yaml')),
  );
});

test('the commands for systemd install this version and create every credential', () => {
  assert.ok(
    deploying.includes(
      `npm install --global --prefix /usr/local ./gatehouse-services-${version}.tgz`,
    ),
  );
  assert.ok(
    unitValues(unitOf('identity'), 'ExecStart').every((command) =>
      command.startsWith('/usr/local/bin/gatehouse '),
    ),
  );
  const [, names = ''] = /for name in ([a-z -]+); do openssl/.exec(deploying) ?? [];
  const needed = new Set(
    SERVICE_NAMES.flatMap((name) => unitValues(unitOf(name), 'LoadCredential')),
  );
  const path = (name: string) => `${name}:/etc/gatehouse/credentials/${name}`;
  assert.deepEqual([...needed].sort(), ['database-url', ...names.split(' ')].map(path).sort());
});

test('deployment-files.md lists the names that Caddy answers for', () => {
  const hosts = [
    ...readDeployFile('compose/Caddyfile').matchAll(/^([a-z]+)\.\{\$DOMAIN\} \{$/gm),
  ].map(([, name]) => `${name}.example.org`);
  assert.deepEqual(
    rowsUnder('docs/deployment-files.md', 'name | leads to').map(([name]) => name),
    hosts,
  );
});
