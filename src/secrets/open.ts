import { commitmentOf, isUnaltered, KEY_BYTES, type Locked, type ServerKey, unlock, unseal } from '../crypto/box.ts';
import { stretch } from '../crypto/password.ts';
import { fromBase64url } from '../crypto/text.ts';
import { sameDigest } from '../crypto/token.ts';
import type { Reply, RequestInfo } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import { KEY_MISSING } from './keys.ts';
import { record } from './record.ts';
import type { SecretsService } from './service.ts';
import { countFailedRead, findSecret, useUpRead } from './store.ts';
import { passphraseScopes, throttled } from './throttle.ts';

export type Refusal = Failure<'not_found' | 'passphrase_needed' | 'wrong_passphrase' | 'too_many_requests' | 'key_unknown' | 'secret_damaged'>;

/** What a reader brings. */
export interface DecryptRequest {
  readonly secret: string;
  readonly passphrase: string | undefined;
}

/**
 * Opens a secret. Order matters: the text is opened in memory first, then one statement uses up the read and writes the
 * receipt, and only after its commit is the text given out. So a damaged row uses nothing up, a read that cannot be
 * recorded does not take place, and a crash may lose a read but never gives one out twice.
 */
export async function openSecret(service: SecretsService, request: RequestInfo, id: string, keys: DecryptRequest): Promise<Reply<{ password: string }> | Refusal> {
  const { database, hashing, openingKeys, passphraseQueue } = service;
  const clientKey = fromBase64url(keys.secret);
  if (clientKey?.length !== KEY_BYTES) return miss(service, request, id, 'malformed key', MALFORMED);
  const row = await findSecret(database, id);
  if (!row) return miss(service, request, id, 'unknown or ended');
  const { key_id: keyId, commitment } = row;
  const serverKey = openingKeys.find((key) => key.id === keyId);
  const conditions = { id, expiresAt: row.expires_at?.getTime() ?? null, maxReads: row.max_reads };
  const fits = (key: ServerKey) => sameDigest(commitment, commitmentOf(key, clientKey, id));
  const ended = () => miss(service, request, id, 'unknown or ended');
  if (!serverKey && !openingKeys.some(fits)) return row.expired ? ended() : tellOperator(service, id, keyId, 'key_unknown', KEY_MISSING);
  const altered = () => tellOperator(service, id, keyId, 'secret_damaged', 'a stored secret has been altered: swapped, truncated or edited');
  if (!serverKey || !isUnaltered(serverKey, conditions, row, row.tag)) return altered();
  if (row.expired) return ended();
  if (!fits(serverKey)) return miss(service, request, id, 'wrong key');
  const opened = unseal(serverKey, clientKey, conditions, row);
  if (!opened) return altered();

  /** A passphrase is tried in its turn, so that right ones at the same time do not use up each other's tries. */
  const unlocked = async ({ passphrase }: DecryptRequest, locked: Locked) => {
    if (passphrase === undefined) return new Failure('passphrase_needed');
    return passphraseQueue.run(id, () => throttled(service, passphraseScopes(id, request), async () => {
      // Who has the key is no stranger: a flood of logins must not keep them waiting.
      const text = unlock(serverKey, clientKey, conditions, locked, await hashing.run(() => stretch(passphrase, locked.kdfParams), true));
      if (text) return text;
      await countMiss(service, request, id, 'wrong passphrase');
      return new Failure('wrong_passphrase');
    }));
  };
  const text = Buffer.isBuffer(opened) ? opened : await unlocked(keys, opened);
  if (text instanceof Failure) return text;
  if (!(await useUpRead(database, { id, commitment }))) return miss(service, request, id, 'another reader was first');
  record(service, 'read', { id, keyId }, request);
  return { data: { password: text.toString('utf8') } };
}

const MALFORMED = 'This cannot be a key: a key has 43 characters of A-Z a-z 0-9 - _, and few of them can be its last. Copy it again, from its first character to its last.';
/** One answer for unknown, wrong key, expired, deleted and used up; its words help with the mistake that people make. */
const NOT_FOUND =
  'No secret opens with this id and key. Check both for typing mistakes; otherwise it has expired, was deleted or has been read as often as allowed.';

async function miss(service: SecretsService, request: RequestInfo, id: string, reason: string, message = NOT_FOUND): Promise<Failure<'not_found'>> {
  await countMiss(service, request, id, reason);
  return new Failure('not_found', { message });
}

async function countMiss(service: SecretsService, request: RequestInfo, id: string, reason: string): Promise<void> {
  const keyId = await countFailedRead(service.database, id);
  record(service, 'read failed', { id, keyId }, request, reason);
}

/** The operator's to mend: it must not look like the caller's mistake. */
function tellOperator<Code extends 'key_unknown' | 'secret_damaged'>({ log }: SecretsService, id: string, keyId: string, code: Code, words: string): Failure<Code> {
  log.error(words, { secret_id: id, key_id: keyId });
  return new Failure(code);
}
