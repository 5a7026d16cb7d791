import { type Migration, turnsTable } from '../db/migrate.ts';

export const SCHEMA = 'webhook';

/** Published steps never change; a change is a new step at the end. */
export const MIGRATIONS: readonly Migration[] = [
  {
    name: 'tokens and events',
    statements: [
      turnsTable(SCHEMA),
      `create table webhook.tokens (
        id uuid primary key,
        name text not null,
        -- SHA-256 of the token: who reads the table can post nothing.
        digest bytea not null,
        created_at timestamptz not null default now(),
        revoked_at timestamptz
      )`,
      'create unique index tokens_digest on webhook.tokens (digest)',
      `create table webhook.events (
        id uuid primary key,
        token_id uuid not null references webhook.tokens (id),
        -- The sender's own name for this delivery, if it gave one.
        delivery_id text,
        event text not null,
        -- Byte for byte as it came.
        body bytea not null,
        received_at timestamptz not null default now()
      )`,
      'create unique index events_delivery on webhook.events (token_id, delivery_id)',
      'create index events_newest on webhook.events (received_at desc, id desc)',
    ],
  },
];
