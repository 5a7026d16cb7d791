-- What `emit` needs of the settings of the process. Each start stores them.
create table webhook.process_settings (
  id boolean primary key default true check (id),
  has_target boolean not null,
  events text[] not null, -- WEBHOOK_EVENTS; none selects every event
  max_body_bytes int4 not null
);

-- Which roles may emit events for which tokens. By name, so that a dump can be restored.
create table webhook.emitters (
  role text not null,
  token_id uuid not null references webhook.tokens (id),
  granted_at timestamptz not null default now(),
  primary key (role, token_id)
);

-- Stores an event of a sender in the transaction of the caller, as acceptance does: the event
-- exists if that transaction commits. Called by other programs, so its arguments and errors do not
-- change. It runs with the rights of its owner, under the names of pg_catalog alone, and only for
-- the roles in `emitters`. Nothing in it depends on a setting of the caller.
create function webhook.emit(
  token text, -- its name or its id
  event text,
  data jsonb,
  delivery_id text default null, -- an event is stored once for each
  page_id text default null -- events with the same are delivered in the order of their commits
) returns uuid language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  sender record;
  patterns text[];
  status text := 'stored';
  body bytea := convert_to(jsonb_build_object('event', event, 'data', data)::text, 'UTF8');
  time text := lpad(to_hex(floor(extract(epoch from clock_timestamp()) * 1000)::int8), 12, '0');
  new_id uuid := substr(time, 1, 8) || '-' || substr(time, 9) || '-7' ||
    substr(gen_random_uuid()::text, 16);
  first_id uuid;
  received_at timestamptz := clock_timestamp();
  page text;
  seq bigint;
  queue uuid := '00000000-0000-0000-0000-000000000000';
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
  -- A change of a target, which locks the table, is over, or waits for the end of the transaction.
  lock table webhook.work in row exclusive mode;
  if current_setting('transaction_isolation') <> 'read committed' then
    -- Fails if the token has changed since the transaction began.
    perform
    from webhook.tokens t
    where emit.token in (t.name, t.id::text)
    for key share;
  end if;
  select
    t.id,
    t.target,
    has_target,
    events,
    max_body_bytes,
    count(*) over () as found
  into sender
  from webhook.tokens t
  left join webhook.process_settings p on true
  where emit.token in (t.name, t.id::text)
    and t.role = 'sender'
    and t.revoked_at is null
    and exists (
      select
      from webhook.emitters e
      where e.token_id = t.id
        and pg_has_role(session_user, to_regrole(quote_ident(e.role)), 'member'))
  limit 1;
  if not found then
    raise exception 'token "%" is none for which % may emit events', emit.token, session_user
      using errcode = 'WH001',
        hint = 'See: gatehouse outbox list';
  elsif sender.found > 1 then
    raise exception 'token "%" is the name of more than one', emit.token
      using errcode = 'WH001',
        hint = 'Give its id. See: gatehouse outbox list';
  end if;
  if octet_length(body) > coalesce(sender.max_body_bytes, 65536) then
    raise exception 'data makes a body of % bytes', octet_length(body)
      using errcode = 'WH005',
        hint = 'Send less, or have WEBHOOK_MAX_BODY_BYTES raised.';
  end if;
  if sender.target is not null then
    queue := sender.id;
  end if;
  if sender.target is not null or coalesce(sender.has_target, true) then
    status := 'waiting';
    patterns := case
      when jsonb_typeof(sender.target -> 'events') = 'array'
        then array(select jsonb_array_elements_text(sender.target -> 'events'))
      else sender.events
    end;
  end if;
  if cardinality(patterns) > 0 and not exists (
    select
    from unnest(patterns) as name
    where emit.event like
      replace(replace(replace(replace(
        name, '!', '!!'), '%', '!%'), '_', '!_'), '*', '%')
      escape '!'
  ) then
    status := 'skipped';
  end if;
  if status = 'waiting' and page_id is not null then
    page := translate(
      encode(sha256(convert_to(sender.id || ' ' || page_id, 'UTF8')), 'base64'),
      '+/=',
      '-_');
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
    if page is not null then
      insert into webhook.page_tails as t (order_key, tail)
      values (page, 1)
      on conflict (order_key) do update set tail = t.tail + 1
      returning t.tail into seq;
    end if;
    if seq = 1 then
      insert into webhook.pages (order_key, token_id, queue)
      values (page, sender.id, queue);
    end if;
    insert into webhook.work (event_id, token_id, received_at, order_key, seq, queue)
    values (
      new_id,
      sender.id,
      received_at,
      page,
      seq,
      queue);
  end if;
  return new_id;
end $$;
revoke execute on function webhook.emit from public;
