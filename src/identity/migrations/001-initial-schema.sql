create schema if not exists identity;

-- Rows to lock, for work that only one replica may do at a time.
create table identity.locks (
  name text primary key,
  taken_at timestamptz not null
);

create table identity.users (
  id uuid primary key,
  -- The keys are in NFKC and lower case: two spellings of one name are one account.
  username text not null,
  username_key text not null,
  email text not null,
  email_key text not null,
  first_name text not null,
  first_name_key text not null default '', -- only searched, like the next key
  last_name text not null,
  last_name_key text not null default '',
  password_hash text, -- a PHC string; null for a user who cannot log in with a password
  has_password boolean not null generated always as (password_hash is not null) stored,
  password_generated boolean not null default false,
  password_set_at timestamptz not null default now(),
  enabled boolean not null,
  verified boolean not null,
  super_admin boolean not null,
  second_factor boolean not null default false, -- whether a login needs one
  -- In the text of an array, PostgreSQL quotes "null", and names with other characters.
  groups text[] not null default '{}'
    check (cardinality(groups) <= 64
      and groups::text ~ '^\{(("null"|[a-z0-9._-]{1,64})(,("null"|[a-z0-9._-]{1,64}))*)?\}$'),
  sessions_end_at timestamptz, -- sessions created at or before this time have ended
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  deleted_at timestamptz
);
-- The name and address of a deleted user are free again. The service also sees to it that no
-- username is the address of another user.
create unique index users_username_key on identity.users (username_key) where deleted_at is null;
create unique index users_email_key on identity.users (email_key) where deleted_at is null;
create index users_oldest on identity.users (created_at, id) where deleted_at is null;
-- For totals of any choice of these columns, from the index alone.
create index users_chosen on identity.users (enabled, has_password, super_admin, second_factor)
  where deleted_at is null;
create index users_administrators on identity.users (id)
  where super_admin and enabled and deleted_at is null;
create index users_of_group on identity.users using gin (groups) where deleted_at is null;
-- The audit trail of deleted users is found by their names.
create index users_named on identity.users (username_key);
create index users_to_erase on identity.users (deleted_at)
  where deleted_at is not null and username <> '';
create index users_sessions_end on identity.users (id, sessions_end_at)
  where sessions_end_at is not null;
create index users_generated on identity.users (password_set_at) where password_generated;

-- One row, the same value for the sessions of all users.
create table identity.global_revocation (
  only_row boolean primary key default true check (only_row),
  sessions_end_at timestamptz
);
insert into identity.global_revocation default values;

create table identity.sessions (
  id uuid primary key,
  token_digest bytea not null unique, -- SHA-256: reading the table does not give a session
  user_id uuid not null references identity.users (id),
  revoked boolean not null default false,
  logged_out boolean not null default false,
  expires_at timestamptz not null,
  stays_until timestamptz, -- if its user chose to stay signed in; each use then moves expires_at
  ip text, -- of the login
  user_agent text, -- of the login
  methods text not null default 'password', -- how it was proved
  authenticated_at timestamptz, -- and when, if not when it was created
  domain_digest bytea, -- of the second token on the sign-in pages, which only opens verify
  last_seen_at timestamptz not null default now(),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  deleted_at timestamptz
);
-- With all columns that decide whether a session is active, so that lists and counts read the index
-- alone.
create index sessions_newest on identity.sessions (created_at desc, id desc)
  include (user_id, expires_at, revoked, logged_out) where deleted_at is null;
create index sessions_newest_of_user on identity.sessions (user_id, created_at desc, id desc)
  include (expires_at, revoked, logged_out) where deleted_at is null;
-- Small, and includes the column that totals filter by, so that they read only this index.
create index sessions_expiry on identity.sessions (expires_at) include (deleted_at);
create index sessions_ended on identity.sessions (updated_at) where revoked or logged_out;
-- Narrow, because it is read to count the active sessions.
create index sessions_open on identity.sessions (expires_at, created_at)
  where not revoked and not logged_out and deleted_at is null;
create unique index sessions_of_domain on identity.sessions (domain_digest)
  where domain_digest is not null;

-- The tables from here to the API keys belong to the sign-in pages and second factors.

-- Sealed under IDENTITY_SECRET, for the user's id.
create table identity.totp (
  user_id uuid primary key references identity.users (id),
  key_id text not null,
  client_key bytea not null,
  commitment bytea not null,
  blob bytea not null,
  last_step bigint not null
);

create table identity.recovery_codes (
  user_id uuid,
  digest bytea, -- SHA-256
  primary key (user_id, digest)
);

create table identity.passkeys (
  id bytea primary key,
  user_id uuid not null references identity.users (id),
  name text not null,
  spki bytea not null,
  counter bigint not null,
  is_backup_eligible boolean not null,
  signs_in_alone boolean not null, -- otherwise only after the password
  created_at timestamptz not null default now(),
  last_used_at timestamptz
);
create index passkeys_of_user on identity.passkeys (user_id, created_at);

-- A right password that waits for the second factor. Never a session: no guard reads this table.
create table identity.pending_sign_ins (
  token_digest bytea primary key,
  user_id uuid not null,
  password_digest bytea not null,
  methods text, -- that have proved the second factor
  link_digest bytea, -- of the link that is used in place of a password
  stays boolean not null default false, -- whether to stay signed in
  attempts int4 not null default 0,
  expires_at timestamptz not null
);
create index pending_sign_ins_expiry on identity.pending_sign_ins (expires_at);
create index pending_sign_ins_of_user on identity.pending_sign_ins (user_id);

