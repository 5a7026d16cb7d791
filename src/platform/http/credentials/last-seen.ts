import type { Job } from '../../runtime/jobs.ts';

/** Beyond this number, the use is recorded with the next request. */
const MAX_PENDING = 10_000;

/** Which credentials are in use. A job writes it, outside of requests. */
export function createLastSeen() {
  const pending = new Set<string>();
  return {
    mark({ id, last_seen_is_old }: Readonly<{ id: string; last_seen_is_old: boolean }>) {
      if (last_seen_is_old && pending.size < MAX_PENDING) pending.add(id);
    },
    job(name: string, write: (ids: readonly string[]) => Promise<unknown>): Job {
      return {
        name,
        everySeconds: 5,
        async batch() {
          const ids = [...pending];
          pending.clear();
          // If this fails, the next use is recorded.
          if (ids.length > 0) await write(ids);
        },
      };
    },
  };
}
