import type { Schema } from '../db/schema.ts';

const steps = async () => (await import('./migrations.ts')).MIGRATIONS;
export const SCHEMA: Schema = { name: 'webhook', version: 3, steps };
