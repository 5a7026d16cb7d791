#!/bin/sh
# PostgreSQL's image runs this once, with an empty data directory, as the superuser.
set -eu
export SECRETS="${SECRETS:-/run/secrets}"
# The password of the services has one place, so that a rotation cannot leave another value here. psql reads it itself: an
# argument would show it to every process.
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 <<'SQL'
\set url `cat "$SECRETS/database-url"`
-- Characters may be escaped, such as %40.
select convert_from(decode(string_agg(case when length(part) = 3 then substr(part, 2)
    else encode(convert_to(part, 'UTF8'), 'hex') end, '' order by place), 'hex'), 'UTF8') as password
from regexp_matches(substring(:'url' from '//[^:/@]*:([^@]*)@'), '%[0-9A-Fa-f]{2}|.', 'g')
    with ordinality as found (parts, place), unnest(parts) as part
\gset
create role gatehouse login password :'password';
create database gatehouse owner gatehouse;
SQL
