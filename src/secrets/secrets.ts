import { randomUUID } from 'node:crypto';
import { createClientKey, rowTagOf, seal, sealLocked } from '../crypto/box.ts';
import { createKdfParams, stretch } from '../crypto/password.ts';
import type { Call, Reply } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import type { Infer } from '../http/shape.ts';
import { type DecryptRequest, openSecret, type Refusal } from './open.ts';
import { record } from './record.ts';
import type { SecretsService } from './service.ts';
import { MIN_PASSPHRASE, type optionsShape, PASSWORD_BYTES, type receiptShape, type secretShape } from './shapes.ts';
import { currentTime, deleteSecret, findReceipt, insertSecret, type ListedSecret, listSecrets } from './store.ts';
import { linkScope, unlessTooManyFailed } from './throttle.ts';

type Ask<Path, Query, Body> = Call<null, Path, Query, Body>;
type Text = Reply<{ password: string }>;

export interface EncryptRequest {
  readonly password: string;
  readonly expires_in: number | undefined;
  readonly max_reads: number | undefined;
  readonly passphrase: string | undefined;
}

/** Seals a text under the server's key and a fresh one, which is handed out here and never again. */
export async function encrypt({ body, request }: Ask<unknown, unknown, EncryptRequest>, service: SecretsService): Promise<Reply<{ id: string; secret: string; expires_at: string | null }>> {
  const { database, serverKey, limits } = service;
  // Before the time is read: the hash may have to wait.
  const lock = body.passphrase === undefined ? null : await stretched(service, body.passphrase);
  const seconds = body.expires_in ?? limits.seconds;
  const expiresAt = seconds === 0 ? null : new Date((await currentTime(database)).getTime() + seconds * 1000);
  const conditions = { id: randomUUID(), expiresAt: expiresAt?.getTime() ?? null, maxReads: (body.max_reads ?? limits.reads) || null };
  const clientKey = createClientKey();
  const text = Buffer.from(body.password, 'utf8');
  const sealed = lock ? sealLocked(serverKey, clientKey, conditions, text, lock.stretching, lock.key) : seal(serverKey, clientKey, conditions, text);
  const tag = rowTagOf(serverKey, conditions, sealed);
  await insertSecret(database, { id: conditions.id, keyId: serverKey.id, ...sealed, tag, expiresAt, maxReads: conditions.maxReads });
  record(service, 'stored', { id: conditions.id, keyId: serverKey.id }, request);
  return { data: { id: conditions.id, secret: clientKey.toString('base64url'), expires_at: expiresAt?.toISOString() ?? null } };
}

async function stretched({ hashing, passphraseCost }: SecretsService, passphrase: string): Promise<{ stretching: string; key: Buffer }> {
  const stretching = createKdfParams(passphraseCost);
  return { stretching, key: await hashing.run(() => stretch(passphrase, stretching), true) };
}

export const decrypt = ({ query, body, request }: Ask<unknown, { id: string }, DecryptRequest>, service: SecretsService): Promise<Text | Refusal> =>
  openSecret(service, request, query.id, body);

/** The same for whoever has a link: identifier and key are what entitles to it, so no bearer is asked for. */
export async function reveal({ path, body, request }: Ask<{ id: string }, unknown, DecryptRequest>, service: SecretsService): Promise<Text | Refusal> {
  return unlessTooManyFailed(service, linkScope(request), () => openSecret(service, request, path.id, body));
}

const GONE = 'There is no such secret, or its receipt is no longer kept.';

export async function receipt({ path }: Ask<{ id: string }, unknown, null>, { database }: SecretsService): Promise<Reply<Infer<typeof receiptShape>> | Failure<'not_found'>> {
  const found = await findReceipt(database, path.id);
  if (!found) return new Failure('not_found', { message: GONE });
  const moment = (date: Date | null) => date?.toISOString() ?? null;
  const { created_at, expires_at, last_read_at } = found;
  return { data: { ...found, created_at: created_at.toISOString(), expires_at: moment(expires_at), last_read_at: moment(last_read_at) } };
}

/** Against a simultaneous read, exactly one of the two wins. */
export async function remove({ path, request }: Ask<{ id: string }, unknown, null>, service: SecretsService): Promise<Reply<{ id: string; status: 'deleted' }> | Failure<'not_found'>> {
  const deleted = await deleteSecret(service.database, path.id);
  if (!deleted) return new Failure('not_found', { message: 'There is nothing to delete: no such secret, or it has been read up or has expired. Its receipt tells which.' });
  if (deleted.now) record(service, 'deleted', { id: deleted.id, keyId: deleted.key_id }, request);
  return { data: { id: deleted.id, status: 'deleted' } };
}

/** What is in force here, for whoever makes a form. */
export async function options(_call: unknown, { limits, sharePages }: SecretsService): Promise<Reply<Infer<typeof optionsShape>>> {
  return {
    data: {
      expires_in: { default: limits.seconds || null, max: limits.maxSeconds },
      max_reads: { default: limits.reads || null, max: limits.maxReads },
      passphrase: { min_length: MIN_PASSPHRASE },
      password: { max_bytes: PASSWORD_BYTES },
      share_pages: sharePages,
    },
  };
}

/** Rows at a time, so that memory does not grow with the number of secrets. */
const LIST_BATCH = 100;
const NIL_UUID = '00000000-0000-0000-0000-000000000000';

type Listed = Infer<typeof secretShape>;
const view = ({ id, blob }: ListedSecret): Listed => ({ id, secret: blob.toString('base64url') });

/** Every living secret as identifier and encrypted text, all of them some at a time, or a page. Nothing in it opens anything. */
export async function list({ query }: Ask<unknown, { limit: number | undefined; after: string | undefined }, null>, { database }: SecretsService): Promise<Reply<Listed[]>> {
  const { limit = LIST_BATCH, after = NIL_UUID } = query;
  if (query.limit === undefined && query.after === undefined) return { items: everything() };
  // One more than is shown tells whether there is a next page.
  const rows = (await listSecrets(database, after, limit + 1)).map(view);
  const page = rows.slice(0, limit);
  const next = rows.length > limit ? { Link: `</api/store?limit=${limit}&after=${page.at(-1)?.id}>; rel="next"` } : {};
  return { data: page, headers: next };

  async function* everything(): AsyncGenerator<Listed[]> {
    for (let last: string | undefined = NIL_UUID; last !== undefined; ) {
      const rows: Listed[] = (await listSecrets(database, last, LIST_BATCH)).map(view);
      yield rows;
      last = rows.length < LIST_BATCH ? undefined : rows.at(-1)?.id;
    }
  }
}
