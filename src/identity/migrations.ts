import type { DatabaseSchema } from '../platform/db/schema.ts';

export const SCHEMA: DatabaseSchema = {
  name: 'identity',
  folder: new URL('migrations/', import.meta.url),
  steps: ['001-initial-schema', '002-rights-of-keys', '003-imported-passwords'],
};
