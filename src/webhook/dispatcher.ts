import { setTimeout as sleep } from 'node:timers/promises';
import { unsealServiceSecret } from '../platform/crypto/service-secret.ts';
import { describeError } from '../platform/runtime/errors.ts';
import type { WebhookService } from './service.ts';
import { ownTarget } from './settings.ts';
import { findSecrets } from './store/signing-secrets.ts';
import { listTargets } from './store/targets.ts';
import { loadTarget } from './load-target.ts';
import { UNKNOWN_KEY } from './verification.ts';
import { type DeliveryTarget, startWorker } from './worker.ts';

/** How often targets that were set or changed are looked for. */
const REFRESH_MS = 1_000;

/**
 * Delivers the events of each target by a worker of its own, so that a target that fails or is slow
 * holds up no other.
 * @param common the target of the process, if there is one
 */
export function startDispatcher(service: WebhookService, common: DeliveryTarget | undefined) {
  const { database, log, metrics, delivery, commonTarget } = service;
  const workers = new Map<string, ReturnType<typeof startWorker>>(); // by queue
  const stopping = new Set<Promise<void>>();
  if (commonTarget && common) {
    const worker = startWorker(database, common, delivery, log, metrics, commonTarget.key);
    workers.set(worker.queue.id, worker);
  }
  metrics.gauge(
    'gatehouse_delivery_circuit_open',
    'Targets of deliveries that fail, so that they are only probed.',
    () => [...workers.values()].filter(({ isFailing }) => isFailing()).length,
  );
  service.notifyWorker = (queue) => {
    for (const [id, worker] of workers) {
      if (queue === undefined || queue === id) worker.notify();
    }
  };

  /** Starts a worker for each target that is new or changed, and stops those of earlier ones. */
  async function refresh() {
    const rows = await listTargets(database);
    const present = new Map(rows.map(({ id, revision }) => [id, revision]));
    for (const [id, { queue, stop }] of workers) {
      // Null: the common queue.
      if (queue.revision === null || queue.revision === present.get(id)) continue;
      workers.delete(id);
      const end = stop().finally(() => stopping.delete(end));
      stopping.add(end);
    }
    for (const row of rows)
      if (!workers.has(row.id)) workers.set(row.id, await startOwn(row, service));
  }

  const shutdown = new AbortController();
  const { signal } = shutdown;
  const looping = (async () => {
    while (!signal.aborted) {
      await refresh().catch((error: unknown) =>
        log.debug(
          'the workers for the targets of tokens could not be updated',
          describeError(error),
        ),
      );
      await sleep(REFRESH_MS, undefined, { signal }).catch(() => {});
    }
  })();
  return {
    async stop(graceMs?: number) {
      shutdown.abort();
      await looping;
      const stopped = [...workers.values()].map((worker) => worker.stop(graceMs));
      await Promise.all([...stopped, ...stopping]);
    },
  };
}

type TargetRow = Awaited<ReturnType<typeof listTargets>>[number];

async function startOwn({ id, revision, target: own }: TargetRow, service: WebhookService) {
  const { database, log, metrics, signingKeys, delivery } = service;
  const [sealed] = await database.read((sql) => findSecrets(sql, id, 'sign'));
  const secret = sealed ? unsealServiceSecret(signingKeys, sealed) : null;
  const canSign = !own.is_signed || secret !== null;
  const target = ownTarget(own, secret, delivery.allowPrivate);
  const seconds = own.timeout_seconds;
  return startWorker(
    database,
    canSign ? (await loadTarget(target, delivery)).create() : CANNOT_SIGN,
    { ...delivery, timeoutMs: seconds === null ? delivery.timeoutMs : seconds * 1_000 },
    log.with({ target: target.name }),
    metrics,
    target.key,
    { id, revision },
  );
}

/** If the secret of a target cannot be opened, nothing is sent: it would be unsigned. */
const CANNOT_SIGN: DeliveryTarget = {
  deliver: async () => ({ error: UNKNOWN_KEY }),
  close: async () => {},
};