-- With which a user sets a password. A new one replaces the earlier one.
create table identity.links (
  user_id uuid primary key references identity.users (id),
  token_digest bytea not null unique, -- SHA-256
  removes_factors boolean not null,
  created_by uuid references identity.users (id), -- null for the command line
  is_ended boolean not null default false,
  openings int4 not null default 0, -- how often it was opened
  expires_at timestamptz not null
);

create table identity.used_challenges (
  digest bytea primary key,
  expires_at timestamptz not null
);
create index used_challenges_expiry on identity.used_challenges (expires_at);

create table identity.api_keys (
  id uuid primary key,
  key_digest bytea not null unique, -- SHA-256
  key_prefix text not null, -- to tell keys apart
  name text not null,
  groups text[] not null default '{}' -- as of users; of a key without a user
    check (cardinality(groups) <= 64
      and groups::text ~ '^\{(("null"|[a-z0-9._-]{1,64})(,("null"|[a-z0-9._-]{1,64}))*)?\}$'),
  user_id uuid references identity.users (id), -- null for a key without a user
  created_by uuid references identity.users (id), -- null for the command line
  revoked boolean not null default false,
  expires_at timestamptz,
  last_used_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  deleted_at timestamptz
);
create index api_keys_newest on identity.api_keys (created_at desc, id desc)
  where deleted_at is null;
create index api_keys_newest_of_user on identity.api_keys (user_id, created_at desc, id desc)
  where deleted_at is null;
create index api_keys_without_user on identity.api_keys (created_by) where user_id is null;

-- Attempts under a limit, by keyed digests.
create table identity.throttles (
  key bytea primary key,
  attempts int4 not null,
  window_ends_at timestamptz not null,
  blocked_until timestamptz,
  was_blocked boolean not null default false, -- when the latest attempt was counted
  known_until timestamptz
);
create index throttles_forgotten on identity.throttles (greatest(window_ends_at, known_until));

-- Keys the digests in the throttles: 244 random bits, the same for all replicas. Logical
-- replication copies changes only of a table with a primary key.
create table identity.throttle_secret (secret bytea primary key);
insert into identity.throttle_secret
  select decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex');

create table identity.audit (
  id uuid primary key,
  created_at timestamptz not null default now(),
  event text not null,
  via text not null, -- who did it, with actor_id and key_id
  actor_id uuid,
  key_id uuid,
  user_id uuid, -- whom it is about
  target_id uuid, -- what changed
  count int4 not null, -- how many
  ip text,
  request_id text,
  detail text not null
);
create index audit_newest on identity.audit (created_at desc, id desc);
create index audit_newest_of_event on identity.audit (event, created_at desc, id desc);
create index audit_newest_of_user on identity.audit (user_id, created_at desc, id desc);
create index audit_newest_of_actor on identity.audit (actor_id, created_at desc, id desc);

-- Up to when what happened was told to NOTIFY_URL. The first message creates the row.
create table identity.notified (
  only_row boolean primary key default true check (only_row),
  position timestamptz not null default now(),
  next_at timestamptz not null default now()
);

-- OpenID Connect, which OIDC=on turns on. Programs at which users sign in ("clients").
create table identity.oidc_clients (
  id text primary key check (id ~ '^[a-z0-9][a-z0-9._-]{0,63}$'),
  name text not null,
  secret_digest bytea, -- SHA-256; null for a program that cannot keep a secret
  previous_digest bytea, -- of the secret before it, which is valid until then
  previous_until timestamptz,
  redirect text[] not null check (cardinality(redirect) > 0), -- where sign-ins return
  logout_uri text[] not null,
  backchannel_uri text not null, -- told when a session ends; may be empty
  groups text[] not null, -- users need one of them; empty: every user may sign in
  pkce boolean not null,
  consent boolean not null, -- whether the person is asked before the first sign-in
  refresh boolean not null,
  second_factor boolean not null,
  id_token_seconds int4 not null,
  enabled boolean not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);

-- One sign-in of a session at a program. Its tokens are valid only as long as the session.
create table identity.oidc_grants (
  id uuid primary key, -- the claim "sid"
  client_id text not null references identity.oidc_clients (id) on delete cascade,
  session_id uuid not null references identity.sessions (id) on delete cascade,
  scopes text[] not null,
  redirect_uri text not null,
  nonce text not null,
  challenge text not null, -- of PKCE; empty without
  ended_at timestamptz,
  notices_left int4 not null default 3, -- how often to try to tell the program that it has ended
  notice_at timestamptz not null default now(), -- when the next try may begin
  created_at timestamptz not null default now()
);
create index oidc_grants_of_session on identity.oidc_grants (session_id);
create index oidc_grants_of_client on identity.oidc_grants (client_id);

-- Codes and tokens. Those that were used are kept, to notice a second use.
create table identity.oidc_tokens (
  digest bytea primary key, -- SHA-256
  grant_id uuid not null references identity.oidc_grants (id) on delete cascade,
  kind text not null, -- code, access or refresh
  used_at timestamptz, -- of a code, or of a refresh token that was replaced
  ends_at timestamptz -- null: with its session
);
create index oidc_tokens_of_grant on identity.oidc_tokens (grant_id);
create index oidc_tokens_end on identity.oidc_tokens (ends_at);

create table identity.oidc_consents (
  client_id text not null references identity.oidc_clients (id) on delete cascade,
  user_id uuid not null references identity.users (id),
  scopes text[] not null,
  given_at timestamptz not null default now(),
  primary key (client_id, user_id)
);
create index oidc_consents_of_user on identity.oidc_consents (user_id);

-- Private keys that sign ID tokens, sealed under IDENTITY_SECRET.
create table identity.oidc_keys (
  id uuid primary key, -- the claim "kid"
  key_id text not null,
  client_key bytea not null,
  commitment bytea not null,
  blob bytea not null,
  created_at timestamptz not null default now()
);
