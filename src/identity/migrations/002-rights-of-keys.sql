-- What a key may do, and what it may give to others.
alter table identity.api_keys
  -- Null: all that its user may do; of a key without a user: verify, read and revoke.
  add column rights text[],
  -- Of programs, which pass them to each other in a header.
  add column scopes text[] not null default '{}'
    check (cardinality(scopes) <= 32
      and scopes::text ~ '^\{(("null"|[a-z0-9._:-]{1,64})(,("null"|[a-z0-9._:-]{1,64}))*)?\}$'),
  add column provision_groups text[] not null default '{}', -- which it may give and take
  add column made_by uuid references identity.api_keys (id); -- the key that made it
create index api_keys_made on identity.api_keys (made_by) where made_by is not null;

-- The key that made the link, which ends with it.
alter table identity.links add column key_id uuid references identity.api_keys (id);
