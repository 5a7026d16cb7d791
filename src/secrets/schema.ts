import type { Schema } from '../db/schema.ts';

const steps = async () => (await import('./migrations.ts')).MIGRATIONS;
export const SCHEMA: Schema = { name: 'secrets', version: 2, steps };
