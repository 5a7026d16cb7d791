/** The files in deploy/, as the programs that use them read them. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from './process.ts';
import { isMap, listAt, mapAt, readYaml, textAt, type Yaml, type YamlMap } from './yaml.ts';

export const readDeployFile = (name: string): string =>
  readFileSync(join(root, 'deploy', name), 'utf8');
export const KUBERNETES = readdirSync(join(root, 'deploy/kubernetes')).map(
  (name) => `kubernetes/${name}`,
);
export const YAML_FILES = [
  'compose.yaml',
  ...KUBERNETES,
  'prometheus/prometheus.yaml',
  'prometheus/kubernetes.yaml',
  'prometheus/systemd.yaml',
  'prometheus/rules.yaml',
  'prometheus/rules.test.yaml',
];

export const only = (documents: readonly Yaml[]): Yaml => {
  if (documents.length !== 1 || documents[0] === undefined)
    throw new Error(`${documents.length} documents`);
  return documents[0];
};

/** A process of Gatehouse as a file starts it. */
export interface Deployed {
  readonly from: string;
  /** The words after the program's name. */
  readonly words: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  /** The directory of the secrets, as the process sees it. */
  readonly secrets: string;
  /** The files that it finds there. */
  readonly files: readonly string[];
}

export const compose: Yaml = only(readYaml(readDeployFile('compose.yaml')));

/** Replaces `${DOMAIN}` and `${DOMAIN:?…}`. @throws if another variable is needed */
function withDomain(text: string, domain: string): string {
  const found = text.replace(/\$\{DOMAIN(:\?[^}]*)?\}/g, domain);
  if (found.includes('$')) throw new Error(`another variable is needed: ${text}`);
  return found;
}

const texts = (map: YamlMap): Record<string, string> =>
  Object.fromEntries(Object.entries(map).map(([name, value]) => [name, String(value)]));

export function composeServices(): Deployed[] {
  const own = Object.entries(mapAt(compose, 'services')).filter(([, service]) =>
    /^gatehouse:/.test(textAt(service, 'image')),
  );
  return own.map(([name, service]) => {
    const given = Object.entries(texts(mapAt(service, 'environment')));
    return {
      from: `compose.yaml, ${name}`,
      words: listAt(service, 'command').map(String),
      environment: Object.fromEntries(
        given.map(([key, value]) => [key, withDomain(value, 'example.org')]),
      ),
      secrets: '/run/secrets',
      files: listAt(service, 'secrets').map(String),
    };
  });
}

export const manifests: readonly Yaml[] = KUBERNETES.flatMap((name) =>
  readYaml(readDeployFile(name)),
);
export const ofKind = (kind: string): readonly Yaml[] =>
  manifests.filter((one) => textAt(one, 'kind') === kind);

export function manifest(kind: string, name: string): Yaml {
  const found = ofKind(kind).find((one) => textAt(one, 'metadata.name') === name);
  if (found === undefined) throw new Error(`no ${kind} ${name}`);
  return found;
}

export const workloads: readonly Yaml[] = [...ofKind('Deployment'), ...ofKind('Job')];
const CONTAINER = 'spec.template.spec.containers.0';

/** By the name of a Secret: its keys, as the first lines of a manifest list them. */
export const secretKeys: ReadonlyMap<string, readonly string[]> = new Map(
  KUBERNETES.flatMap((name) => [
    ...readDeployFile(name).matchAll(/^# Needs the Secret (\S+) with: ([a-z, -]+)[.,]/gm),
  ]).map(([, secret = '', keys = '']) => [
    secret,
    keys
      .split(',')
      .map((key) => key.trim())
      .filter((key) => /^\S+$/.test(key)),
  ]),
);

export function kubernetesWorkloads(): Deployed[] {
  return workloads.map((workload) => {
    const container = mapAt(workload, CONTAINER);
    const shared =
      'envFrom' in container
        ? mapAt(manifest('ConfigMap', textAt(container, 'envFrom.0.configMapRef.name')), 'data')
        : {};
    const own = listAt(container, 'env').map((one) => [textAt(one, 'name'), textAt(one, 'value')]);
    return {
      from: `Kubernetes, ${textAt(workload, 'metadata.name')}`,
      words: listAt(container, 'args').map(String),
      environment: { ...texts(shared), ...Object.fromEntries(own) },
      secrets: textAt(container, 'volumeMounts.0.mountPath'),
      files:
        secretKeys.get(textAt(workload, 'spec.template.spec.volumes.0.secret.secretName')) ?? [],
    };
  });
}

/**
 * The values of a key in a unit file, in order. An empty one begins the list anew, as in systemd.
 */
export function unitValues(unit: string, key: string): string[] {
  const values = [...unit.matchAll(new RegExp(`^${key}=(.*)$`, 'gm'))].map(
    ([, value = '']) => value,
  );
  return values.slice(values.lastIndexOf('') + 1);
}

const CREDENTIALS = '/run/credentials/unit';

export function unitOf(service: string): string {
  return `${readDeployFile('systemd/gatehouse@.service')}\n${readDeployFile(`systemd/gatehouse@${service}.service.d/credentials.conf`)}`;
}

export function systemdUnits(services: readonly string[]): Deployed[] {
  return services.map((service) => {
    const unit = unitOf(service);
    const specified = (text: string) =>
      text
        .replaceAll('%i', service)
        .replaceAll('%d', CREDENTIALS)
        .replaceAll('%S', '/var/lib')
        .replaceAll('%t', '/run');
    const [, ...words] = specified(unitValues(unit, 'ExecStart').join('\n')).split(' ');
    const environment = unitValues(unit, 'Environment').map((one) =>
      specified(one).split(/=(.*)/s, 2),
    );
    return {
      from: `systemd, gatehouse@${service}`,
      words,
      environment: Object.fromEntries(environment),
      secrets: CREDENTIALS,
      files: unitValues(unit, 'LoadCredential').map((one) => one.split(':', 1).join('')),
    };
  });
}

export interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly severity: string;
  readonly runbook: string;
}

export function alertRules(): Rule[] {
  const rules = only(readYaml(readDeployFile('prometheus/rules.yaml')));
  return listAt(rules, 'groups.0.rules').map((rule) => ({
    alert: textAt(rule, 'alert'),
    expr: textAt(rule, 'expr'),
    severity: textAt(rule, 'labels.severity'),
    runbook: textAt(rule, 'annotations.runbook'),
  }));
}

/** The expressions of the dashboard by the title of their panel. */
export function dashboardExpressions(): Array<readonly [title: string, expr: string]> {
  const board: Yaml = JSON.parse(readDeployFile('grafana/gatehouse.json'));
  return listAt(board, 'panels')
    .filter((panel) => isMap(panel) && 'targets' in panel)
    .flatMap((panel) =>
      listAt(panel, 'targets').map(
        (target) => [textAt(panel, 'title'), textAt(target, 'expr')] as const,
      ),
    );
}
