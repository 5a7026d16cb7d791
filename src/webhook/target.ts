import { accessSync, constants as mode } from 'node:fs';
import { isAbsolute } from 'node:path';
import { sha256 } from '../platform/crypto/token.ts';
import { sealSecret } from '../platform/crypto/service-secret.ts';
import type { Failure } from '../platform/http/route/errors.ts';
import { invalidBody } from '../platform/http/route/json-body.ts';
import { hasPrivateAddress } from '../platform/http/wire/private-address.ts';
import { codeOf, StartupError } from '../platform/runtime/errors.ts';
import type { Target } from './model.ts';
import type { TargetInput } from './schemas.ts';
import type { WebhookService } from './service.ts';
import type { DeliverySettings } from './settings.ts';
import type { TargetChange } from './store/tokens.ts';

/**
 * @returns `key`, under which the state of the target is kept: another target, in a later setting,
 * begins without failures; `name`, without the path and the query of a URL, and the arguments of a
 * program, which may hold a credential
 */
export function describeTarget(target: Target) {
  if ('url' in target) {
    const { href, origin } = new URL(target.url);
    return describe('forward', href, origin);
  }
  if ('module' in target) return describe('handler', target.module, target.module);
  return describe('command', target.command.join('\0'), target.command[0]);
}

const describe = (kind: string, id: string, label: string) => ({
  key: sha256(`${kind} ${id}`).toString('base64url'),
  name: `${kind} ${label}`,
});

/**
 * Loads the module of a kind of target.
 * @param secret signs the requests to a URL; null for none
 * @returns `check` throws StartupError if every attempt would fail
 */
export async function loadTarget(
  target: Target,
  secret: string | null,
  { concurrency, environment, allowPrivate }: DeliverySettings,
) {
  if ('url' in target) {
    const { createForwardTarget, PRIVATE_TARGET } = await import('./targets/forward.ts');
    const url = new URL(target.url);
    return {
      check() {
        if (!allowPrivate && hasPrivateAddress(url))
          throw new StartupError(`webhook: WEBHOOK_FORWARD_URL: ${PRIVATE_TARGET}.`);
      },
      create: () => createForwardTarget({ url, secret, allowPrivate }, concurrency),
    };
  }
  if ('module' in target) {
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

export const NO_TOKEN = 'There is no active token of a sender with this id.';
export const NO_PLACE = 'the token has no target of its own yet, so it needs a URL or a program';
const PRIVATE = 'must not be a private address; set WEBHOOK_FORWARD_ALLOW_PRIVATE=on to allow it';

/**
 * The first signing key, if there is one, seals the secret. A program gets no signed requests.
 * @returns what `setTarget` stores; a failure if the target could not be used
 */
export function prepareTarget(
  { secret, keep_signature, ...target }: TargetInput,
  { delivery, signingKeys: [key] }: Pick<WebhookService, 'delivery' | 'signingKeys'>,
): TargetChange | Failure<'invalid_body'> {
  const { url, command } = target;
  if (url !== undefined && !delivery.allowPrivate && hasPrivateAddress(new URL(url)))
    return invalidBody(PRIVATE, '/url');
  if (secret && !key)
    return invalidBody('needs WEBHOOK_SECRET, under which it is stored', '/secret');
  const isKept = secret === undefined && !command;
  const sealed = secret && key ? sealSecret(key, secret) : null;
  return {
    target: { ...target, is_signed: isKept ? undefined : sealed !== null },
    keep_signature,
    secret: isKept ? undefined : sealed,
  };
}
