import { createHmac } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { RequestInfo } from '../http/call.ts';
import { networkOf } from '../http/address.ts';
import { Failure } from '../http/errors.ts';
import { Overloaded } from '../runtime/errors.ts';
import { actorOf } from './guard.ts';
import type { Caller } from './policy.ts';
import { secondsToWait } from './rules.ts';
import type { IdentityService } from './service.ts';
import { type AuditEvent, recordAudit } from './store/audit.ts';
import { countFailure, readFailures, type ThrottleKeys } from './store/throttles.ts';

/** A password that was not accepted: whose, if anybody's, and why. For the trail only, never for the answer. */
export class RejectedPassword {
  readonly userId: string | null;
  readonly reason: 'no such user' | 'no password' | 'wrong password' | 'disabled';
  constructor(userId: string | null, reason: RejectedPassword['reason']) {
    this.userId = userId;
    this.reason = reason;
  }
}

/** Whoever is refused at once tries again at once: a flood would take the whole processor for its refusals. */
const REFUSAL_MS = 500;

/**
 * Runs a check of a password behind the throttle and the hashing gate. A failure is counted in the database before it is
 * answered; the check itself clears the count when it succeeds (`pair`).
 * @param name the account's key, also of an account that does not exist: both are counted alike (ASVS 6.3.8)
 * @throws Overloaded when too many passwords are waiting to be hashed
 */
export async function withLoginThrottle<T>(
  service: IdentityService,
  { request, caller }: { request: RequestInfo; caller: Caller | null },
  name: string,
  failure: AuditEvent,
  check: (pair: Buffer) => Promise<T | RejectedPassword>,
): Promise<T | Failure<'invalid_credentials' | 'too_many_requests'>> {
  const { database, hashing, countPasswordCheck, refusals } = service;
  const keys = await keysOf(service, name, networkOf(request.address));
  const actor = actorOf(caller, request);
  const hold = () => refusals.run(() => sleep(REFUSAL_MS)).catch(() => {});
  const mayTry = async () => {
    const counts = await readFailures(database, keys);
    return { wait: secondsToWait(counts), known: counts.some((count) => count.known) };
  };

  async function attempt(): Promise<{ value: T } | { wait: number }> {
    // Others may have failed while this one waited for its place.
    const { wait } = await mayTry();
    if (wait > 0) return { wait };
    const value = await check(keys.pair);
    if (!(value instanceof RejectedPassword)) return { value };
    const { before, after } = await countFailure(database, { event: failure, actor, detail: value.reason }, value.userId, keys);
    const next = secondsToWait(after);
    // One line where a delay begins, and none for what is refused during it: that would let strangers fill the disk.
    if (next > 0) await recordAudit(database, { event: 'login.throttled', actor, detail: `for ${Math.ceil(next)} s` }, value.userId);
    return { wait: secondsToWait(before) > 0 ? next : 0 };
  }

  try {
    // Before the gate, so that refused ones take nobody's place. An account's own network goes before strangers, who
    // could otherwise fill the waiting room.
    const { wait, known } = await mayTry();
    const outcome = wait > 0 ? { wait } : await hashing.run(attempt, known);
    if ('value' in outcome) {
      countPasswordCheck(['right']);
      return outcome.value;
    }
    countPasswordCheck([outcome.wait > 0 ? 'throttled' : 'wrong']);
    if (outcome.wait <= 0) return new Failure('invalid_credentials');
    await hold();
    return new Failure('too_many_requests', { retryAfterSeconds: outcome.wait });
  } catch (error) {
    if (error instanceof Overloaded) await hold();
    throw error;
  }
}

/** Each name and network only as a keyed digest. The scope goes in, so that no two rows can be the same. */
async function keysOf(service: IdentityService, name: string, network: string): Promise<ThrottleKeys> {
  const secret = await service.throttleSecret();
  const key = (...parts: string[]) => createHmac('sha256', secret).update(JSON.stringify(parts)).digest();
  return { pair: key('pair', name, network), account: key('account', name), network: key('network', network) };
}
