import { createRateLimit, createRecentMap } from '../../runtime/rate-limit.ts';
import { Failure } from '../route/errors.ts';

/**
 * The credential of `Authorization: Bearer …` (RFC 6750, 2.1), or null. The scheme is
 * case-insensitive.
 */
export const bearerOf = (authorization: string | undefined) =>
  /^bearer +([^\s]+) *$/i.exec(authorization ?? '')?.[1] ?? null;

/** How many wrong credentials one network may send at once, and then in each second. */
const BURST = 100;
const PER_SECOND = 1;
/** How many accepted credentials are remembered at least. */
const MAX_ACCEPTED = 10_000;

/** A credential that a request carries, and how to check it. */
export interface Credential<Found> {
  /** Counted and logged with a refusal. */
  readonly kind:
    'token' | 'session' | 'key' | 'link' | 'signature' | 'client' | 'grant' | 'access token';
  /** Identifies it, such as by its digest. Null if the credential is malformed. */
  readonly key: string | null;
  /** For the reply to a credential that is not accepted. */
  readonly message: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** @returns null for a wrong credential */
  find(key: string): Promise<Found | null>;
  /** A credential that has ended, or is for something else, is refused but was not guessed. */
  isAllowed?(found: Found): boolean;
}

/**
 * Checks credentials, and limits the wrong ones of each network, in this process (ASVS 2.4.1,
 * 6.3.1). Beyond the limit a credential is rejected before it is compared or looked up. A
 * credential that was accepted from this network is still checked: an attacker behind a proxy or
 * NAT must not lock out its other clients.
 * @returns `checkCredential` finds what the credential stands for, or fails with 401 or 429;
 * `acceptCredential` is for one that was just issued to a network
 */
export function createCredentialCheck() {
  const wrong = createRateLimit(BURST, PER_SECOND);
  const accepted = createRecentMap<true>(MAX_ACCEPTED);

  return {
    async checkCredential<Found>(
      network: string,
      { kind, key, message, headers = {}, find, isAllowed = () => true }: Credential<Found>,
    ) {
      const acceptedKey = `${network} ${key}`;
      const isKnown = accepted.get(acceptedKey) ?? false;
      const retryAfterSeconds = isKnown ? 0 : wrong.wait(network);
      if (retryAfterSeconds > 0) return unchecked(retryAfterSeconds);
      // Counted in advance, so that simultaneous guesses stay within the limit. Not for a network
      // without wrong ones: after a restart, any number of right credentials may come at once.
      const isCounted = !isKnown && !wrong.isFull(network);
      if (isCounted) wrong.add(network, -1);
      let isWrong = false;
      try {
        const found = key === null ? null : await find(key);
        isWrong = found === null;
        if (!isWrong) accepted.set(acceptedKey, true);
        if (found !== null && isAllowed(found)) return found;
        return new Failure('unauthorized', {
          message,
          headers,
          credential: kind,
        });
      } finally {
        if (isWrong && !isCounted) wrong.add(network, -1);
        if (isCounted && !isWrong) wrong.add(network, 1);
      }
    },
    acceptCredential(network: string, key: string) {
      accepted.set(`${network} ${key}`, true);
    },
  };
}

const unchecked = (retryAfterSeconds: number) =>
  new Failure('too_many_requests', {
    message:
      'Too many wrong credentials came from your network. This one was not checked. Try again after Retry-After.',
    retryAfterSeconds,
    credential: 'unchecked',
  });
