import type { ServerKey } from '../crypto/box.ts';
import type { Database } from '../db/pool.ts';
import { describeError } from '../runtime/errors.ts';
import type { SecretsService } from './service.ts';
import { countByKey, type KeyCount, rememberKey } from './store.ts';

/** What a server secret is to this process; `missing` while it still holds secrets, `retired` afterwards, `unknown` to who has none. */
export interface KnownKey extends KeyCount {
  readonly state: 'current' | 'previous' | 'missing' | 'retired' | 'unknown';
}

/** @param current null where it is not known which one that is; with no previous ones either, nothing is told of any */
export async function listKeys(database: Database, current: ServerKey | null, previous: readonly ServerKey[]): Promise<KnownKey[]> {
  const stateOf = ({ key_id: id, secrets }: KeyCount): KnownKey['state'] => {
    if (id === current?.id) return 'current';
    if (previous.some((key) => key.id === id)) return 'previous';
    if (!current && previous.length === 0) return 'unknown';
    return secrets > 0 ? 'missing' : 'retired';
  };
  const counted = await countByKey(database);
  // Those that hold nothing yet are told as well: the first step of a rotation is to have the new one everywhere.
  const unused = [...(current ? [current] : []), ...previous].filter(({ id }, at, all) => !counted.some((key) => key.key_id === id) && all.findIndex((key) => key.id === id) === at);
  const all = [...counted, ...unused.map(({ id }) => ({ key_id: id, first_used_at: null, secrets: 0 }))];
  return all.map((key) => ({ ...key, state: stateOf(key) }));
}

/** At start: notes which server secret is in use, and tells which are held, and which are not though secrets need them. */
export async function beginWithKey(service: SecretsService): Promise<void> {
  const { database, log, serverKey } = service;
  if (await rememberKey(database, serverKey.id)) {
    log.warn('SERVER_SECRET is a new one for this database: right in a rotation, otherwise a mistake', { key_id: serverKey.id });
  }
  // Many secrets take seconds to count; nobody shall wait for that.
  void reportKeys(service).catch((error) => log.warn('the secrets of each server secret could not be counted', describeError(error)));
}

async function reportKeys({ database, log, serverKey, openingKeys }: SecretsService): Promise<void> {
  for (const { key_id, secrets, state } of await listKeys(database, serverKey, openingKeys)) {
    const fields = { key_id, state, secrets };
    if (state === 'missing') log.error(KEY_MISSING, fields);
    else if (state !== 'retired') log.info('server secret', fields);
  }
}

export const KEY_MISSING = 'a server secret is missing: add the one with this key id to SERVER_SECRET_PREVIOUS';
