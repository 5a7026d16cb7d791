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
end $$;
revoke execute on function webhook.emit from public;
