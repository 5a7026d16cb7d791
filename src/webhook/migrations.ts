import type { DatabaseSchema } from '../platform/db/schema.ts';

/** The queue of events that go to the target of the process. */
export const COMMON_QUEUE = '00000000-0000-0000-0000-000000000000';

export const SCHEMA: DatabaseSchema = {
  name: 'webhook',
  folder: new URL('migrations/', import.meta.url),
  steps: ['001-initial-schema', '002-outbox'],
};
