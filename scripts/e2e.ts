/** `make e2e NAME=browser`: the tests that need other programs. Without a name, lists them. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { installFor } from '../test/e2e/install.ts';
import { findProgram } from '../test/e2e/programs.ts';
import { runMain, SetupError } from './setup-error.ts';

const root = dirname(import.meta.dirname);

interface Suite {
  readonly summary: string;
  /** Its folders, if they are not one of its own name. */
  readonly folders?: readonly string[];
  /** Other folders whose programs it needs as well. */
  readonly installs?: readonly string[];
  /** Options of scripts/test.ts, in place of its folders. */
  readonly flags?: readonly string[];
  /** Whether its files run one after the other: each needs the whole machine. */
  readonly isSerial?: boolean;
  /** Whether it runs in each browser, or in BROWSER, and keeps pictures of the pages. */
  readonly hasPages?: boolean;
}

const SUITES: Readonly<Record<string, Suite>> = {
  arm: { summary: 'the program on an emulated ARM processor; installs nothing' },
  browser: {
    summary: 'the web pages in Chromium and Firefox, and the sign-in through nginx and Caddy',
    folders: ['browser', 'signin'],
    installs: ['nginx'],
    isSerial: true,
    hasPages: true,
  },
  citus: {
    summary: 'secrets on two workers of Citus, which must be installed; 20 faults, or FAULTS',
    isSerial: true,
  },
  deploy: {
    summary: 'the files in deploy/ and /openapi.json, read by the tools that use them',
    folders: ['deploy', 'openapi'],
  },
  faults: { summary: 'processes, PostgreSQL, network and disk break under load' },
  ha: {
    summary: 'failover with Patroni and poolers, rolling upgrades, backup and restore',
    folders: ['ha', 'pgbouncer'],
    installs: ['nginx'],
    isSerial: true,
  },
  image: {
    summary: 'both container images, and compose.yaml in Docker with them; needs root',
    folders: ['image', 'compose'],
    isSerial: true,
  },
  nginx: {
    summary: 'deploy/nginx and deploy/caddy, and two groups of senders, on the real programs',
    folders: ['nginx', 'groups'],
    isSerial: true,
  },
  oidc: {
    summary: 'programs of others sign in by OpenID Connect',
    installs: ['browser'],
    isSerial: true,
  },
  senders: { summary: "signatures made by the senders' own libraries" },
  stress: { summary: 'races, memory and plans with many rounds and rows', flags: ['--stress'] },
};

async function main(): Promise<number> {
  const name = process.argv[2] ?? '';
  const suite = Object.hasOwn(SUITES, name) ? SUITES[name] : undefined;
  if (!suite) {
    const problem = name === '' ? 'NAME is missing' : `There is no suite "${name}"`;
    throw new SetupError(`${problem}.\n${list()}`);
  }
  const { folders = [name], installs = [], flags, isSerial, hasPages } = suite;
  installFor([...folders, ...installs]);
  const paths = folders.map((folder) => join(root, 'test/e2e', folder));
  const runs = isSerial ? paths.flatMap(testsIn).map((file) => [file]) : [flags ?? paths];
  const environments = hasPages ? withBrowsers() : [process.env];
  const statuses = environments.flatMap((environment) =>
    runs.map((files) => runScript([join(root, 'scripts/test.ts'), ...files], environment)),
  );
  return Math.max(...statuses);
}

/** In Firefox only if it is installed. */
function withBrowsers(): ReadonlyArray<typeof process.env> {
  const { BROWSER, SCREENSHOTS = mkdtempSync(join(tmpdir(), 'gatehouse-pictures-')) } = process.env;
  process.stdout.write(`pictures of every page: ${SCREENSHOTS}\n`);
  const installed = findProgram('firefox-esr') ? ['chromium', 'firefox'] : ['chromium'];
  const browsers = BROWSER === undefined ? installed : [BROWSER];
  return browsers.map((name) => ({
    ...process.env,
    BROWSER: name,
    SCREENSHOTS: join(SCREENSHOTS, name),
  }));
}

function list(): string {
  const lines = Object.entries(SUITES).map(([name, { summary }]) => {
    return `  make e2e NAME=${name.padEnd(10)} ${summary}`;
  });
  return lines.join('\n');
}

function testsIn(folder: string): string[] {
  const names = readdirSync(folder).filter((name) => name.endsWith('.test.ts'));
  return names.sort().map((name) => join(folder, name));
}

function runScript(args: readonly string[], env = process.env): number {
  const { status } = spawnSync(process.execPath, ['--import', 'tsx', ...args], {
    stdio: 'inherit',
    env,
  });
  return status ?? 1;
}

await runMain(main);
