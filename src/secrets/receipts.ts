import type { Call } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import { dateTime, integer, nullable, object, oneOf, uuid } from '../http/shape.ts';
import { recordEvent, type SecretsService } from './service.ts';
import { deleteSecret, findReceipt } from './store.ts';

const count = integer({ min: 0, max: Number.MAX_SAFE_INTEGER });
export const receiptShape = object({
  id: uuid(), status: oneOf('stored', 'read', 'expired', 'deleted'),
  created_at: dateTime(), expires_at: nullable(dateTime()), max_reads: nullable(count),
  reads: count, last_read_at: nullable(dateTime()), failed_reads: count,
});

const NO_RECEIPT = 'There is no such secret, or its receipt is no longer kept.';
const NOT_DELETED = 'Nothing to delete: the secret does not exist, was already read, or has expired. See its receipt.';

type ById = Call<null, { readonly id: string }, unknown, null>;

export async function receipt({ path }: ById, { database }: SecretsService) {
  const found = await findReceipt(database, path.id);
  if (!found) return new Failure('not_found', { message: NO_RECEIPT });
  const format = (date: Date | null) => date?.toISOString() ?? null;
  const [created_at, expires_at] = [found.created_at.toISOString(), format(found.expires_at)];
  return { data: { ...found, created_at, expires_at, last_read_at: format(found.last_read_at) } };
}

/** Of a deletion and a simultaneous last read, exactly one succeeds. */
export async function remove({ path, request }: ById, service: SecretsService) {
  const deleted = await deleteSecret(service.database, path.id);
  if (!deleted) return new Failure('not_found', { message: NOT_DELETED });
  if (deleted.is_new) recordEvent(service, 'deleted', deleted, request);
  return { data: { id: deleted.id, status: 'deleted' } } as const;
}
