-- The schemas after all steps, as the catalogs of PostgreSQL have them. Written by: make schema

create table identity.api_keys (
  id uuid not null,
  key_digest bytea not null,
  key_prefix text not null,
  name text not null,
  groups text[] default '{}'::text[] not null,
  user_id uuid,
  created_by uuid,
  revoked boolean default false not null,
  expires_at timestamp with time zone,
  last_used_at timestamp with time zone,
  created_at timestamp with time zone default now() not null,
  updated_at timestamp with time zone default now() not null,
  deleted_at timestamp with time zone,
  rights text[],
  scopes text[] default '{}'::text[] not null,
  provision_groups text[] default '{}'::text[] not null,
  made_by uuid,
  constraint api_keys_created_by_fkey FOREIGN KEY (created_by) REFERENCES identity.users(id),
  constraint api_keys_groups_check CHECK (((cardinality(groups) <= 64) AND ((groups)::text ~ '^\{(("null"|[a-z0-9._-]{1,64})(,("null"|[a-z0-9._-]{1,64}))*)?\}$'::text))),
  constraint api_keys_key_digest_key UNIQUE (key_digest),
  constraint api_keys_made_by_fkey FOREIGN KEY (made_by) REFERENCES identity.api_keys(id),
  constraint api_keys_pkey PRIMARY KEY (id),
  constraint api_keys_scopes_check CHECK (((cardinality(scopes) <= 32) AND ((scopes)::text ~ '^\{(("null"|[a-z0-9._:-]{1,64})(,("null"|[a-z0-9._:-]{1,64}))*)?\}$'::text))),
  constraint api_keys_user_id_fkey FOREIGN KEY (user_id) REFERENCES identity.users(id)
);
CREATE INDEX api_keys_made ON identity.api_keys USING btree (made_by) WHERE (made_by IS NOT NULL);
CREATE INDEX api_keys_newest ON identity.api_keys USING btree (created_at DESC, id DESC) WHERE (deleted_at IS NULL);
CREATE INDEX api_keys_newest_of_user ON identity.api_keys USING btree (user_id, created_at DESC, id DESC) WHERE (deleted_at IS NULL);
CREATE INDEX api_keys_without_user ON identity.api_keys USING btree (created_by) WHERE (user_id IS NULL);

create table identity.audit (
  id uuid not null,
  created_at timestamp with time zone default now() not null,
  event text not null,
  via text not null,
  actor_id uuid,
  key_id uuid,
  user_id uuid,
  target_id uuid,
  count integer not null,
  ip text,
  request_id text,
  detail text not null,
  constraint audit_pkey PRIMARY KEY (id)
);
CREATE INDEX audit_newest ON identity.audit USING btree (created_at DESC, id DESC);
CREATE INDEX audit_newest_of_actor ON identity.audit USING btree (actor_id, created_at DESC, id DESC);
CREATE INDEX audit_newest_of_event ON identity.audit USING btree (event, created_at DESC, id DESC);
CREATE INDEX audit_newest_of_user ON identity.audit USING btree (user_id, created_at DESC, id DESC);

create table identity.global_revocation (
  only_row boolean default true not null,
  sessions_end_at timestamp with time zone,
  constraint global_revocation_only_row_check CHECK (only_row),
  constraint global_revocation_pkey PRIMARY KEY (only_row)
);

create table identity.links (
  user_id uuid not null,
  token_digest bytea not null,
  removes_factors boolean not null,
  created_by uuid,
  is_ended boolean default false not null,
  openings integer default 0 not null,
  expires_at timestamp with time zone not null,
  key_id uuid,
  constraint links_created_by_fkey FOREIGN KEY (created_by) REFERENCES identity.users(id),
  constraint links_key_id_fkey FOREIGN KEY (key_id) REFERENCES identity.api_keys(id),
  constraint links_pkey PRIMARY KEY (user_id),
  constraint links_token_digest_key UNIQUE (token_digest),
  constraint links_user_id_fkey FOREIGN KEY (user_id) REFERENCES identity.users(id)
);

create table identity.locks (
  name text not null,
  taken_at timestamp with time zone not null,
  constraint locks_pkey PRIMARY KEY (name)
);

create table identity.migrations (
  version integer not null,
  name text not null,
  applied_at timestamp with time zone default now() not null,
  constraint migrations_pkey PRIMARY KEY (version)
);

