import { setTimeout as sleep } from 'node:timers/promises';
import { unsealServiceSecret } from '../platform/crypto/service-secret.ts';
import { describeError } from '../platform/runtime/errors.ts';
import type { Deliverer, Target } from './model.ts';
import type { WebhookService } from './service.ts';
import { COMMON, type Queue } from './store/queue.ts';
import { findSecrets } from './store/signing-secrets.ts';
import { listTargets } from './store/tokens.ts';
import { describeTarget, loadTarget } from './target.ts';
import { UNKNOWN_KEY } from './verification.ts';
import { startWorker } from './worker.ts';

/** How often targets that were set or changed are looked for. */
const REFRESH_MS = 1_000;

/**
 * Delivers the events of each target by a worker of its own, so that a target that fails or is slow
 * holds up no other.
 * @param common the target of the process, if there is one
 */
export function startDispatcher(service: WebhookService, common: Deliverer | undefined) {
  const { database, log, metrics, commonTarget } = service;
  const workers = new Map<string, ReturnType<typeof startWorker>>(); // by queue
  const stopping = new Set<Promise<void>>();
  if (commonTarget && common)
    workers.set(COMMON.id, startFor(commonTarget, common, COMMON, service));
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
    for (const { id, revision, target } of rows) {
      if (workers.has(id)) continue;
      const deliverer = await openTarget(id, target, service);
      workers.set(id, startFor(target, deliverer, { id, revision }, service));
    }
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

/** @param tokenId whose target it is; null for that of the process */
export async function openTarget(tokenId: string | null, target: Target, service: WebhookService) {
  const { database, signingKeys, delivery, forwardSecret } = service;
  if (tokenId === null) return (await loadTarget(target, forwardSecret, delivery)).create();
  const [sealed] = await findSecrets(database, tokenId, 'sign');
  const secret = sealed ? unsealServiceSecret(signingKeys, sealed) : null;
  const canSign = !target.is_signed || secret !== null;
  return canSign ? (await loadTarget(target, secret, delivery)).create() : CANNOT_SIGN;
}

/** If the secret of a target cannot be opened, nothing is sent: it would be unsigned. */
const CANNOT_SIGN: Deliverer = {
  deliver: async () => ({ error: UNKNOWN_KEY }),
  close: async () => {},
};

function startFor(target: Target, deliverer: Deliverer, queue: Queue, service: WebhookService) {
  const { database, metrics, delivery } = service;
  const { timeout_seconds: seconds } = target;
  const timeoutMs = seconds ? seconds * 1_000 : delivery.timeoutMs;
  const described = describeTarget(target);
  const isCommon = queue === COMMON;
  return startWorker({
    database,
    deliverer,
    settings: { ...delivery, timeoutMs },
    log: isCommon ? service.log : service.log.with({ target: described.name }),
    metrics,
    target: described,
    queue,
  });
}
