import { setTimeout as sleep } from 'node:timers/promises';
import { unsealServiceSecret } from '../crypto/service-secret.ts';
import { describeError } from '../runtime/errors.ts';
import { COMMON_QUEUE } from './migrations.ts';
import type { WebhookService } from './service.ts';
import { type DeliverySettings, ownTarget, type WebhookSettings } from './settings.ts';
import { findSecrets } from './store/signing-secrets.ts';
import { listTargets } from './store/targets.ts';
import { loadTarget } from './load-target.ts';
import { UNKNOWN_KEY } from './verification.ts';
import { type DeliveryTarget, startWorker } from './worker.ts';

/** How often targets that were set or changed are looked for. */
const REFRESH_MS = 1_000;

type TargetRow = Awaited<ReturnType<typeof listTargets>>[number];
type Running = Readonly<{ revision: number | null; worker: ReturnType<typeof startWorker> }>;
type Dispatcher = Readonly<{
  service: WebhookService;
  settings: DeliverySettings;
  workers: Map<string, Running>; // by queue
  ended: Set<Promise<void>>;
}>;

/**
 * Delivers the events of each target by a worker of its own, so that a target that fails or is slow
 * holds up no other.
 * @param common the target of the process; null without one
 */
export function startDispatcher(
  service: WebhookService,
  { target, delivery: settings }: WebhookSettings,
  common: DeliveryTarget | null,
) {
  const { database, log, metrics } = service;
  const workers: Dispatcher['workers'] = new Map();
  const dispatcher: Dispatcher = {
    service,
    settings,
    workers,
    ended: new Set(),
  };
  if (target && common) {
    const worker = startWorker(database, common, settings, log, metrics, target.key);
    workers.set(COMMON_QUEUE, { revision: null, worker });
  }
  const countFailing = () =>
    [...workers.values()].filter(({ worker }) => worker.isFailing()).length;
  const help = 'Targets of deliveries that fail, so that they are only probed.';
  metrics.gauge('gatehouse_delivery_circuit_open', help, countFailing);
  const stopping = new AbortController();
  const { signal } = stopping;
  const looping = (async () => {
    while (!signal.aborted) {
      await refresh(dispatcher).catch((error: unknown) =>
        log.debug('the targets of tokens could not be read', describeError(error)),
      );
      await sleep(REFRESH_MS, undefined, { signal }).catch(() => {});
    }
  })();
  return {
    /** @param queue undefined for all */
    notify(queue?: string) {
      for (const [id, { worker }] of workers)
        if (queue === undefined || queue === id) worker.notify();
    },
    async stop(graceMs?: number) {
      stopping.abort();
      await looping;
      const stopped = [...workers.values()].map(({ worker }) => worker.stop(graceMs));
      await Promise.all([...stopped, ...dispatcher.ended]);
    },
  };
}

/** Starts a worker for each target that is new or changed, and stops those of earlier ones. */
async function refresh(dispatcher: Dispatcher) {
  const { service, workers, ended } = dispatcher;
  const rows = await listTargets(service.database);
  const present = new Map(rows.map(({ id, revision }) => [id, revision]));
  for (const [queue, { revision, worker }] of workers) {
    if (revision === null || present.get(queue) === revision) continue;
    workers.delete(queue);
    const end = worker.stop().finally(() => ended.delete(end));
    ended.add(end);
  }
  for (const row of rows) {
    const { id, revision } = row;
    if (!workers.has(id)) workers.set(id, { revision, worker: await start(dispatcher, row) });
  }
}

async function start({ service, settings }: Dispatcher, { id, revision, target: own }: TargetRow) {
  const { database, log, metrics, signingKeys, allowPrivate } = service;
  const [sealed] = await database.read((sql) => findSecrets(sql, id, 'sign'));
  const secret = sealed ? unsealServiceSecret(signingKeys, sealed) : null;
  const isOpened = !own.is_signed || secret !== null;
  const target = ownTarget(own, secret, allowPrivate);
  const { timeout_seconds } = own;
  const timeoutMs = timeout_seconds === null ? settings.timeoutMs : timeout_seconds * 1_000;
  return startWorker(
    database,
    isOpened ? (await loadTarget(target, settings)).create() : UNOPENED,
    { ...settings, timeoutMs },
    log.with({ target: target.name }),
    metrics,
    target.key,
    { id, revision },
  );
}

/** If the secret of a target cannot be opened, nothing is sent: it would be unsigned. */
const UNOPENED: DeliveryTarget = {
  deliver: async () => ({ error: UNKNOWN_KEY }),
  close: async () => {},
};