create table identity.notified (
  only_row boolean default true not null,
  "position" timestamp with time zone default now() not null,
  next_at timestamp with time zone default now() not null,
  constraint notified_only_row_check CHECK (only_row),
  constraint notified_pkey PRIMARY KEY (only_row)
);

create table identity.oidc_clients (
  id text not null,
  name text not null,
  secret_digest bytea,
  previous_digest bytea,
  previous_until timestamp with time zone,
  redirect text[] not null,
  logout_uri text[] not null,
  backchannel_uri text not null,
  groups text[] not null,
  pkce boolean not null,
  consent boolean not null,
  refresh boolean not null,
  second_factor boolean not null,
  id_token_seconds integer not null,
  enabled boolean not null,
  created_at timestamp with time zone default now() not null,
  updated_at timestamp with time zone default now() not null,
  constraint oidc_clients_id_check CHECK ((id ~ '^[a-z0-9][a-z0-9._-]{0,63}$'::text)),
  constraint oidc_clients_pkey PRIMARY KEY (id),
  constraint oidc_clients_redirect_check CHECK ((cardinality(redirect) > 0))
);

create table identity.oidc_consents (
  client_id text not null,
  user_id uuid not null,
  scopes text[] not null,
  given_at timestamp with time zone default now() not null,
  constraint oidc_consents_client_id_fkey FOREIGN KEY (client_id) REFERENCES identity.oidc_clients(id) ON DELETE CASCADE,
  constraint oidc_consents_pkey PRIMARY KEY (client_id, user_id),
  constraint oidc_consents_user_id_fkey FOREIGN KEY (user_id) REFERENCES identity.users(id)
);
CREATE INDEX oidc_consents_of_user ON identity.oidc_consents USING btree (user_id);

create table identity.oidc_grants (
  id uuid not null,
  client_id text not null,
  session_id uuid not null,
  scopes text[] not null,
  redirect_uri text not null,
  nonce text not null,
  challenge text not null,
  ended_at timestamp with time zone,
  notices_left integer default 3 not null,
  notice_at timestamp with time zone default now() not null,
  created_at timestamp with time zone default now() not null,
  constraint oidc_grants_client_id_fkey FOREIGN KEY (client_id) REFERENCES identity.oidc_clients(id) ON DELETE CASCADE,
  constraint oidc_grants_pkey PRIMARY KEY (id),
  constraint oidc_grants_session_id_fkey FOREIGN KEY (session_id) REFERENCES identity.sessions(id) ON DELETE CASCADE
);
CREATE INDEX oidc_grants_of_client ON identity.oidc_grants USING btree (client_id);
CREATE INDEX oidc_grants_of_session ON identity.oidc_grants USING btree (session_id);

create table identity.oidc_keys (
  id uuid not null,
  key_id text not null,
  client_key bytea not null,
  commitment bytea not null,
  blob bytea not null,
  created_at timestamp with time zone default now() not null,
  constraint oidc_keys_pkey PRIMARY KEY (id)
);

create table identity.oidc_tokens (
  digest bytea not null,
  grant_id uuid not null,
  kind text not null,
  used_at timestamp with time zone,
  ends_at timestamp with time zone,
  constraint oidc_tokens_grant_id_fkey FOREIGN KEY (grant_id) REFERENCES identity.oidc_grants(id) ON DELETE CASCADE,
  constraint oidc_tokens_pkey PRIMARY KEY (digest)
);
CREATE INDEX oidc_tokens_end ON identity.oidc_tokens USING btree (ends_at);
CREATE INDEX oidc_tokens_of_grant ON identity.oidc_tokens USING btree (grant_id);

create table identity.passkeys (
  id bytea not null,
  user_id uuid not null,
  name text not null,
  spki bytea not null,
  counter bigint not null,
  is_backup_eligible boolean not null,
  signs_in_alone boolean not null,
  created_at timestamp with time zone default now() not null,
  last_used_at timestamp with time zone,
  constraint passkeys_pkey PRIMARY KEY (id),
  constraint passkeys_user_id_fkey FOREIGN KEY (user_id) REFERENCES identity.users(id)
);
CREATE INDEX passkeys_of_user ON identity.passkeys USING btree (user_id, created_at);

