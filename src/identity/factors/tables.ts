/** Part of the step that creates the schema: the tables of the sign-in pages and of second factors. */
export const TABLES: readonly string[] = [
  // How and when a session was started in the portal, and its second token: only for `verify`.
  `create table identity.sign_ins (
    session_id uuid primary key references identity.sessions (id) on delete cascade,
    domain_digest bytea unique, methods text not null, authenticated_at timestamptz not null
  )`,
  // Sealed under IDENTITY_SECRET, for the user's id.
  `create table identity.totp (
    user_id uuid primary key references identity.users (id),
    key_id text not null, client_key bytea not null, commitment bytea not null, blob bytea not null,
    last_step bigint not null
  )`,
  'create table identity.recovery_codes (user_id uuid, digest bytea, primary key (user_id, digest))', // SHA-256
  `create table identity.passkeys (
    id bytea primary key, user_id uuid not null references identity.users (id), name text not null,
    algorithm int4 not null, spki bytea not null, counter bigint not null, is_backup_eligible boolean not null,
    created_at timestamptz not null default now(), last_used_at timestamptz
  )`,
  'create index passkeys_of_user on identity.passkeys (user_id, created_at)',
  // A right password that waits for the second factor. Never a session: no guard reads this table.
  `create table identity.pending_sign_ins (
    token_digest bytea primary key, user_id uuid not null, password_digest bytea not null,
    attempts int4 not null default 0, expires_at timestamptz not null
  )`,
  'create index pending_sign_ins_expiry on identity.pending_sign_ins (expires_at)',
  'create index pending_sign_ins_of_user on identity.pending_sign_ins (user_id)',
  'create table identity.used_challenges (digest bytea primary key, expires_at timestamptz not null)',
  'create index used_challenges_expiry on identity.used_challenges (expires_at)',
];
