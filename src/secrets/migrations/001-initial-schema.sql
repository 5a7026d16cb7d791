create schema if not exists secrets;

create table secrets.secrets (
  id uuid primary key,
  creator text, -- token:ID, id:ID or user:NAME of a user, or anyone; null: AUTH_TOKEN
  key_id text not null, -- the server secret it was encrypted under
  -- Recognizes the right client key without decrypting anything. It stays after the end, so that
  -- only holders of the key can learn how the secret ended.
  commitment bytea not null,
  blob bytea, -- version, nonce, ciphertext and GCM tag
  tag bytea, -- detects an altered row, whichever key a reader sends
  created_at timestamptz not null default now(),
  -- Null: never. In whole milliseconds, because the ciphertext is bound to it.
  expires_at timestamptz,
  max_reads int4, -- null: unlimited
  reads bigint not null default 0,
  last_read_at timestamptz,
  failed_reads bigint not null default 0, -- wrong keys and passphrases, also after the end
  -- Read, expired or deleted. The content is removed then, and the rest is the receipt.
  ending text,
  ended_at timestamptz,
  constraint content_until_end
    check ((blob is null) = (ending is not null) and (tag is null) = (blob is null))
);
create index secrets_expiry on secrets.secrets (expires_at) where blob is not null;
create index secrets_ended on secrets.secrets (ended_at) where blob is null;
create index secrets_own on secrets.secrets (creator, created_at) where creator is not null;
create index secrets_key on secrets.secrets (key_id, expires_at) where blob is not null;

-- Every server secret that was ever the current one, by its key id, from which it cannot be derived.
create table secrets.server_keys (
  key_id text primary key,
  first_used_at timestamptz not null default now()
);

create table secrets.tokens (
  id uuid primary key,
  name text not null,
  role text not null, -- sender or operator
  digest bytea not null unique,
  previous_digest bytea unique, -- valid until previous_until, after a rotation
  previous_until timestamptz,
  created_at timestamptz not null default now(),
  revoked_at timestamptz
);

create table secrets.requests (
  id uuid primary key, -- also of the secret that answers it
  key_id text not null, -- the server secret of the tag
  -- Detects an altered row, as of secrets. Without it, nothing can bring a withdrawn request back.
  tag bytea,
  creator text, -- as of secrets
  asker text, -- the name of that user
  kind text not null, -- text or file
  title text not null,
  public_key text not null, -- P-256, in Base64url; the private key is in the link to keep
  digest text not null, -- of public key, kind and title; it is in both links
  key_digest bytea not null, -- of the key in the link to keep
  max_reads int4 not null, -- of the answer
  seconds int4 not null, -- how long it is open, and how long its answer is kept
  answer_key text, -- the public key of the answer
  created_at timestamptz not null default now(),
  expires_at timestamptz not null, -- after the answer, that of the answer
  ending text, -- answered or withdrawn
  constraint key_with_answer
    check ((answer_key is null) = (ending is distinct from 'answered')),
  constraint tag_until_withdrawn
    check ((tag is null) = (ending is not distinct from 'withdrawn'))
);
create index requests_expiry on secrets.requests (expires_at);
create index requests_own on secrets.requests (creator, created_at) where creator is not null;
create index requests_key on secrets.requests (key_id, expires_at);

-- Attempts under a limit, by keyed digests.
create table secrets.throttles (
  key bytea primary key,
  attempts int4 not null,
  window_ends_at timestamptz not null,
  blocked_until timestamptz,
  was_blocked boolean not null default false, -- when the latest attempt was counted
  known_until timestamptz
);
create index throttles_forgotten on secrets.throttles (greatest(window_ends_at, known_until));