create table identity.pending_sign_ins (
  token_digest bytea not null,
  user_id uuid not null,
  password_digest bytea not null,
  methods text,
  link_digest bytea,
  stays boolean default false not null,
  attempts integer default 0 not null,
  expires_at timestamp with time zone not null,
  constraint pending_sign_ins_pkey PRIMARY KEY (token_digest)
);
CREATE INDEX pending_sign_ins_expiry ON identity.pending_sign_ins USING btree (expires_at);
CREATE INDEX pending_sign_ins_of_user ON identity.pending_sign_ins USING btree (user_id);

create table identity.recovery_codes (
  user_id uuid not null,
  digest bytea not null,
  constraint recovery_codes_pkey PRIMARY KEY (user_id, digest)
);

create table identity.sessions (
  id uuid not null,
  token_digest bytea not null,
  user_id uuid not null,
  revoked boolean default false not null,
  logged_out boolean default false not null,
  expires_at timestamp with time zone not null,
  stays_until timestamp with time zone,
  ip text,
  user_agent text,
  methods text default 'password'::text not null,
  authenticated_at timestamp with time zone,
  domain_digest bytea,
  last_seen_at timestamp with time zone default now() not null,
  created_at timestamp with time zone default now() not null,
  updated_at timestamp with time zone default now() not null,
  deleted_at timestamp with time zone,
  constraint sessions_pkey PRIMARY KEY (id),
  constraint sessions_token_digest_key UNIQUE (token_digest),
  constraint sessions_user_id_fkey FOREIGN KEY (user_id) REFERENCES identity.users(id)
);
CREATE INDEX sessions_ended ON identity.sessions USING btree (updated_at) WHERE (revoked OR logged_out);
CREATE INDEX sessions_expiry ON identity.sessions USING btree (expires_at) INCLUDE (deleted_at);
CREATE INDEX sessions_newest ON identity.sessions USING btree (created_at DESC, id DESC) INCLUDE (user_id, expires_at, revoked, logged_out) WHERE (deleted_at IS NULL);
CREATE INDEX sessions_newest_of_user ON identity.sessions USING btree (user_id, created_at DESC, id DESC) INCLUDE (expires_at, revoked, logged_out) WHERE (deleted_at IS NULL);
CREATE UNIQUE INDEX sessions_of_domain ON identity.sessions USING btree (domain_digest) WHERE (domain_digest IS NOT NULL);
CREATE INDEX sessions_open ON identity.sessions USING btree (expires_at, created_at) WHERE ((NOT revoked) AND (NOT logged_out) AND (deleted_at IS NULL));

create table identity.throttle_secret (
  secret bytea not null,
  constraint throttle_secret_pkey PRIMARY KEY (secret)
);

create table identity.throttles (
  key bytea not null,
  attempts integer not null,
  window_ends_at timestamp with time zone not null,
  blocked_until timestamp with time zone,
  was_blocked boolean default false not null,
  known_until timestamp with time zone,
  constraint throttles_pkey PRIMARY KEY (key)
);
CREATE INDEX throttles_forgotten ON identity.throttles USING btree (GREATEST(window_ends_at, known_until));

create table identity.totp (
  user_id uuid not null,
  key_id text not null,
  client_key bytea not null,
  commitment bytea not null,
  blob bytea not null,
  last_step bigint not null,
  constraint totp_pkey PRIMARY KEY (user_id),
  constraint totp_user_id_fkey FOREIGN KEY (user_id) REFERENCES identity.users(id)
);

create table identity.used_challenges (
  digest bytea not null,
  expires_at timestamp with time zone not null,
  constraint used_challenges_pkey PRIMARY KEY (digest)
);
CREATE INDEX used_challenges_expiry ON identity.used_challenges USING btree (expires_at);

