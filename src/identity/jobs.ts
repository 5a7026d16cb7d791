import type { Job } from '../runtime/jobs.ts';
import type { IdentityService } from './service.ts';
import { removeEndedSessions } from './store.ts';

const BATCH = 500;

/** Several replicas may run these at once: a row that another one removed is simply not there. */
export function jobs(service: IdentityService): readonly Job[] {
  return [
    {
      name: 'remove ended sessions',
      everySeconds: 300,
      batch: async () => (await removeEndedSessions(service.database, service.retentionSeconds, BATCH)) === BATCH,
    },
  ];
}
