import { digest } from '../crypto/token.ts';
import { isReady } from '../db/migrate.ts';
import type { Database } from '../db/pool.ts';
import type { Surroundings } from '../runtime/surroundings.ts';
import { MIGRATIONS, SCHEMA } from './migrations.ts';
import { type Acceptance, findToken, insertEvent, type NewEvent } from './store.ts';

/**
 * What handlers work with. The two variants differ in who may send and where an event goes, and in nothing else.
 */
export interface WebhookService {
  /** @returns what stands for the sender, or null when the token is not one */
  admit(token: string | null): Promise<string | null>;
  /** Resolves once the event is safe. */
  accept(event: NewEvent, requestId: string): Promise<Acceptance>;
  ready(): Promise<boolean>;
}

/** Tokens and events in the database. */
export function createExtended(database: Database, { isServing }: Surroundings): WebhookService {
  return {
    admit: async (token) => (token === null ? null : findToken(database, digest(token))),
    accept: (event) => insertEvent(database, event),
    ready: async () => isServing() && isReady(database, SCHEMA, MIGRATIONS),
  };
}