create table identity.users (
  id uuid not null,
  username text not null,
  username_key text not null,
  email text not null,
  email_key text not null,
  first_name text not null,
  first_name_key text default ''::text not null,
  last_name text not null,
  last_name_key text default ''::text not null,
  password_hash text,
  has_password boolean generated always as (password_hash IS NOT NULL) not null,
  password_generated boolean default false not null,
  password_set_at timestamp with time zone default now() not null,
  enabled boolean not null,
  verified boolean not null,
  super_admin boolean not null,
  second_factor boolean default false not null,
  groups text[] default '{}'::text[] not null,
  sessions_end_at timestamp with time zone,
  created_at timestamp with time zone default now() not null,
  updated_at timestamp with time zone default now() not null,
  deleted_at timestamp with time zone,
  constraint users_groups_check CHECK (((cardinality(groups) <= 64) AND ((groups)::text ~ '^\{(("null"|[a-z0-9._-]{1,64})(,("null"|[a-z0-9._-]{1,64}))*)?\}$'::text))),
  constraint users_pkey PRIMARY KEY (id)
);
CREATE INDEX users_administrators ON identity.users USING btree (id) WHERE (super_admin AND enabled AND (deleted_at IS NULL));
CREATE INDEX users_chosen ON identity.users USING btree (enabled, has_password, super_admin, second_factor) WHERE (deleted_at IS NULL);
CREATE UNIQUE INDEX users_email_key ON identity.users USING btree (email_key) WHERE (deleted_at IS NULL);
CREATE INDEX users_generated ON identity.users USING btree (password_set_at) WHERE password_generated;
CREATE INDEX users_imported ON identity.users USING btree (id) WHERE (password_hash ~~ 'imported$%'::text);
CREATE INDEX users_named ON identity.users USING btree (username_key);
CREATE INDEX users_of_group ON identity.users USING gin (groups) WHERE (deleted_at IS NULL);
CREATE INDEX users_oldest ON identity.users USING btree (created_at, id) WHERE (deleted_at IS NULL);
CREATE INDEX users_sessions_end ON identity.users USING btree (id, sessions_end_at) WHERE (sessions_end_at IS NOT NULL);
CREATE INDEX users_to_erase ON identity.users USING btree (deleted_at) WHERE ((deleted_at IS NOT NULL) AND (username <> ''::text));
CREATE UNIQUE INDEX users_username_key ON identity.users USING btree (username_key) WHERE (deleted_at IS NULL);

create table secrets.migrations (
  version integer not null,
  name text not null,
  applied_at timestamp with time zone default now() not null,
  constraint migrations_pkey PRIMARY KEY (version)
);

create table secrets.requests (
  id uuid not null,
  key_id text not null,
  tag bytea,
  creator text,
  asker text,
  kind text not null,
  title text not null,
  public_key text not null,
  digest text not null,
  key_digest bytea not null,
  max_reads integer not null,
  seconds integer not null,
  answer_key text,
  created_at timestamp with time zone default now() not null,
  expires_at timestamp with time zone not null,
  ending text,
  constraint key_with_answer CHECK (((answer_key IS NULL) = (ending IS DISTINCT FROM 'answered'::text))),
  constraint requests_pkey PRIMARY KEY (id),
  constraint tag_until_withdrawn CHECK (((tag IS NULL) = (NOT (ending IS DISTINCT FROM 'withdrawn'::text))))
);
CREATE INDEX requests_expiry ON secrets.requests USING btree (expires_at);
CREATE INDEX requests_key ON secrets.requests USING btree (key_id, expires_at);
CREATE INDEX requests_own ON secrets.requests USING btree (creator, created_at) WHERE (creator IS NOT NULL);

create table secrets.secrets (
  id uuid not null,
  creator text,
  key_id text not null,
  commitment bytea not null,
  blob bytea,
  tag bytea,
  created_at timestamp with time zone default now() not null,
  expires_at timestamp with time zone,
  max_reads integer,
  reads bigint default 0 not null,
  last_read_at timestamp with time zone,
  failed_reads bigint default 0 not null,
  ending text,
  ended_at timestamp with time zone,
  constraint content_until_end CHECK ((((blob IS NULL) = (ending IS NOT NULL)) AND ((tag IS NULL) = (blob IS NULL)))),
  constraint secrets_pkey PRIMARY KEY (id)
);
CREATE INDEX secrets_ended ON secrets.secrets USING btree (ended_at) WHERE (blob IS NULL);
CREATE INDEX secrets_expiry ON secrets.secrets USING btree (expires_at) WHERE (blob IS NOT NULL);
CREATE INDEX secrets_key ON secrets.secrets USING btree (key_id, expires_at) WHERE (blob IS NOT NULL);
CREATE INDEX secrets_own ON secrets.secrets USING btree (creator, created_at) WHERE (creator IS NOT NULL);

create table secrets.server_keys (
  key_id text not null,
  first_used_at timestamp with time zone default now() not null,
  constraint server_keys_pkey PRIMARY KEY (key_id)
);

create table secrets.throttles (
  key bytea not null,
  attempts integer not null,
  window_ends_at timestamp with time zone not null,
  blocked_until timestamp with time zone,
  was_blocked boolean default false not null,
  known_until timestamp with time zone,
  constraint throttles_pkey PRIMARY KEY (key)
);
CREATE INDEX throttles_forgotten ON secrets.throttles USING btree (GREATEST(window_ends_at, known_until));

