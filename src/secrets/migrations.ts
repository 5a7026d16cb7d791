import type { DatabaseSchema } from '../platform/db/schema.ts';

export const SCHEMA: DatabaseSchema = {
  name: 'secrets',
  folder: new URL('migrations/', import.meta.url),
  steps: ['001-initial-schema'],
  distributable: 'secrets.secrets by id',
};
