import { type Migration, locksTable } from '../db/migrate.ts';

export const SCHEMA = 'identity';

/** Published steps never change; a change is a new step at the end. */
export const MIGRATIONS: readonly Migration[] = [
  {
    name: 'users and sessions',
    statements: [
      locksTable(SCHEMA),
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
  {
    name: 'keys, throttles, audit, totals',
    statements: [
      // Adding a column with a constant default rewrites nothing: now() is evaluated once.
      `alter table identity.sessions
        add column ip text,
        add column user_agent text,
        add column last_seen_at timestamptz not null default now()`,
      // With what tells whether a session is active, so that the list of those is read from the index alone.
      'drop index identity.sessions_newest',
      'drop index identity.sessions_newest_of_user',
      `create index sessions_newest on identity.sessions (created_at desc, id desc)
        include (expires_at, revoked, logged_out) where deleted_at is null`,
      `create index sessions_newest_of_user on identity.sessions (user_id, created_at desc, id desc)
        include (expires_at, revoked, logged_out) where deleted_at is null`,
      'create index sessions_ended on identity.sessions (updated_at) where revoked or logged_out',
      'create index sessions_active on identity.sessions (expires_at) where not revoked and not logged_out and deleted_at is null',
      'create index sessions_open_of_user on identity.sessions (user_id, id) where not revoked and not logged_out and deleted_at is null',
      'create index users_oldest on identity.users (created_at, id) where deleted_at is null',
      'create index users_administrators on identity.users (id) where super_admin and enabled and deleted_at is null',
      `create table identity.api_keys (
        id uuid primary key,
        -- SHA-256 of the key; the first characters are kept so that people can tell their keys apart.
        key_digest bytea not null,
        key_prefix text not null,
        name text not null,
        -- Null for a key of no user.
        user_id uuid references identity.users (id),
        revoked boolean not null default false,
        expires_at timestamptz,
        last_used_at timestamptz,
        created_at timestamptz not null default now(),
        updated_at timestamptz not null default now(),
        deleted_at timestamptz
      )`,
      'create unique index api_keys_key_digest on identity.api_keys (key_digest)',
      'create index api_keys_newest on identity.api_keys (created_at desc, id desc) where deleted_at is null',
      'create index api_keys_newest_of_user on identity.api_keys (user_id, created_at desc, id desc) where deleted_at is null',
      `create table identity.throttles (
        -- A keyed digest: which names were tried, mistyped passwords among them, is not to be read here.
        key bytea primary key,
        -- When a login failed, newest first.
        failures timestamptz[] not null,
        -- For an account and a network together: when that account last logged in from there.
        succeeded_at timestamptz,
        forget_at timestamptz not null
      )`,
      'create index throttles_forgotten on identity.throttles (forget_at)',
      // 244 random bits, the same for all replicas.
      'create table identity.throttle_secret (secret bytea not null)',
      "insert into identity.throttle_secret values (decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex'))",
      `create table identity.audit (
        id uuid primary key,
        created_at timestamptz not null default now(),
        event text not null,
        -- session, key, password, command or nobody; then the user who acts, and the key that was used.
        via text not null,
        actor_id uuid,
        key_id uuid,
        -- Whom it is about; the session, key or user that was changed; how many of them.
        user_id uuid,
        target_id uuid,
        count integer not null,
        ip text,
        request_id text,
        detail text not null
      )`,
      'create index audit_newest on identity.audit (created_at desc, id desc)',
      'create index audit_newest_of_event on identity.audit (event, created_at desc, id desc)',
      'create index audit_newest_of_user on identity.audit (user_id, created_at desc, id desc)',
      'create index audit_newest_of_actor on identity.audit (actor_id, created_at desc, id desc)',
      // How long each list is, kept up by every statement that changes it, because to count a long list is to read it.
      `create table identity.totals (
        -- users, sessions, api_keys, audit; and parts: sessions of user, api_keys of user, audit of each event.
        list text not null,
        -- The user whose part it is; otherwise the nil UUID.
        owner uuid not null,
        -- The whole is spread over several rows: logins on different replicas do not wait for each other.
        shard integer not null,
        n bigint not null,
        primary key (list, owner, shard)
      )`,
      `insert into identity.totals
        select 'users', '00000000-0000-0000-0000-000000000000', 0, count(*) from identity.users where deleted_at is null`,
      `insert into identity.totals
        select 'sessions', '00000000-0000-0000-0000-000000000000', 0, count(*) from identity.sessions where deleted_at is null`,
      "insert into identity.totals select 'sessions of user', user_id, 0, count(*) from identity.sessions where deleted_at is null group by user_id",
    ],
  },
];