create table secrets.tokens (
  id uuid not null,
  name text not null,
  role text not null,
  digest bytea not null,
  previous_digest bytea,
  previous_until timestamp with time zone,
  created_at timestamp with time zone default now() not null,
  revoked_at timestamp with time zone,
  constraint tokens_digest_key UNIQUE (digest),
  constraint tokens_pkey PRIMARY KEY (id),
  constraint tokens_previous_digest_key UNIQUE (previous_digest)
);

create table webhook.emitters (
  role text not null,
  token_id uuid not null,
  granted_at timestamp with time zone default now() not null,
  constraint emitters_pkey PRIMARY KEY (role, token_id),
  constraint emitters_token_id_fkey FOREIGN KEY (token_id) REFERENCES webhook.tokens(id)
);

create table webhook.events (
  id uuid not null,
  token_id uuid not null,
  source text default 'generic'::text not null,
  delivery_id text,
  body_digest bytea,
  event text not null,
  headers jsonb default '{}'::jsonb not null,
  ip text,
  body bytea not null,
  received_at timestamp with time zone default now() not null,
  constraint events_pkey PRIMARY KEY (id)
);
CREATE UNIQUE INDEX events_body ON webhook.events USING btree (token_id, body_digest) WHERE (body_digest IS NOT NULL);
CREATE UNIQUE INDEX events_delivery ON webhook.events USING btree (token_id, delivery_id) WHERE (delivery_id IS NOT NULL);
CREATE INDEX events_newest ON webhook.events USING btree (received_at DESC, id DESC);

create table webhook.failing_targets (
  target text not null,
  failures integer not null,
  token_id uuid,
  failing_since timestamp with time zone default now() not null,
  probe_at timestamp with time zone default now() not null,
  constraint failing_targets_pkey PRIMARY KEY (target)
) with (fillfactor=70);

create table webhook.failures (
  id uuid default gen_random_uuid() not null,
  event_id uuid not null,
  run integer default 1 not null,
  attempt integer not null,
  failed_at timestamp with time zone default now() not null,
  error text,
  duration_ms integer,
  answer_status integer,
  answer text,
  target text,
  constraint failures_pkey PRIMARY KEY (id)
);
CREATE INDEX failures_event ON webhook.failures USING btree (event_id, failed_at);

create view webhook.heads as
 SELECT ( SELECT work.event_id
           FROM webhook.work
          WHERE work.order_key = p.order_key AND work.seq >= p.head
          ORDER BY work.seq
         LIMIT 1) AS event_id,
    token_id,
    queue,
    due_at
   FROM webhook.pages p;

create table webhook.migrations (
  version integer not null,
  name text not null,
  applied_at timestamp with time zone default now() not null,
  constraint migrations_pkey PRIMARY KEY (version)
);

create table webhook.notified (
  only_row boolean default true not null,
  "position" timestamp with time zone default now() not null,
  next_at timestamp with time zone default now() not null,
  constraint notified_only_row_check CHECK (only_row),
  constraint notified_pkey PRIMARY KEY (only_row)
);

create table webhook.outcomes (
  event_id uuid not null,
  status text not null,
  run integer default 1 not null,
  attempts integer not null,
  duration_ms integer,
  answer_status integer,
  answer text,
  target text,
  received_at timestamp with time zone default now() not null,
  ended_at timestamp with time zone default now() not null,
  constraint outcomes_pkey PRIMARY KEY (event_id),
  constraint outcomes_status CHECK ((status = ANY (ARRAY['done'::text, 'dead'::text, 'skipped'::text])))
);
CREATE INDEX outcomes_dead ON webhook.outcomes USING btree (received_at DESC, event_id DESC) WHERE (status = 'dead'::text);
CREATE INDEX outcomes_ended ON webhook.outcomes USING btree (status, ended_at);

create table webhook.page_tails (
  order_key text not null,
  tail bigint not null,
  constraint page_tails_pkey PRIMARY KEY (order_key)
) with (fillfactor=70);

