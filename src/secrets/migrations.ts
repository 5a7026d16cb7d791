import type { Migration } from '../db/schema.ts';
import { throttlesTable } from '../db/throttle-table.ts';

/** A released step never changes; a change is a new step at the end. */
export const MIGRATIONS: readonly Migration[] = [
  {
    name: 'secrets',
    statements: [
      `create table secrets.secrets (
        id uuid primary key,
        key_id text not null, -- the server secret it was encrypted under
        commitment bytea, -- recognizes the right client key without decrypting anything
        blob bytea, -- version, nonce, ciphertext and GCM tag
        tag bytea, -- detects an altered row, whichever key a reader sends
        created_at timestamptz not null default now(),
        expires_at timestamptz, -- null: never; whole milliseconds, because the ciphertext is bound to it
        max_reads int4, -- null: unlimited
        reads bigint not null default 0,
        last_read_at timestamptz,
        failed_reads bigint not null default 0, -- wrong keys and passphrases, also after the end
        ending text, -- read, expired or deleted; the content is removed then, and the rest is the receipt
        ended_at timestamptz,
        constraint content_until_end check ((blob is null) = (ending is not null)
          and (commitment is null) = (blob is null) and (tag is null) = (blob is null))
      )`,
      'create index secrets_expiry on secrets.secrets (expires_at) where blob is not null',
      'create index secrets_ended on secrets.secrets (ended_at) where blob is null',
      'create index secrets_key on secrets.secrets (key_id, expires_at) where blob is not null',
      // Every server secret that was ever the current one, by its key id, from which it cannot be derived.
      'create table secrets.server_keys (key_id text primary key, first_used_at timestamptz not null default now())',
      ...throttlesTable('secrets'),
    ],
  },
  {
    name: 'links and tokens',
    statements: [
      'alter table secrets.secrets drop constraint content_until_end',
      // The commitment stays, so that only holders of the key can learn how the secret ended.
      `alter table secrets.secrets add column creator text, -- token:ID, user:NAME or anyone; null: AUTH_TOKEN
        add constraint content_until_end check ((blob is null) = (ending is not null)
          and (tag is null) = (blob is null) and (blob is null or commitment is not null))`,
      `create table secrets.tokens (
        id uuid primary key,
        name text not null,
        role text not null, -- sender or operator
        digest bytea not null unique,
        previous_digest bytea unique, -- valid until previous_until, after a rotation
        previous_until timestamptz,
        created_at timestamptz not null default now(),
        revoked_at timestamptz
      )`,
    ],
  },
];
