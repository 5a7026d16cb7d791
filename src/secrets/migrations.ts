import { type Migration, locksTable } from '../db/migrate.ts';

export const SCHEMA = 'secrets';

/** Published steps never change; a change is a new step at the end. */
export const MIGRATIONS: readonly Migration[] = [
  {
    name: 'secrets',
    statements: [
      locksTable(SCHEMA),
      `create table secrets.secrets (
        id uuid primary key,
        -- Which server secret this was sealed under.
        key_id text not null,
        -- Recognises the right client key without opening anything; null once used up.
        commitment bytea,
        -- Version, nonce, ciphertext and tag; null once used up.
        blob bytea,
        created_at timestamptz not null default now(),
        -- Null for never. Whole milliseconds, because it is bound into the sealed text.
        expires_at timestamptz,
        -- Null for any number.
        max_reads integer,
        reads integer not null default 0
      )`,
      'create index secrets_expiry on secrets.secrets (expires_at)',
      'create index secrets_used_up on secrets.secrets (created_at) where blob is null',
    ],
  },
  {
    name: 'receipts',
    statements: [
      `alter table secrets.secrets
        alter column reads type bigint,
        add last_read_at timestamptz,
        -- Wrong keys and passphrases, also after the end.
        add failed_reads bigint not null default 0,
        -- Tells an altered row, whatever key is brought; null in older rows, and after the end.
        add tag bytea,
        -- read, expired or deleted. With it the content goes; what stays is the receipt.
        add ending text,
        add ended_at timestamptz`,
      `update secrets.secrets set ending = 'read', ended_at = now() where blob is null`,
      'drop index secrets.secrets_expiry',
      'drop index secrets.secrets_used_up',
      'create index secrets_expiry on secrets.secrets (expires_at) where blob is not null',
      'create index secrets_ended on secrets.secrets (ended_at) where blob is null',
      'create index secrets_key on secrets.secrets (key_id, expires_at) where blob is not null',
      // Every server secret that has ever been the current one, by its key id, which tells nothing of it.
      `create table secrets.server_keys (
        key_id text primary key,
        first_used_at timestamptz not null default now()
      )`,
      'insert into secrets.server_keys select key_id, min(created_at) from secrets.secrets group by key_id',
      `create table secrets.throttles (
        -- A keyed digest of what is counted.
        key bytea primary key,
        tries integer not null,
        -- When they are forgotten.
        until timestamptz not null
      )`,
      'create index throttles_until on secrets.throttles (until)',
    ],
  },
];
