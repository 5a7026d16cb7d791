import type { Call, Reply } from '../http/call.ts';
import { decimal, type Infer, optional, queryParameters, uuid } from '../http/shape.ts';
import type { SecretsService } from './service.ts';
import { type ListedSecret, listSecrets } from './store.ts';

/** Rows per statement, so that memory does not grow with the number of secrets. */
const PAGE = 100;
const NIL_UUID = '00000000-0000-0000-0000-000000000000';

export const listQuery = queryParameters({
  limit: optional(decimal({ min: 1, max: PAGE, description: 'Secrets per page; all of them without limit and after' })),
  after: optional(uuid('The last id of the previous page')),
});

type ListCall = Call<null, unknown, Infer<typeof listQuery>, null>;
const itemOf = ({ id, blob }: ListedSecret) => ({ id, secret: blob.toString('base64url') });
type ListItem = ReturnType<typeof itemOf>;

/** Every readable secret as id and encrypted text: all of them as a stream, or one page. None of it is a key. */
export async function list({ query }: ListCall, { database }: SecretsService): Promise<Reply<ListItem[]>> {
  const { limit = PAGE, after = NIL_UUID } = query;
  if (query.limit === undefined && query.after === undefined) return { items: everything() };
  // One row more than the page has shows whether there is a next page.
  const rows = await listSecrets(database, after, limit + 1);
  const page = rows.slice(0, limit).map(itemOf);
  const next = `</api/store?limit=${limit}&after=${page.at(-1)?.id}>; rel="next"`;
  return { data: page, headers: rows.length > limit ? { Link: next } : {} };

  async function* everything(): AsyncGenerator<ListItem[]> {
    for (let last: string | undefined = NIL_UUID; last !== undefined; ) {
      const items: ListItem[] = (await listSecrets(database, last, PAGE)).map(itemOf);
      yield items;
      last = items.length < PAGE ? undefined : items.at(-1)?.id;
    }
  }
}
