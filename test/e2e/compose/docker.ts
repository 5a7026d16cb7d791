/** A daemon of Docker for one test file, with files, images and networks of its own. */
import { spawnSync } from 'node:child_process';
import { closeSync, mkdirSync, openSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { supervise } from '../../../scripts/supervise.ts';
import { makeTemporary, removeTemporary } from '../../../scripts/temporary.ts';
import { until } from '../../support/until.ts';
import { type Result, runTool } from '../tools.ts';
import { findProgram } from '../programs.ts';
import { createContexts } from './images.ts';

export type Docker = Awaited<ReturnType<typeof startDocker>>;

/** What the daemon changes in the machine's packet filter, and leaves behind when it ends. */
const PACKET_FILTERS = ['iptables', 'ip6tables'];
/** The network device that the daemon makes, and leaves behind too. */
const DEVICE = 'docker0';
const HEALTH_MS = 120_000;

/** Starts the daemon, and builds the images that the tests cannot fetch. */
export async function startDocker(owner: { after(fn: () => Promise<void>): void }) {
  const directory = makeTemporary(tmpdir(), 'gatehouse-docker');
  const socket = `unix://${join(directory, 'docker.sock')}`;
  const log = join(directory, 'log');
  if (runTool('ip', ['link', 'show', DEVICE]).code === 0)
    throw new Error(`${DEVICE} exists: stop the other daemon of Docker first.`);
  const rules = PACKET_FILTERS.map((name) => runTool(`${name}-save`, []).stdout);
  const output = openSync(log, 'w');
  const files = ['--data-root', join(directory, 'data'), '--exec-root', join(directory, 'exec')];
  const words = [...files, '--pidfile', join(directory, 'pid'), '--host', socket];
  const daemon = supervise('TERM', findProgram('dockerd') ?? 'dockerd', words, {
    cwd: directory,
    env: process.env,
    output,
  });
  closeSync(output);

  const tryRun = (name: string, args: readonly string[], environment = {}): Result =>
    // The builder without BuildKit, which Debian's client does not have.
    runTool(name, args, { DOCKER_HOST: socket, DOCKER_BUILDKIT: '0', ...environment });
  /** @throws with the output if the command fails */
  function run(name: string, args: readonly string[], environment = {}): Result {
    const result = tryRun(name, args, environment);
    if (result.code === 0) return result;
    throw new Error(`${name} ${args.join(' ')} ended with ${result.code}: ${result.output}`);
  }

  owner.after(async () => {
    const { stdout } = tryRun('docker', ['ps', '--all', '--quiet']);
    const containers = stdout.split('\n').filter(Boolean);
    if (containers.length > 0) tryRun('docker', ['rm', '--force', '--volumes', ...containers]);
    tryRun('docker', ['network', 'prune', '--force']);
    daemon.tell('TERM');
    await daemon.ended;
    spawnSync('ip', ['link', 'delete', DEVICE]);
    // A container in the network of this machine leaves a mount behind.
    spawnSync('umount', [join(directory, 'exec/netns/default')]);
    const restored = PACKET_FILTERS.map((name, index) =>
      runTool(`${name}-restore`, [], {}, { input: rules[index] ?? '' }),
    );
    removeTemporary(directory);
    for (const { code, output } of restored)
      if (code !== 0) throw new Error(`the packet filter could not be restored: ${output}`);
  });
  const isReady = () => tryRun('docker', ['version']).code === 0;
  await until(isReady, () => `the daemon is ready: ${readFileSync(log, 'utf8')}`);

  const contexts = join(directory, 'contexts');
  mkdirSync(contexts);
  for (const [name, context] of createContexts(contexts))
    run('docker', ['build', '--quiet', '--tag', name, context]);
  const inspect = (name: string, format: string) =>
    run('docker', ['inspect', '--format', format, name]).stdout.trim();
  return { directory, run, tryRun, inspect };
}

/** Waits until Docker's own health check says that the container is healthy. */
export async function untilHealthy({ run, inspect }: Docker, name: string): Promise<void> {
  const limit = Date.now() + HEALTH_MS;
  for (; inspect(name, '{{.State.Health.Status}}') !== 'healthy'; await sleep(500)) {
    if (Date.now() < limit) continue;
    const { output } = run('docker', ['logs', '--tail', '20', name]);
    throw new Error(`not healthy: ${inspect(name, '{{json .State}}')}\n${output}`);
  }
}
