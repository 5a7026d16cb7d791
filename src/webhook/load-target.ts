import { accessSync, constants as mode } from 'node:fs';
import { isAbsolute } from 'node:path';
import { codeOf, StartupError } from '../platform/runtime/errors.ts';
import type { DeliverySettings, TargetSettings } from './settings.ts';

/**
 * Loads the module of a kind of target.
 * @returns `check` throws StartupError if every attempt would fail
 */
export async function loadTarget(
  target: TargetSettings,
  { concurrency, environment }: DeliverySettings,
) {
  if (target.kind === 'forward') {
    const { createForwardTarget, hasPrivateAddress, PRIVATE_TARGET } =
      await import('./targets/forward.ts');
    return {
      check() {
        if (!target.allowPrivate && hasPrivateAddress(target.url))
          throw new StartupError(`webhook: WEBHOOK_FORWARD_URL: ${PRIVATE_TARGET}.`);
      },
      create: () => createForwardTarget(target, concurrency),
    };
  }
  if (target.kind === 'handler') {
    const { createHandlerTarget } = await import('./targets/handler.ts');
    return {
      check: () =>
        checkAccess(target.module, mode.R_OK, 'WEBHOOK_HANDLER names a module that cannot be read'),
      create: () => createHandlerTarget(target.module, environment),
    };
  }
  const { createCommandTarget } = await import('./targets/command.ts');
  const [program] = target.command;
  return {
    check() {
      // A name without a path is looked up in PATH at each attempt.
      if (isAbsolute(program))
        checkAccess(program, mode.X_OK, 'WEBHOOK_COMMAND names a program that cannot be run');
    },
    create: () => createCommandTarget(target.command, environment),
  };
}

function checkAccess(path: string, access: number, problem: string) {
  try {
    accessSync(path, access);
  } catch (error) {
    throw new StartupError(`webhook: ${problem} (${codeOf(error)}).`);
  }
}
