import { locksTable, type Migration } from '../db/migrate.ts';
import { throttlesTable } from '../db/throttle.ts';

export const SCHEMA = 'secrets';

/** A released step never changes; a change is a new step at the end. */
export const MIGRATIONS: readonly Migration[] = [
  {
    name: 'secrets',
    statements: [
      locksTable(SCHEMA),
      `create table secrets.secrets (
        id uuid primary key,
        -- The server secret it was encrypted under.
        key_id text not null,
        -- Recognizes the right client key without decrypting anything.
        commitment bytea,
        -- Version, nonce, ciphertext and GCM tag.
        blob bytea,
        -- Detects an altered row, whichever key a reader sends.
        tag bytea,
        created_at timestamptz not null default now(),
        -- Null: never. Whole milliseconds, because the ciphertext is bound to it.
        expires_at timestamptz,
        -- Null: unlimited.
        max_reads integer,
        reads bigint not null default 0,
        last_read_at timestamptz,
        -- Wrong keys and passphrases, also after the end.
        failed_reads bigint not null default 0,
        -- read, expired or deleted. The content is removed then; the rest is the receipt.
        ending text,
        ended_at timestamptz,
        constraint content_until_end check ((blob is null) = (ending is not null)
          and (commitment is null) = (blob is null) and (tag is null) = (blob is null))
      )`,
      'create index secrets_expiry on secrets.secrets (expires_at) where blob is not null',
      'create index secrets_ended on secrets.secrets (ended_at) where blob is null',
      'create index secrets_key on secrets.secrets (key_id, expires_at) where blob is not null',
      // Every server secret that was ever the current one, by its key id, from which it cannot be derived.
      `create table secrets.server_keys (
        key_id text primary key,
        first_used_at timestamptz not null default now()
      )`,
      ...throttlesTable(SCHEMA),
    ],
  },
];
