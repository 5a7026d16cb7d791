import type { Job } from '../runtime/jobs.ts';
import type { SecretsService } from './service.ts';
import { removeEnded } from './store.ts';

const BATCH = 500;

/** No answer depends on this: every statement checks the expiry itself. It keeps what has ended from lying around. */
export function jobs({ database }: SecretsService): readonly Job[] {
  return [{ name: 'remove ended secrets', everySeconds: 60, batch: async () => (await removeEnded(database, BATCH)) >= BATCH }];
}
