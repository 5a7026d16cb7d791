#!/bin/sh
# PostgreSQL's image runs this once, with an empty data directory, as the superuser.
set -eu
export SECRETS="${SECRETS:-/run/secrets}"
# psql reads the password itself: an argument would show it to every process.
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 <<'SQL'
\set password `cat "$SECRETS/database-password"`
create role gatehouse login password :'password';
create database gatehouse owner gatehouse;
SQL
