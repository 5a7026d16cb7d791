/**
 * The files in deploy/, as far as they name what the code has. `make e2e NAME=deploy` reads them
 * with the tools that use them.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from './process.ts';

export const readDeployFile = (name: string): string =>
  readFileSync(join(root, 'deploy', name), 'utf8');
export const KUBERNETES = readdirSync(join(root, 'deploy/kubernetes')).map(
  (name) => `kubernetes/${name}`,
);
const unquoted = (text: string) => text.replace(/^"(.*)"$/, '$1');

/** The values of a key of YAML, wherever it stands in this text. */
export const valuesOf = (text: string, key: string): string[] =>
  (text.match(new RegExp(`(?<=^[ -]*${key}: ).+$`, 'gm')) ?? []).map(unquoted);
const listOf = (text: string, key: string) =>
  valuesOf(text, key).flatMap((list) => list.slice(1, -1).split(', '));

/** @throws if a program could read the value as another type than text */
function textOf(value: string): string {
  if (/^(on|off|yes|no|true|false|null|\d+(\.\d+)?)$/i.test(value))
    throw new Error(`quote ${value}`);
  return unquoted(value);
}
const variablesIn = (text: string) =>
  [...text.matchAll(/^ +([A-Z_]+): (.+)$/gm)].map(
    ([, name = '', value = '']) => [name, textOf(value)] as const,
  );

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

export const compose = readDeployFile('compose.yaml');
/** Each service of compose.yaml with its lines. */
export const COMPOSED = [
  ...(compose.split(/^services:\n/m)[1] ?? '')
    .split(/^\w/m, 1)
    .join('')
    .matchAll(/^ {2}([a-z]+):\n((?: {4}.*\n|\n)+)/gm),
].map(([, name = '', text = '']) => ({ name, text }));

export function composeServices(): Deployed[] {
  const [shared = ''] = /^x-environment: [^]*?\n\n/m.exec(compose) ?? [];
  const own = COMPOSED.filter(({ text }) => text.includes('<<: *service'));
  return own.map(({ name, text }) => ({
    from: `compose.yaml, ${name}`,
    words: listOf(text, 'command'),
    environment: Object.fromEntries(
      variablesIn(shared + text).map(([key, value]) => [
        key,
        value.replace(/\$\{DOMAIN(:\?[^}]*)?\}/g, 'example.org'),
      ]),
    ),
    secrets: '/run/secrets',
    files: listOf(text, 'secrets'),
  }));
}

const manifests = KUBERNETES.flatMap((name) => readDeployFile(name).split(/^---\n/m));
export const ofKind = (kind: string): readonly string[] =>
  manifests.filter((text) => valuesOf(text, 'kind').includes(kind));
export const workloads: readonly string[] = [...ofKind('Deployment'), ...ofKind('Job')];

/** By the name of a Secret: its keys, as the first lines of a manifest list them. */
export const secretKeys: ReadonlyMap<string, readonly string[]> = new Map(
  [...manifests.join('\n').matchAll(/^# Needs the Secret (\S+) with: ([a-z, -]+)[.,]/gm)].map(
    ([, secret = '', keys = '']) => [secret, keys.split(/, /).filter((key) => /^\S+$/.test(key))],
  ),
);

export function kubernetesWorkloads(): Deployed[] {
  const shared = variablesIn(ofKind('ConfigMap').join(''));
  return workloads.map((text) => {
    const own = text.matchAll(/- name: ([A-Z_]+)\n +value: (.*)/g);
    return {
      from: `Kubernetes, ${valuesOf(text, 'name')[0]}`,
      words: listOf(text, 'args'),
      environment: {
        ...Object.fromEntries(text.includes('configMapRef:') ? shared : []),
        ...Object.fromEntries([...own].map(([, name = '', value = '']) => [name, textOf(value)])),
      },
      secrets: valuesOf(text, 'mountPath')[0] ?? '',
      files: secretKeys.get(valuesOf(text, 'secretName')[0] ?? '') ?? [],
    };
  });
}

/** The values of a key in a unit file. An empty one begins the list anew, as in systemd. */
export function unitValues(unit: string, key: string): string[] {
  const values: readonly string[] = unit.match(new RegExp(`(?<=^${key}=).*$`, 'gm')) ?? [];
  return values.slice(values.lastIndexOf('') + 1);
}

export const unitOf = (service: string): string =>
  readDeployFile('systemd/gatehouse@.service') +
  readDeployFile(`systemd/gatehouse@${service}.service.d/credentials.conf`);

export function systemdUnits(services: readonly string[]): Deployed[] {
  const secrets = '/run/credentials/unit';
  return services.map((service) => {
    const unit = unitOf(service)
      .replaceAll('%i', service)
      .replaceAll('%d', secrets)
      .replaceAll('%S', '/var/lib')
      .replaceAll('%t', '/run');
    return {
      from: `systemd, gatehouse@${service}`,
      words: unitValues(unit, 'ExecStart').join().split(' ').slice(1),
      environment: Object.fromEntries(
        unitValues(unit, 'Environment').map((one) => one.split(/=(.*)/s, 2)),
      ),
      secrets,
      files: unitValues(unit, 'LoadCredential').map((one) => one.split(':', 1).join('')),
    };
  });
}

export function alertRules() {
  const [, ...rules] = readDeployFile('prometheus/rules.yaml').split(/^ {6}- alert: /m);
  return rules.map((text) => {
    const [, block, line = ''] = /^ +expr: (?:\|\n((?: {10}.*\n)+)|(.*)\n)/m.exec(text) ?? [];
    return {
      alert: text.split('\n', 1).join(''),
      expr: block ?? line,
      severity: /severity: (\w+)/.exec(text)?.[1] ?? '',
      runbook: valuesOf(text, 'runbook').join(),
    };
  });
}

/** The expressions of the dashboard by the title of their panel. */
export function dashboardExpressions(): Array<readonly [title: string, expr: string]> {
  const { panels }: { panels: Array<{ title: string; targets?: Array<{ expr: string }> }> } =
    JSON.parse(readDeployFile('grafana/gatehouse.json'));
  return panels.flatMap(({ title, targets = [] }) =>
    targets.map(({ expr }) => [title, expr] as const),
  );
}
