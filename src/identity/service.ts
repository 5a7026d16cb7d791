import { createReadiness } from '../db/migrate.ts';
import type { Database } from '../db/pool.ts';
import type { RequestInfo } from '../http/call.ts';
import type { Failure } from '../http/errors.ts';
import { createGuessLimit } from '../http/guesses.ts';
import type { ServiceContext } from '../runtime/context.ts';
import { createLimiter } from '../runtime/limiter.ts';
import { MIGRATIONS, SCHEMA } from './migrations.ts';
import type { Account } from './model.ts';
import type { IdentitySettings, Portal } from './settings.ts';
import { readThrottleSecret } from './store/throttles.ts';

const MAX_HELD = 512;

/** With SIGNIN_PAGES. */
export type PortalService = IdentityService & { readonly portal: Portal };

/** What the check of a second factor works with. */
export type FactorContext = Readonly<{ database: Database; throttleSecret: () => Promise<Buffer> }>;
/** Checks a typed code; loaded with SIGNIN_PAGES. @returns the methods of the login, such as `password, totp` */
export type CheckCode = (
  context: FactorContext, request: RequestInfo, account: Account, code: string,
) => Promise<string | Failure<'invalid_code' | 'too_many_requests' | 'key_unknown'>>;

/** What handlers work with. */
export type IdentityService = ReturnType<typeof createIdentity>;

/** @param options the settings without secrets */
export function createIdentity(
  options: Omit<IdentitySettings, 'database' | 'admin'>, database: Database, context: ServiceContext,
  checkCode: CheckCode | null = null,
) {
  const { log, metrics } = context;
  const help = 'Passwords checked, by outcome: right, wrong, throttled.';
  let secret: Buffer | null = null;
  return {
    ...options,
    ...context,
    database,
    checkCode,
    limitGuesses: createGuessLimit(),
    held: createLimiter(MAX_HELD, 0, 'a throttled login'), // those whose answer is held back
    countPasswordCheck: metrics.counter('gatehouse_password_checks_total', help, ['outcome']),
    pendingLastSeen: new Set<string>(), // ids of sessions and keys in use, written in the background
    throttleSecret: async () => (secret ??= await readThrottleSecret(database)),
    readiness: createReadiness(database, SCHEMA, MIGRATIONS, log),
  };
}
