create schema if not exists webhook;

create table webhook.tokens (
  id uuid primary key,
  name text not null,
  role text not null default 'sender',
  source text not null default 'generic',
  -- SHA-256 of the token: read access to the table does not allow sending.
  digest bytea not null,
  previous_digest bytea, -- valid until previous_until, after a rotation
  previous_until timestamptz,
  -- How a custom source signs, and where its values are.
  custom jsonb constraint tokens_custom check ((source = 'custom') = (custom is not null)),
  -- Where the events of this sender go; null for the target of the process.
  target jsonb,
  keep_signature boolean not null default false,
  -- By what its events are delivered in order: a place, "default" or "none"; null: WEBHOOK_ORDER.
  order_by text,
  revision int4 not null default 0, -- raised with each change of the target
  created_at timestamptz not null default now(),
  last_used_at timestamptz,
  revoked_at timestamptz
);
create unique index tokens_digest on webhook.tokens (digest);
create unique index tokens_previous on webhook.tokens (previous_digest)
  where previous_digest is not null;

create table webhook.signing_secrets (
  id uuid primary key,
  token_id uuid not null references webhook.tokens (id),
  -- Sealed under WEBHOOK_SECRET, which key_id identifies.
  key_id text not null,
  client_key bytea not null,
  commitment bytea not null,
  blob bytea not null,
  -- verify: the requests of the sender. sign: those to the target of the token. pending: sent by the
  -- sender itself; it verifies once an operator confirms it.
  purpose text not null,
  expires_at timestamptz, -- set when a newer secret replaces this one
  created_at timestamptz not null default now()
);
create index signing_secrets_token on webhook.signing_secrets (token_id);
create unique index signing_secrets_single on webhook.signing_secrets (token_id, purpose)
  where purpose <> 'verify';

create table webhook.events (
  id uuid primary key,
  -- No foreign key: tokens are never removed, and the check would lock the token's row for each
  -- event.
  token_id uuid not null,
  source text not null default 'generic',
  delivery_id text,
  -- SHA-256, if the sender makes each body unique, and the delivery id is not signed.
  body_digest bytea,
  event text not null,
  -- Only headers of an allow-list, none of which can hold a credential.
  headers jsonb not null default '{}',
  ip text,
  body bytea not null,
  received_at timestamptz not null default now()
);
create unique index events_delivery on webhook.events (token_id, delivery_id)
  where delivery_id is not null;
create unique index events_body on webhook.events (token_id, body_digest)
  where body_digest is not null;
create index events_newest on webhook.events (received_at desc, id desc);
-- LZ4 takes a fraction of the time of pglz, but PostgreSQL may be built without it.
do $$ begin
  if (select 'lz4' = any (enumvals) from pg_settings where name = 'default_toast_compression') then
    alter table webhook.events alter column body set compression lz4;
  end if;
end $$;

-- Only events that are not delivered yet: its size does not depend on the history. A claim moves
-- due_at to the end of its lease, so that one index finds new events, retries and expired leases.
-- Only the holder of the lease may complete, release or renew. An event with an order_key is due
-- with its page. Each redelivery begins another run.
create table webhook.work (
  event_id uuid primary key,
  token_id uuid not null,
  received_at timestamptz not null,
  order_key text,
  seq bigint,
  run int4 not null default 1,
  attempts int4 not null default 0,
  due_at timestamptz not null default now(),
  lease uuid,
  -- The token with a target of its own, or all zeros. Targets do not wait for each other.
  queue uuid not null default '00000000-0000-0000-0000-000000000000'
) with (
  fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0
);
create index work_due on webhook.work (queue, due_at) where order_key is null;
-- While a target fails, its senders take turns.
create index work_sender on webhook.work (queue, token_id, due_at) where order_key is null;
create index work_order on webhook.work (order_key, seq) where order_key is not null;

-- The number of the last event of an order_key, which is a page of one sender. Acceptance raises it
-- under the row's lock, which is held until the commit: numbers follow the commits.
create table webhook.page_tails (
  order_key text primary key,
  tail bigint not null
) with (fillfactor = 70);

-- Every event below head has ended. The first of the others is due at due_at, or under a lease
-- until then. Only the holder of the lease changes the row, so that storing further events delays
-- no delivery.
create table webhook.pages (
  order_key text primary key,
  token_id uuid not null,
  head bigint not null default 1,
  due_at timestamptz not null default now(),
  queue uuid not null default '00000000-0000-0000-0000-000000000000' -- as of work
) with (
  fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0
);
create index pages_due on webhook.pages (queue, due_at);
create index pages_sender on webhook.pages (queue, token_id, due_at);

-- What a worker may claim: events without a page, and of each page the first one that waits.
create view webhook.unordered as
select event_id, token_id, queue, due_at
from webhook.work
where order_key is null;
create view webhook.heads as
select
  (
    select event_id
    from webhook.work
    where order_key = p.order_key and seq >= p.head
    order by seq
    limit 1
  ) as event_id, -- null while only events wait that are not committed yet
  token_id, queue, due_at
from webhook.pages p;

-- Other programs may insert here, too. "skipped": WEBHOOK_EVENTS does not select the event.
create table webhook.outcomes (
  event_id uuid primary key,
  status text not null constraint outcomes_status check (status in ('done', 'dead', 'skipped')),
  run int4 not null default 1,
  attempts int4 not null,
  -- Of the last attempt.
  duration_ms int4,
  answer_status int4,
  answer text,
  target text, -- its kind and origin
  received_at timestamptz not null default now(),
  ended_at timestamptz not null default now()
);
create index outcomes_ended on webhook.outcomes (status, ended_at);
create index outcomes_dead on webhook.outcomes (received_at desc, event_id desc)
  where status = 'dead';

-- A successful attempt is kept in outcomes. A redelivery moves it here, with null as its error.
create table webhook.failures (
  id uuid primary key default gen_random_uuid(),
  event_id uuid not null,
  run int4 not null default 1,
  attempt int4 not null,
  failed_at timestamptz not null default now(),
  error text,
  duration_ms int4,
  answer_status int4,
  answer text,
  target text
);
create index failures_event on webhook.failures (event_id, failed_at);

-- A row pauses delivery on every replica.
create table webhook.pause (
  id boolean primary key default true check (id),
  paused_at timestamptz not null default now(),
  paused_by text
);

-- Targets that fail, by a digest of their setting. A success removes the row.
create table webhook.failing_targets (
  target text primary key,
  failures int4 not null,
  token_id uuid, -- whose events failed; null for those of several tokens
  failing_since timestamptz not null default now(),
  probe_at timestamptz not null default now() -- the next probe, once there are enough failures
) with (fillfactor = 70);

-- Requests of which nothing was stored. Written together: a flood of them costs no row per request.
create table webhook.unstored (
  token_id uuid not null, -- all zeros for an unknown token
  reason text not null, -- an error code, or "handshake"
  hour timestamptz not null,
  count int8 not null,
  first_at timestamptz not null default now(),
  last_at timestamptz not null default now(),
  -- Of the last one: what it was told, or the kind of handshake; and who sent it.
  detail text not null default '',
  address text not null default '',
  primary key (hour, token_id, reason)
) with (fillfactor = 70);

-- Up to when what happened was told to NOTIFY_URL. The first message creates the row.
create table webhook.notified (
  only_row boolean primary key default true check (only_row),
  position timestamptz not null default now(),
  next_at timestamptz not null default now()
);
