import { LOCKED } from '../../crypto/box.ts';
import type { Database } from '../../db/pool.ts';

interface Link {
  readonly key_id: string;
  readonly commitment: Buffer | null; // null in rows that ended before it was kept
  readonly status: 'stored' | 'read' | 'expired' | 'deleted';
  readonly passphrase: boolean;
  readonly reads: number;
  readonly max_reads: number | null;
  readonly expires_at: Date | null;
  readonly ended_at: Date | null;
}

/** What the holder of a link may know, also after the end of the secret. */
export async function findLink(database: Database, id: string): Promise<Link | null> {
  const [row] = await database.read((sql) => sql<Link[]>`
    select key_id, commitment,
      coalesce(ending, case when expires_at <= now() then 'expired' else 'stored' end) as status,
      coalesce(get_byte(blob, 0) = ${LOCKED}, false) as passphrase, reads::float8 as reads, max_reads, expires_at,
      coalesce(ended_at, case when expires_at <= now() then expires_at end) as ended_at
    from secrets.secrets where id = ${id}`);
  return row ?? null;
}