create table webhook.pages (
  order_key text not null,
  token_id uuid not null,
  head bigint default 1 not null,
  due_at timestamp with time zone default now() not null,
  queue uuid default '00000000-0000-0000-0000-000000000000'::uuid not null,
  constraint pages_pkey PRIMARY KEY (order_key)
) with (fillfactor=70, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_cost_delay=0);
CREATE INDEX pages_due ON webhook.pages USING btree (queue, due_at);
CREATE INDEX pages_sender ON webhook.pages USING btree (queue, token_id, due_at);

create table webhook.pause (
  id boolean default true not null,
  paused_at timestamp with time zone default now() not null,
  paused_by text,
  constraint pause_id_check CHECK (id),
  constraint pause_pkey PRIMARY KEY (id)
);

create table webhook.process_settings (
  id boolean default true not null,
  has_target boolean not null,
  events text[] not null,
  max_body_bytes integer not null,
  constraint process_settings_id_check CHECK (id),
  constraint process_settings_pkey PRIMARY KEY (id)
);

create table webhook.signing_secrets (
  id uuid not null,
  token_id uuid not null,
  key_id text not null,
  client_key bytea not null,
  commitment bytea not null,
  blob bytea not null,
  purpose text not null,
  expires_at timestamp with time zone,
  created_at timestamp with time zone default now() not null,
  constraint signing_secrets_pkey PRIMARY KEY (id),
  constraint signing_secrets_token_id_fkey FOREIGN KEY (token_id) REFERENCES webhook.tokens(id)
);
CREATE UNIQUE INDEX signing_secrets_single ON webhook.signing_secrets USING btree (token_id, purpose) WHERE (purpose <> 'verify'::text);
CREATE INDEX signing_secrets_token ON webhook.signing_secrets USING btree (token_id);

create table webhook.tokens (
  id uuid not null,
  name text not null,
  role text default 'sender'::text not null,
  source text default 'generic'::text not null,
  digest bytea not null,
  previous_digest bytea,
  previous_until timestamp with time zone,
  custom jsonb,
  target jsonb,
  keep_signature boolean default false not null,
  order_by text,
  revision integer default 0 not null,
  created_at timestamp with time zone default now() not null,
  last_used_at timestamp with time zone,
  revoked_at timestamp with time zone,
  constraint tokens_custom CHECK (((source = 'custom'::text) = (custom IS NOT NULL))),
  constraint tokens_pkey PRIMARY KEY (id)
);
CREATE UNIQUE INDEX tokens_digest ON webhook.tokens USING btree (digest);
CREATE UNIQUE INDEX tokens_previous ON webhook.tokens USING btree (previous_digest) WHERE (previous_digest IS NOT NULL);

create view webhook.unordered as
 SELECT event_id,
    token_id,
    queue,
    due_at
   FROM webhook.work
  WHERE order_key IS NULL;

create table webhook.unstored (
  token_id uuid not null,
  reason text not null,
  hour timestamp with time zone not null,
  count bigint not null,
  first_at timestamp with time zone default now() not null,
  last_at timestamp with time zone default now() not null,
  detail text default ''::text not null,
  address text default ''::text not null,
  constraint unstored_pkey PRIMARY KEY (hour, token_id, reason)
) with (fillfactor=70);

create table webhook.work (
  event_id uuid not null,
  token_id uuid not null,
  received_at timestamp with time zone not null,
  order_key text,
  seq bigint,
  run integer default 1 not null,
  attempts integer default 0 not null,
  due_at timestamp with time zone default now() not null,
  lease uuid,
  queue uuid default '00000000-0000-0000-0000-000000000000'::uuid not null,
  constraint work_pkey PRIMARY KEY (event_id)
) with (fillfactor=70, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_cost_delay=0);
CREATE INDEX work_due ON webhook.work USING btree (queue, due_at) WHERE (order_key IS NULL);
CREATE INDEX work_order ON webhook.work USING btree (order_key, seq) WHERE (order_key IS NOT NULL);
CREATE INDEX work_sender ON webhook.work USING btree (queue, token_id, due_at) WHERE (order_key IS NULL);

CREATE OR REPLACE FUNCTION webhook.emit(token text, event text, data jsonb, delivery_id text DEFAULT NULL::text, page_id text DEFAULT NULL::text)
 RETURNS uuid
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
declare
  sender record;
  names jsonb;
  status text := 'stored';
  body bytea := convert_to(
    '{"event": ' || to_json(event) || ', "data": ' || data || '}',
    'UTF8');
  received_at timestamptz := clock_timestamp();
  -- Time-ordered, so new rows go to the end of an index.
  new_id uuid := encode(
    overlay(
      uuid_send(gen_random_uuid())
      placing substr(int8send((extract(epoch from received_at) * 1000)::int8), 3)
      from 1),
    'hex');
  first_id uuid;
  page text;
  seq bigint;
  own_queue uuid;
