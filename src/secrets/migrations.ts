import { type Migration, turnsTable } from '../db/migrate.ts';

export const SCHEMA = 'secrets';

/** Published steps never change; a change is a new step at the end. */
export const MIGRATIONS: readonly Migration[] = [
  {
    name: 'secrets',
    statements: [
      turnsTable(SCHEMA),
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
];
