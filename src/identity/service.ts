import { createReadiness } from '../platform/db/readiness.ts';
import type { Database } from '../platform/db/pool.ts';
import type { Failure, RequestInfo } from '../platform/http/route/route.ts';
import { createCredentialCheck } from '../platform/http/credentials/guess-limit.ts';
import { createLastSeen } from '../platform/http/credentials/last-seen.ts';
import type { ServiceContext } from '../platform/runtime/context.ts';
import { createLimiter } from '../platform/runtime/limiter.ts';
import type { Account } from './model.ts';
import { SCHEMA } from './migrations.ts';
import type { IdentitySettings, Portal } from './settings.ts';
import { readThrottleSecret } from './store/failures.ts';

const MAX_DELAYED = 512;

export type PortalService = IdentityService & {
  readonly portal: Portal;
  /** With OIDC, for the sign-in page: the name of the program that waits at an address, or null. */
  readonly programAt?: (address: URL) => Promise<string | null>;
};

/**
 * Checks a typed code; loaded with SIGNIN_PAGES or IDENTITY_SECRET.
 * @returns the methods of the login, such as `password, totp`
 */
export type CheckCode = (
  service: IdentityService,
  request: RequestInfo,
  account: Account,
  code: string,
) => Promise<string | Failure<'invalid_code' | 'too_many_requests' | 'key_unknown'>>;

/** What handlers work with. */
export type IdentityService = ReturnType<typeof createIdentity>;

/**
 * @param options the settings without secrets
 * @param checkCode null without the sign-in pages and IDENTITY_SECRET
 */
export function createIdentity(
  options: Omit<IdentitySettings, 'database' | 'admin'>,
  database: Database,
  context: ServiceContext,
  checkCode: CheckCode | null = null,
) {
  const { log, metrics } = context;
  const countFactor = metrics.counter(
    'gatehouse_factor_events_total',
    'Second factors and passkeys, by event: right, wrong, throttled, added, removed.',
    ['factor', 'event'],
  );
  let secret: Buffer | null = null;
  return {
    ...options,
    ...context,
    database,
    checkCode,
    ...createCredentialCheck(),
    /** Limits the throttled logins whose answer is delayed. */
    delayedAnswers: createLimiter(MAX_DELAYED, 0, 'a throttled login'),
    countPasswordCheck: metrics.counter(
      'gatehouse_password_checks_total',
      'Passwords checked, by outcome: right, wrong, throttled.',
      ['outcome'],
    ),
    reportFactor(
      factor: string,
      event: 'right' | 'wrong' | 'throttled' | 'added' | 'removed',
      userId: string,
    ) {
      countFactor([factor, event]);
      const isAttack = event === 'wrong' || event === 'throttled';
      log[isAttack ? 'warn' : 'info'](`second factor ${event}`, { factor, user_id: userId });
    },
    lastSeen: createLastSeen(), // of sessions and keys
    async throttleSecret() {
      secret ??= await readThrottleSecret(database);
      return secret;
    },
    readiness: createReadiness(database, SCHEMA, log),
  };
}
