import { LOCKED } from '../../crypto/box.ts';
import type { Database } from '../../db/pool.ts';
import { boolean, dateTime, type Infer, nullable, object } from '../../http/shape.ts';
import { count, status } from '../store.ts';

/** What the holder of a link may know, also after the end of the secret. */
export const linkShape = object({
  status,
  passphrase: boolean(),
  reads: count,
  max_reads: nullable(count),
  expires_at: nullable(dateTime()),
  ended_at: nullable(dateTime()),
});
/** `commitment`: null in rows that ended before it was kept. */
type Link = Infer<typeof linkShape> & Readonly<{ key_id: string; commitment: Buffer | null }>;

export async function findLink(database: Database, id: string): Promise<Link | null> {
  const [row] = await database.read(
    (sql) => sql<Link[]>`
    select key_id, commitment,
      coalesce(ending, case when expires_at <= now() then 'expired' else 'stored' end) as status,
      coalesce(get_byte(blob, 0) = ${LOCKED}, false) as passphrase, reads::float8 as reads, max_reads, expires_at,
      coalesce(ended_at, case when expires_at <= now() then expires_at end) as ended_at
    from secrets.secrets where id = ${id}`,
  );
  return row ?? null;
}
