/** `make e2e NAME=browser`: the tests that need other programs. Without a name, lists them. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { runMain, SetupError } from './setup-error.ts';

const root = dirname(import.meta.dirname);

interface Suite {
  readonly summary: string;
  /** Other suites whose programs it needs as well. */
  readonly installs?: readonly string[];
  /** Options of scripts/test.ts, in place of its folder. */
  readonly flags?: readonly string[];
  /** Whether its files run one after the other: each needs the whole machine. */
  readonly isSerial?: boolean;
  /** Whether it keeps a picture of each page that it sees, in SCREENSHOTS or a new folder. */
  readonly hasPictures?: boolean;
}

const SUITES: Readonly<Record<string, Suite>> = {
  arm: { summary: 'the program on an emulated ARM processor; installs nothing' },
  browser: { summary: 'the web pages in Chromium', isSerial: true, hasPictures: true },
  citus: {
    summary: 'secrets on two workers of Citus, which must be installed; 20 faults, or FAULTS',
    isSerial: true,
  },
  compose: { summary: 'compose.yaml in Docker, with images made here; needs root', isSerial: true },
  deploy: { summary: 'the files in deploy/, read by the tools that use them' },
  faults: { summary: 'processes, PostgreSQL, network and disk break under load' },
  groups: {
    summary: 'two groups of senders behind nginx and Caddy',
    installs: ['nginx'],
    isSerial: true,
  },
  ha: {
    summary: 'failover of a Patroni cluster, rolling upgrades, backup and restore',
    installs: ['nginx'],
    isSerial: true,
  },
  image: { summary: 'both container images, built with buildah; needs root' },
  nginx: { summary: 'the configurations of deploy/nginx and deploy/caddy on the real programs' },
  openapi: { summary: '/openapi.json with two linters and a generated client' },
  pgbouncer: { summary: 'the services behind PgBouncer, in every pool mode' },
  senders: { summary: "signatures made by the senders' own libraries" },
  signin: {
    summary: 'sign-in with Chromium through nginx and Caddy, as documented',
    installs: ['nginx', 'browser'],
    isSerial: true,
    hasPictures: true,
  },
  stress: { summary: 'races, memory and plans with many rounds and rows', flags: ['--stress'] },
};

async function main(): Promise<number> {
  const name = process.argv[2] ?? '';
  const suite = Object.hasOwn(SUITES, name) ? SUITES[name] : undefined;
  if (!suite) {
    const problem = name === '' ? 'NAME is missing' : `There is no suite "${name}"`;
    throw new SetupError(`${problem}.\n${list()}`);
  }
  for (const folder of [name, ...(suite.installs ?? [])]) {
    const install = join(root, 'test/e2e', folder, 'install.ts');
    const status = existsSync(install) ? runScript([install]) : 0;
    if (status !== 0) return status;
  }
  const folder = join(root, 'test/e2e', name);
  const environment = { ...process.env, ...(suite.hasPictures ? { SCREENSHOTS: pictures() } : {}) };
  const runs = suite.isSerial ? testsIn(folder).map((file) => [file]) : [suite.flags ?? [folder]];
  const statuses = runs.map((files) => {
    return runScript([join(root, 'scripts/test.ts'), ...files], environment);
  });
  return Math.max(...statuses);
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

function pictures(): string {
  const folder = process.env.SCREENSHOTS ?? mkdtempSync(join(tmpdir(), 'gatehouse-pictures-'));
  process.stdout.write(`pictures of every page: ${folder}\n`);
  return folder;
}

function runScript(args: readonly string[], env = process.env): number {
  const { status } = spawnSync(process.execPath, ['--import', 'tsx', ...args], {
    stdio: 'inherit',
    env,
  });
  return status ?? 1;
}

await runMain(main);
