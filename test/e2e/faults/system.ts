/**
 * The three services, each in a process of its own, on a PostgreSQL of their own behind a proxy.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { startServer } from '../../support/database-servers.ts';
import { variables } from '../../support/gatehouse.ts';
import type { Owner } from '../../support/owner.ts';
import {
  buildProgram,
  type Running,
  startProgram,
  type StartOptions,
} from '../../support/process.ts';
import { startTarget, type Target } from './load/webhook.ts';
import { createRandom, SEED } from './random.ts';

export const SERVICES = ['identity', 'secrets', 'webhook'] as const;
export type ServiceName = (typeof SERVICES)[number];

export type Database = Awaited<ReturnType<typeof startDatabase>>;

export async function startDatabase(t: Owner, directory?: string) {
  const server = await startServer(t, { durable: true, directory });
  return {
    ...server,
    /**
     * Kills the server process of one connection. PostgreSQL then ends all others, and recovers.
     */
    async killConnection(application: string) {
      const find = server.query(`
        select pid from pg_stat_activity
        where application_name like '${application}%' order by random() limit 1`);
      // It may still recover from the kill before.
      const [victim] = await find.catch(() => []);
      if (victim) process.kill(victim.pid, 'SIGKILL');
    },
    /** Stops the server, copies its files, and starts it again. */
    async copyTo(copy: string) {
      await server.stop();
      // With the owner, who may be another user: PostgreSQL does not run as root.
      execFileSync('cp', ['-a', server.directory, copy]);
      await server.start();
    },
  };
}

export type System = Awaited<ReturnType<typeof startSystem>>;
/** The services, with a target for the events. */
export type Services = Awaited<ReturnType<typeof startServices>>;

const READY_MS = 45_000;

export async function startSystem(t: Owner, database?: Database) {
  const used = database ?? (await startDatabase(t));
  return {
    ...(await startServices(t, used.proxy.url, used.url)),
    database: used,
  };
}

/** Settings with which the services forward events to the target. */
export const settingsOf = (databaseUrl: string, target: Target) => ({
  ...variables(databaseUrl),
  TRUSTED_PROXIES: '127.0.0.1',
  WEBHOOK_FORWARD_URL: target.url,
  WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
  // The target fails now and then, and is never the reason for a late delivery.
  WEBHOOK_RETRY_SCHEDULE: '50ms,100ms,200ms,400ms,800ms,2s,4s,8s,16s,32s,1m',
  LOG_LEVEL: 'warn',
});

/** @param directUrl of the database without what may fail on the way to it */
export async function startServices(
  t: Owner,
  databaseUrl: string,
  directUrl: () => string,
  options: StartOptions = {},
) {
  const target = await startTarget(t, createRandom(SEED + 1));
  const program = buildProgram();
  const environment = settingsOf(databaseUrl, target);
  const processes = new Map<ServiceName, Running>();
  const urls = new Map<ServiceName, string>();
  const useProcess = async (service: ServiceName, running: Running) => {
    processes.set(service, running);
    urls.set(service, await running.url(service));
  };
  const start = (service: ServiceName) =>
    useProcess(
      service,
      startProgram(t, program, ['serve', service], { ...environment, LOG_LEVEL: 'info' }, options),
    );
  const running = (service: ServiceName) =>
    processes.get(service) ?? assert.fail(`${service} is not running`);
  const url = (service: ServiceName) => urls.get(service) ?? '';
  await Promise.all(SERVICES.map(start));
  await Promise.all(SERVICES.map((service) => running(service).ready(service)));
  return {
    target,
    environment,
    url,
    running,
    /** Sends the requests to another process from now on. */
    useProcess,
    directUrl,
    /** Kills a service and starts it again. */
    async killService(service: ServiceName) {
      running(service).signal('SIGKILL');
      await running(service).ended;
      await start(service);
    },
    /** Resolves when all three services say that they are ready. */
    async untilReady() {
      for (const deadline = Date.now() + READY_MS; ; await sleep(100)) {
        const urls = SERVICES.map((service) => `${url(service)}/readyz`);
        const statuses = await Promise.all(urls.map(statusOf));
        if (statuses.every((status) => status === 200)) return;
        const late = `not ready ${READY_MS} ms after the fault: ${statuses.join()}`;
        assert.ok(Date.now() < deadline, late);
      }
    },
  };
}

/** @returns the status of the answer; 0 if there is none */
export async function statusOf(url: string): Promise<number> {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(5_000) });
    await response.text();
    return response.status;
  } catch {
    return 0;
  }
}
