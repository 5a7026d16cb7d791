import { type Migration, locksTable } from '../db/migrate.ts';

export const SCHEMA = 'webhook';

/** Published steps never change; a change is a new step at the end. */
export const MIGRATIONS: readonly Migration[] = [
  {
    name: 'tokens and events',
    statements: [
      locksTable(SCHEMA),
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
  {
    name: 'sources',
    statements: [
      `alter table webhook.tokens
        -- sender or operator
        add role text not null default 'sender',
        add source text not null default 'generic',
        add last_used_at timestamptz,
        -- What the token was before it was rotated, and until when that still holds.
        add previous_digest bytea,
        add previous_until timestamptz`,
      'create unique index tokens_previous_digest on webhook.tokens (previous_digest) where previous_digest is not null',
      `create table webhook.signing_secrets (
        id uuid primary key,
        token_id uuid not null references webhook.tokens (id),
        -- Sealed under WEBHOOK_SECRET.
        key_id text not null,
        client_key bytea not null,
        commitment bytea not null,
        blob bytea not null,
        -- Handed over by the sender itself; it counts once an operator has confirmed it.
        pending boolean not null default false,
        -- Set when another one takes its place.
        expires_at timestamptz,
        created_at timestamptz not null default now()
      )`,
      'create index signing_secrets_token on webhook.signing_secrets (token_id)',
      'create unique index signing_secrets_pending on webhook.signing_secrets (token_id) where pending',
      `alter table webhook.events
        add source text not null default 'generic',
        -- Those of an allow-list; none that could hold a credential.
        add headers jsonb not null default '{}',
        add ip text`,
    ],
  },
  {
    name: 'delivery',
    statements: [
      // What waits and what is being worked on, and nothing else: it stays small whatever the history. A claim moves due_at
      // to the end of its lease, so one index finds what is new, what is to be tried again, and what a dead worker left.
      `create table webhook.work (
        event_id uuid primary key,
        received_at timestamptz not null,
        -- Those with the same one go in order; null for no order.
        order_key text,
        attempts integer not null default 0,
        due_at timestamptz not null default now(),
        -- Who works on it: completion, retry and renewal are only for the holder.
        claim uuid
      ) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0)`,
      'create index work_due on webhook.work (due_at)',
      'create index work_order on webhook.work (order_key, received_at, event_id) where order_key is not null',
      `create table webhook.outcomes (
        event_id uuid primary key,
        -- done, dead, or skipped: not among those that WEBHOOK_EVENTS selects.
        status text not null,
        attempts integer not null,
        ended_at timestamptz not null default now()
      )`,
      'create index outcomes_ended on webhook.outcomes (status, ended_at)',
      `create table webhook.failures (
        id uuid primary key default gen_random_uuid(),
        event_id uuid not null,
        attempt integer not null,
        failed_at timestamptz not null default now(),
        error text not null
      )`,
      'create index failures_event on webhook.failures (event_id, failed_at)',
    ],
  },
  {
    name: 'outcomes are checked',
    // Others write them, too: see WEBHOOKS.md.
    statements: [`alter table webhook.outcomes add constraint outcomes_status check (status in ('done', 'dead', 'skipped'))`],
  },
  {
    name: 'events lock no token',
    // Tokens are never removed, and the check locked the sender's row for each event, in all replicas the same one.
    statements: ['alter table webhook.events drop constraint events_token_id_fkey'],
  },
];