begin
  if coalesce(char_length(event), 0) not between 1 and 1024 then
    raise exception 'event must have 1 to 1024 characters'
      using errcode = 'WH002';
  elsif jsonb_typeof(data) is distinct from 'object' then
    raise exception 'data must be a JSON object'
      using errcode = 'WH003';
  elsif delivery_id collate "C" !~ '^[!-~]{1,255}$' then
    raise exception 'delivery_id must have 1 to 255 visible ASCII characters'
      using errcode = 'WH004';
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    -- Fails if the token has changed since the transaction began. Later changes of a target wait.
    lock table webhook.work in row exclusive mode;
    perform
    from webhook.tokens t
    where emit.token in (t.name, t.id::text)
    for key share;
  end if;
  select t.id, t.target, p.*
  into sender
  from webhook.emitters e
  join webhook.tokens t on t.id = e.token_id
  left join webhook.process_settings p on true
  where emit.token in (t.name, t.id::text)
    and t.revoked_at is null
    and (e.role = session_user
      or pg_has_role(session_user, to_regrole(quote_ident(e.role)), 'member'))
    and not exists (
      select
      from webhook.tokens other
      where other.name = emit.token
        and other.id <> t.id
        and other.role = 'sender'
        and other.revoked_at is null);
  if not found then
    raise exception 'token "%" is none or several for which % may emit events',
      emit.token,
      session_user
      using errcode = 'WH001',
        hint = 'See: gatehouse outbox list';
  elsif octet_length(body) > coalesce(sender.max_body_bytes, 65536) then
    raise exception 'data makes a body of % bytes', octet_length(body)
      using errcode = 'WH005',
        hint = 'Send less, or have WEBHOOK_MAX_BODY_BYTES raised.';
  end if;
  if sender.target is not null or coalesce(sender.has_target, true) then
    status := 'waiting';
    names := coalesce(nullif(sender.target -> 'events', 'null'), to_jsonb(sender.events));
  end if;
  if names <> '[]' then
    -- Apart from the comparison, which costs a fraction of a query.
    if not exists (
      select
      from jsonb_array_elements_text(names) as name
      where emit.event like
        replace(replace(replace(replace(
          name, '!', '!!'), '%', '!%'), '_', '!_'), '*', '%')
        escape '!'
    ) then
      status := 'skipped';
    end if;
  end if;
  -- Otherwise, a crash could end the transaction after its event was delivered.
  if current_setting('synchronous_commit') = 'off' then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  loop
    insert into webhook.events
      (id, token_id, source, delivery_id, event, headers, ip, body, received_at)
    values (
      new_id,
      sender.id,
      'outbox',
      emit.delivery_id,
      emit.event,
      '{"content-type": "application/json"}',
      host(inet_client_addr()),
      body,
      received_at)
    on conflict do nothing;
    exit when found;
    select e.id
    into first_id
    from webhook.events e
    where e.token_id = sender.id
      and e.delivery_id = emit.delivery_id;
    if found then
      return first_id;
    end if; -- otherwise, retention has just removed it
  end loop;
  if status = 'skipped' then
    insert into webhook.outcomes (event_id, status, attempts)
    values (new_id, 'skipped', 0);
  elsif status = 'waiting' then
    if page_id is not null then
      page := translate(
        encode(sha256(convert_to(sender.id || ' ' || page_id, 'UTF8')), 'base64'),
        '+/=',
        '-_');
      insert into webhook.page_tails as t (order_key, tail)
      values (page, 1)
      on conflict (order_key) do update set tail = t.tail + 1
      returning t.tail into seq;
    end if;
    -- Locks the table before it reads the target. A change of that locks it, too.
    insert into webhook.work (event_id, token_id, received_at, order_key, seq, queue)
    select
      new_id,
      t.id,
      received_at,
      page,
      seq,
      case when t.target is null then '00000000-0000-0000-0000-000000000000' else t.id end
    from webhook.tokens t
    where t.id = sender.id
    returning queue into own_queue;
    if seq = 1 then
      insert into webhook.pages (order_key, token_id, queue)
      values (page, sender.id, own_queue);
    end if;
  end if;
  return new_id;
end $function$
;
