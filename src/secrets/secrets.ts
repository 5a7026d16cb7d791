import { randomUUID } from 'node:crypto';
import { commitmentOf, createClientKey, seal, unseal } from '../crypto/box.ts';
import { fromBase64url } from '../crypto/text.ts';
import type { Call, Reply } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import type { SecretsService } from './service.ts';
import { currentTime, findKeyId, findSecret, insertSecret, listSecrets, useUpRead } from './store.ts';

type Ask<Query, Body> = Call<null, unknown, Query, Body>;

export interface Wish {
  readonly password: string;
  readonly expires_in: number | undefined;
  readonly max_reads: number | undefined;
}

/** Seals a text under the server's key and a fresh one, which is handed out here and never again. */
export async function encrypt({ body }: Ask<unknown, Wish>, service: SecretsService): Promise<Reply<{ id: string; secret: string; expires_at: string | null }>> {
  const seconds = body.expires_in ?? service.secretSeconds;
  const expiresAt = seconds === 0 ? null : new Date((await currentTime(service.database)).getTime() + seconds * 1000);
  const conditions = { id: randomUUID(), expiresAt: expiresAt?.getTime() ?? null, maxReads: body.max_reads ?? null };
  const clientKey = createClientKey();
  const sealed = seal(service.serverKey, clientKey, conditions, Buffer.from(body.password, 'utf8'));
  await insertSecret(service.database, { id: conditions.id, keyId: service.serverKey.id, ...sealed, expiresAt, maxReads: conditions.maxReads });
  return { data: { id: conditions.id, secret: clientKey.toString('base64url'), expires_at: expiresAt?.toISOString() ?? null } };
}

type Refusal = Failure<'not_found' | 'key_unknown' | 'secret_damaged'>;

/**
 * Opens a secret. Order matters: the text is opened in memory first, then one statement uses up the read, and only
 * after its commit is the text given out. So a damaged row uses nothing up, and a crash may lose a read but never
 * gives one out twice.
 */
export async function decrypt({ query, body }: Ask<{ id: string }, { secret: string }>, service: SecretsService): Promise<Reply<{ password: string }> | Refusal> {
  const { database, log, openingKeys } = service;
  const clientKey = fromBase64url(body.secret);
  if (clientKey?.length !== 32) return notFound();
  const claims = openingKeys.map((key) => ({ key, keyId: key.id, commitment: commitmentOf(key, clientKey, query.id) }));
  const row = await findSecret(database, query.id, claims);
  if (!row) return explainMiss(service, query.id);
  const conditions = { id: query.id, expiresAt: row.expires_at?.getTime() ?? null, maxReads: row.max_reads };
  const claim = claims.find(({ keyId, commitment }) => keyId === row.key_id && commitment.equals(row.commitment));
  const text = claim && unseal(claim.key, clientKey, conditions, row);
  if (!claim || !text) {
    log.error('a stored secret has been altered: swapped, truncated or edited', { secret_id: query.id, key_id: row.key_id });
    return new Failure('secret_damaged');
  }
  if (row.max_reads !== null && !(await useUpRead(database, query.id, claim.commitment))) return notFound();
  return { data: { password: text.toString('utf8') } };
}

/** One answer for unknown, wrong key, expired and used up; its words help with the mistake that people make. */
const notFound = () =>
  new Failure('not_found', {
    message: 'No secret opens with this id and key. Check both for typing mistakes; otherwise it has expired or has been read as often as allowed.',
  });

/** A row whose server secret this process does not have is the operator's mistake, and must not look like the caller's. */
async function explainMiss({ database, log, openingKeys }: SecretsService, id: string): Promise<Refusal> {
  const keyId = await findKeyId(database, id);
  if (keyId === null || openingKeys.some((key) => key.id === keyId)) return notFound();
  log.error('a server secret is missing: add the one with this key id to SERVER_SECRET_PREVIOUS', { secret_id: id, key_id: keyId });
  return new Failure('key_unknown');
}

/** Rows at a time, so that memory does not grow with the number of secrets. */
const LIST_BATCH = 100;
const BEFORE_ALL = '00000000-0000-0000-0000-000000000000';

/** Every living secret as identifier and encrypted text, some at a time. Nothing in it opens anything. */
export async function list(_call: Ask<unknown, null>, { database }: SecretsService): Promise<Reply<Array<{ id: string; secret: string }>>> {
  async function* items(): AsyncGenerator<Array<{ id: string; secret: string }>> {
    for (let after: string | undefined = BEFORE_ALL; after !== undefined; ) {
      const rows = await listSecrets(database, after, LIST_BATCH);
      yield rows.map(({ id, blob }) => ({ id, secret: blob.toString('base64url') }));
      after = rows.length < LIST_BATCH ? undefined : rows.at(-1)?.id;
    }
  }
  return { items: items() };
}
