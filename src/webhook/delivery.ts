import { accessSync, constants as mode } from 'node:fs';
import { isAbsolute } from 'node:path';
import { codeOf, StartupError } from '../runtime/errors.ts';
import { removalJob } from '../runtime/jobs.ts';
import { targetKeyOf, type WebhookService } from './service.ts';
import type { DeliverySettings, TargetSettings } from './settings.ts';
import { removeIdlePages } from './store/work.ts';
import { type DeliveryTarget, startWorker } from './worker.ts';

/** Adds delivery to a service that has a target. */
export async function load(
  settings: TargetSettings,
  delivery: DeliverySettings,
  service: WebhookService,
) {
  const createTarget = await loadTarget(settings, delivery);
  const { database, log, metrics } = service;
  return {
    jobs: [removalJob(metrics, 'webhook.pages', 300, (limit) => removeIdlePages(database, limit))],
    checkWork: () => void createTarget(),
    startWork() {
      const worker = startWorker(
        database,
        createTarget(),
        delivery,
        log,
        metrics,
        targetKeyOf(settings),
      );
      service.notifyWorker = worker.notify;
      return worker;
    },
  };
}

/** Loads the target in use. @returns a function that throws StartupError if every attempt would fail */
async function loadTarget(
  settings: TargetSettings,
  delivery: DeliverySettings,
): Promise<() => DeliveryTarget> {
  const { concurrency, environment } = delivery;
  if (settings.kind === 'forward') {
    const { createForwardTarget, hasPrivateAddress, PRIVATE_TARGET } =
      await import('./targets/forward.ts');
    return () => {
      if (settings.allowPrivate || !hasPrivateAddress(settings.url))
        return createForwardTarget(settings, concurrency);
      throw new StartupError(`webhook: WEBHOOK_FORWARD_URL: ${PRIVATE_TARGET}.`);
    };
  }
  if (settings.kind === 'handler') {
    const { createHandlerTarget } = await import('./targets/handler.ts');
    return () => {
      checkAccess(settings.module, mode.R_OK, 'WEBHOOK_HANDLER names a module that cannot be read');
      return createHandlerTarget(settings.module, environment);
    };
  }
  const { createCommandTarget } = await import('./targets/command.ts');
  return () => {
    const [program] = settings.command;
    // A name without a path is looked up in PATH at each attempt.
    if (isAbsolute(program))
      checkAccess(program, mode.X_OK, 'WEBHOOK_COMMAND names a program that cannot be run');
    return createCommandTarget(settings.command, environment);
  };
}

function checkAccess(path: string, access: number, problem: string): void {
  try {
    accessSync(path, access);
  } catch (error) {
    throw new StartupError(`webhook: ${problem} (${codeOf(error)}).`);
  }
}
