/**
 * The memory limits of docs/containers.md, as Docker sets them: its health check starts
 * in the container, with the program that Docker uses to enter it.
 */
import assert from 'node:assert/strict';
import type { Socket } from 'node:net';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { ATTACKS } from '../../../scripts/bench/attacks.ts';
import { CONTAINERS } from '../../../scripts/bench/containers.ts';
import { createEmptyDatabase } from '../../support/database.ts';
import { variables } from '../../support/gatehouse.ts';
import { freePort } from '../programs.ts';
import { startDocker, untilHealthy } from './docker.ts';
import { copyTree } from './stack.ts';

const ROUNDS = Number(process.env.ROUNDS ?? 1);
const HEALTH_SECONDS = 2;
const docker = await startDocker({ after });

before(() => {
  docker.run('docker', ['build', '--quiet', '--tag', 'gatehouse', copyTree(docker)]);
});

for (const { mebibytes, settings } of CONTAINERS) {
  test(`Docker's health check and the services live in ${mebibytes} MiB under attacks`, async (t) => {
    for (let round = 1; round <= ROUNDS; round += 1) {
      const { url } = await createEmptyDatabase(t);
      const ports = {
        identity: await freePort(),
        secrets: await freePort(),
        webhook: await freePort(),
      };
      const name = `attacked-${mebibytes}-${round}`;
      const environment = {
        ...variables(url),
        PASSWORD_SCRYPT: '', // the default, which takes 32 MiB, unless the settings say otherwise
        ...settings,
        IDENTITY_PORT: String(ports.identity),
        SECRETS_PORT: String(ports.secrets),
        WEBHOOK_PORT: String(ports.webhook),
      };
      runContainer(name, mebibytes, environment);
      await untilHealthy(docker, name);
      for (const attack of ATTACKS) {
        const sockets: Socket[] = [];
        await attack.run(ports, sockets);
        for (const socket of sockets) socket.destroy();
        await sleep(1_000);
      }
      // The health check of Docker fails if the kernel ends it, and may time out during an attack.
      await untilHealthy(docker, name);
      const state = '{{.RestartCount}} {{.State.Running}} {{.State.OOMKilled}}';
      assert.equal(docker.inspect(name, state), '0 true false');
      docker.run('docker', ['rm', '--force', name]);
    }
  });
}

type Environment = Readonly<Record<string, string>>;

function runContainer(name: string, mebibytes: number, environment: Environment): void {
  const memory = ['--memory', `${mebibytes}m`, '--memory-swap', `${mebibytes}m`];
  const health = ['--health-interval', `${HEALTH_SECONDS}s`];
  const variables = Object.entries(environment).flatMap(([key, value]) => [
    '--env',
    `${key}=${value}`,
  ]);
  const words = ['run', '--detach', '--name', name, '--network', 'host', '--read-only'];
  docker.run('docker', [...words, ...memory, ...health, ...variables, 'gatehouse']);
}
