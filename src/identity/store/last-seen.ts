import { isOver, type Sessions } from './sessions.ts';

/** Notes that these sessions and keys are in use: at most once a minute for each, whatever replicas saw it. */
export async function writeLastSeen({ database, idleSeconds }: Sessions, sessionIds: readonly string[], keyIds: readonly string[]): Promise<void> {
  // As text: without a look at the server's types, the client does not know how to send a list of UUIDs.
  const list = (ids: readonly string[]) => `{${[...ids].sort().join(',')}}`;
  await database.write(
    (sql) => sql`
      with seen as (
        update identity.sessions set last_seen_at = now()
        where id = any(${list(sessionIds)}::text::uuid[]) and last_seen_at < now() - interval '1 minute'
          -- What has ended meanwhile does not come to life again.
          and not ${isOver(sql, 'sessions', idleSeconds)}
      )
      update identity.api_keys set last_used_at = now()
      where id = any(${list(keyIds)}::text::uuid[]) and coalesce(last_used_at < now() - interval '1 minute', true)`,
  );
}
