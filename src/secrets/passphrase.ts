import { type BoundMetadata, type Locked, type ServerKey, unlock } from '../crypto/box.ts';
import { stretch } from '../crypto/scrypt.ts';
import { giveBackAttempts, takeAttempt } from '../db/attempts.ts';
import { type Limit, readThrottle, throttleKey } from '../db/throttle.ts';
import { Failure } from '../http/errors.ts';
import { SCHEMA } from './schema.ts';
import type { SecretsService } from './service.ts';

/** How many attempts may fail. An id alone cannot block a secret: only holders of the key can try a passphrase. */
const LIMITS = {
  link: { attempts: 60, seconds: 600 }, // share links of any secret, from one network
  network: { attempts: 5, seconds: 900 }, // passphrases of one secret, from one network
  secret: { attempts: 30, seconds: 86_400 }, // passphrases of one secret, from everywhere
  anyone: { attempts: 30, seconds: 3_600 }, // secrets made without a credential, from one network
} as const;

export const limitOf = (
  serverKey: ServerKey,
  name: keyof typeof LIMITS,
  ...parts: readonly string[]
): Limit => ({
  ...LIMITS[name],
  mode: 'window',
  key: throttleKey(serverKey.throttleKey, [name, ...parts]),
});

/** A secret whose key was right. */
type LockedSecret = Readonly<{
  serverKey: ServerKey;
  clientKey: Buffer;
  metadata: BoundMetadata;
  locked: Locked;
}>;

/**
 * Counts an attempt under each limit before it is made, and gives it back unless the passphrase was wrong. So any
 * number of simultaneous attempts stays within the limits. One at a time for each secret, so that correct passphrases
 * sent together do not use up each other's attempts.
 * @returns the text, or null for a wrong passphrase
 */
export function tryPassphrase(
  { database, hashing, passphraseQueue }: SecretsService,
  { serverKey, clientKey, metadata, locked }: LockedSecret,
  passphrase: string,
  network: string,
): Promise<Buffer | null | Failure<'too_many_requests'>> {
  const { id } = metadata;
  // By the key of the row: during a rotation, replicas with different current keys share the counts.
  const limits = [limitOf(serverKey, 'network', id, network), limitOf(serverKey, 'secret', id)];
  return passphraseQueue(id, async () => {
    const taken: Buffer[] = [];
    let isWrong = false;
    try {
      for (const limit of limits) {
        if (!(await takeAttempt(database, SCHEMA.name, limit))) {
          const { wait } = await readThrottle(database, SCHEMA.name, [limit]);
          return new Failure('too_many_requests', { retryAfterSeconds: wait });
        }
        taken.push(limit.key);
      }
      const stretched = await hashing.run(() => stretch(passphrase, locked.kdfParams));
      const plaintext = unlock(serverKey, clientKey, metadata, locked, stretched);
      isWrong = plaintext === null;
      return plaintext;
    } finally {
      // If this fails, the attempt counts until its window ends.
      if (!isWrong && taken.length > 0)
        await giveBackAttempts(database, SCHEMA.name, taken).catch(() => {});
    }
  });
}
