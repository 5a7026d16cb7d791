import { createRateLimit, createRecentMap } from '../runtime/rate.ts';
import { Failure } from './errors.ts';

/** How many wrong credentials one network may send at once, and then in each second. */
const [BURST, PER_SECOND] = [100, 1];
/** How many accepted credentials are remembered at least. */
const MAX_ACCEPTED = 10_000;
const MESSAGE =
  'Too many wrong credentials came from your network. This one was not checked. Try again after Retry-After.';

/**
 * Limits the wrong credentials of each network, in this process (ASVS 2.4.1, 6.3.1). Beyond the limit a credential is
 * rejected before it is compared or looked up. A credential that was accepted from this network is still checked: an
 * attacker behind a proxy or NAT must not lock out its other clients.
 */
export function createGuessLimit() {
  const wrong = createRateLimit(BURST, PER_SECOND);
  const accepted = createRecentMap<true>(MAX_ACCEPTED);
  /** @param digest of the credential; null if it is malformed  @param check returns null for a wrong credential */
  return async <T>(
    network: string,
    digest: string | null,
    check: (digest: string) => Promise<T | null>,
  ) => {
    const key = `${network} ${digest}`;
    const isKnown = accepted.get(key) ?? false;
    const retryAfterSeconds = isKnown ? 0 : wrong.wait(network);
    if (retryAfterSeconds > 0) {
      return new Failure('too_many_requests', {
        message: MESSAGE,
        retryAfterSeconds,
        credential: 'unchecked',
      });
    }
    // Counted in advance, so that simultaneous guesses stay within the limit. Not for a network without wrong ones:
    // after a restart, any number of right credentials may come at once. A check that fails does not count.
    const isCounted = !isKnown && !wrong.isFull(network);
    if (isCounted) wrong.add(network, -1);
    let isWrong = false;
    try {
      const found = digest === null ? null : await check(digest);
      isWrong = found === null;
      if (!isWrong) accepted.set(key, true);
      return found;
    } finally {
      if (isWrong !== isCounted) wrong.add(network, isWrong ? -1 : 1);
    }
  };
}
