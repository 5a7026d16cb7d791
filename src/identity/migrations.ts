import { type Migration, turnsTable } from '../db/migrate.ts';

export const SCHEMA = 'identity';

/** Published steps never change; a change is a new step at the end. */
export const MIGRATIONS: readonly Migration[] = [
  {
    name: 'users and sessions',
    statements: [
      turnsTable(SCHEMA),
      `create table identity.users (
        id uuid primary key,
        username text not null,
        -- NFKC and lower case: two spellings of one name are one account.
        username_key text not null,
        email text not null,
        email_key text not null,
        first_name text not null,
        last_name text not null,
        -- A PHC string; null for a user who cannot log in with a password.
        password_hash text,
        enabled boolean not null,
        verified boolean not null,
        super_admin boolean not null,
        created_at timestamptz not null default now(),
        updated_at timestamptz not null default now(),
        deleted_at timestamptz
      )`,
      // A deleted user's name and address are free again.
      'create unique index users_username_key on identity.users (username_key) where deleted_at is null',
      'create unique index users_email_key on identity.users (email_key) where deleted_at is null',
      `create table identity.sessions (
        id uuid primary key,
        -- SHA-256 of the token: who reads the table holds no session.
        token_digest bytea not null,
        user_id uuid not null references identity.users (id),
        revoked boolean not null default false,
        logged_out boolean not null default false,
        expires_at timestamptz not null,
        created_at timestamptz not null default now(),
        updated_at timestamptz not null default now(),
        deleted_at timestamptz
      )`,
      'create unique index sessions_token_digest on identity.sessions (token_digest)',
      'create index sessions_newest on identity.sessions (created_at desc, id desc) where deleted_at is null',
      'create index sessions_newest_of_user on identity.sessions (user_id, created_at desc, id desc) where deleted_at is null',
      'create index sessions_expiry on identity.sessions (expires_at)',
    ],
  },
];
