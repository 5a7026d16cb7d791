import type { Call, Reply, RequestInfo } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import {
  decimal,
  type Infer,
  object,
  optional,
  queryParameters,
  text,
  uuid,
} from '../http/shape.ts';
import { type Caller, ownOnly } from './caller.ts';
import { recordEvent, type SecretsService } from './service.ts';
import { deleteSecret, findReceipt, listSecrets } from './store.ts';

/** Rows per statement, so that memory does not grow with the number of secrets. */
const PAGE = 100;
const MAX_LISTED_BYTES = 8 * 1024 * 1024;
const NIL_UUID = '00000000-0000-0000-0000-000000000000';

export const listQuery = queryParameters({
  limit: optional(
    decimal({
      min: 1,
      max: PAGE,
      description: 'Secrets per page; all of them without limit and after',
    }),
  ),
  after: optional(uuid('The last id of the previous page')),
});
export const listedShape = object({
  id: uuid(),
  secret: text({ description: 'The encrypted secret' }),
});

type ListCall = Call<Caller, unknown, Infer<typeof listQuery>, null>;
type Listed = Infer<typeof listedShape>;

/** Every readable secret as id and encrypted text: all of them as a stream, or one page. None of it is a key. */
export async function list(
  { query }: ListCall,
  { database, limits }: SecretsService,
): Promise<Reply<Listed[]>> {
  const { after = NIL_UUID } = query;
  const rows = Math.min(PAGE, Math.ceil(MAX_LISTED_BYTES / limits.password.max_bytes));
  const limit = Math.min(query.limit ?? PAGE, rows);
  if (query.limit === undefined && query.after === undefined) return { items: everything() };
  // One row more than the page has shows whether there is a next page.
  const found = await listSecrets(database, after, limit + 1);
  const data = found.slice(0, limit);
  const next = `</api/store?limit=${limit}&after=${data.at(-1)?.id}>; rel="next"`;
  return { data, headers: found.length > limit ? { Link: next } : {} };

  async function* everything(): AsyncGenerator<Listed[]> {
    for (let last: string | undefined = NIL_UUID; last !== undefined;) {
      const items: Listed[] = await listSecrets(database, last, rows);
      yield items;
      last = items[rows - 1]?.id;
    }
  }
}

const NO_RECEIPT = 'There is no such secret, or its receipt is no longer kept.';
const NOT_DELETED =
  'Nothing to delete: the secret does not exist, was already read, or has expired. See its receipt.';

type ById = Call<Caller, { readonly id: string }, unknown, null>;

export async function receipt({ path, caller }: ById, { database }: SecretsService) {
  const data = await findReceipt(database, path.id, ownOnly(caller));
  return data ? { data } : new Failure('not_found', { message: NO_RECEIPT });
}

export const remove = ({ path, caller, request }: ById, service: SecretsService) =>
  deleteAndReport(service, path.id, ownOnly(caller), request);

/** Of a deletion and a simultaneous last read, exactly one succeeds. @param creator as of `deleteSecret` */
export async function deleteAndReport(
  service: SecretsService,
  id: string,
  creator: string | null,
  request: RequestInfo,
) {
  const deleted = await deleteSecret(service.database, id, creator);
  if (!deleted) return new Failure('not_found', { message: NOT_DELETED });
  if (deleted.is_new) recordEvent(service, 'deleted', deleted, request);
  return { data: { id: deleted.id, status: 'deleted' } } as const;
}
