-- Distributes the table of secrets by id over the workers of Citus. All other tables stay on the
-- coordinator. Safe to repeat. Run it on the coordinator as the owner of the table, after
-- "gatehouse migrate", in the database of the service:
--
--   psql "$DATABASE_URL" --set ON_ERROR_STOP=1 --file deploy/citus/distribute-secrets.sql
--
-- Writes to the table wait until its rows are copied. An error changes nothing.
\if :{?shards}
\else
  \set shards 32
\endif
begin;
select set_config('gatehouse.shards', :'shards', true);
do $$
declare
  version int := (select split_part(extversion, '.', 1) from pg_extension where extname = 'citus');
  shards int := current_setting('gatehouse.shards');
  workers int;
  found text;
begin
  if version is null then
    raise exception 'this database has no Citus'
      using hint = 'Run "create extension citus" on the coordinator and on each worker.';
  end if;
  if version < 12 then
    raise exception 'Citus % is too old: version 12 or newer is needed', version;
  end if;
  if to_regclass('secrets.secrets') is null then
    raise exception 'there is no table secrets.secrets' using hint = 'Run "gatehouse migrate secrets".';
  end if;
  if (select groupid from pg_dist_local_group) <> 0 then
    raise exception 'this is a worker' using hint = 'Connect to the coordinator.';
  end if;
  select count(*) into workers from pg_dist_node
  where noderole = 'primary' and isactive and shouldhaveshards and groupid <> 0;
  if workers = 0 then
    raise exception 'the coordinator has no active worker'
      using hint = 'Add workers with citus_add_node.';
  end if;
  select coalesce(column_to_column_name(logicalrelid, partkey), 'another way') into found
  from pg_dist_partition
  where logicalrelid = 'secrets.secrets'::regclass
    and (partmethod, repmodel, colocationid) <> ('n', 's', 0); -- a local table
  if found = 'id' then
    raise notice 'secrets.secrets is distributed by id already';
    return;
  end if;
  if found is not null then
    raise exception 'secrets.secrets is distributed by %, not by id', found
      using hint = 'Run "select undistribute_table(''secrets.secrets'')" first.';
  end if;
  perform create_distributed_table('secrets.secrets', 'id', shard_count => shards,
    colocate_with => 'none');
  -- The rows were copied. Otherwise secrets that end later would stay readable on the coordinator.
  perform truncate_local_data_after_distributing_table('secrets.secrets');
end $$;
commit;
