/**
 * Whether the check of the load notices what it is there for: without any fault, one acknowledged
 * record of each kind is changed by SQL, and each change must be reported.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connect } from '../../../scripts/postgres.ts';
import { startLoad } from './load/load.ts';
import { SEED } from './random.ts';
import { startSystem } from './system.ts';

/** A session of a user, neither of which has ended in another way. */
const aSession = (condition: string) => `
  select s.id from identity.sessions s join identity.users u on u.id = s.user_id
  where ${condition} and u.sessions_end_at is null and u.enabled and u.deleted_at is null
    and u.username <> 'admin'
  order by s.created_at limit 1`;
const aSecret = (condition: string) =>
  `select id from secrets.secrets where blob is not null and ${condition} limit 1`;

const LOSSES: ReadonlyArray<readonly [loss: string, statement: string, reported: RegExp]> = [
  [
    'a user',
    `update identity.users set deleted_at = now() where id = (
      select id from identity.users where enabled and username <> 'admin'
      order by created_at desc limit 1)`,
    /user u\S+, acknowledged: GET \S+ answered 404/,
  ],
  [
    'a session',
    `delete from identity.sessions where id = (
      ${aSession('not s.revoked and not s.logged_out')})`,
    /session of u\S+, active: GET \/api\/test\/ answered 401/,
  ],
  [
    'a logout',
    `update identity.sessions set logged_out = false where id = (
      ${aSession('s.logged_out and not s.revoked')})`,
    /session of u\S+, ended by "log out": GET \/api\/test\/ answered 200/,
  ],
  [
    'a revocation',
    `update identity.sessions set revoked = false where id = (
      ${aSession('s.revoked and not s.logged_out')})`,
    /session of u\S+, ended by "revoke": GET \/api\/test\/ answered 200/,
  ],
  [
    'the end of all sessions of a user',
    'update identity.users set sessions_end_at = null where sessions_end_at is not null and enabled',
    /session of u\S+, ended by "revoke all": GET \/api\/test\/ answered 200/,
  ],
  [
    'a change of a password',
    `update identity.users u set password_hash = k.password_hash from kept_users k
      where k.id = u.id and k.password_hash <> u.password_hash and u.enabled`,
    /former password of u\S+: POST \/api\/auth\/login answered 200/,
  ],
  [
    'the disabling of a user',
    'update identity.users set enabled = true where not enabled',
    /disabled user u\S+: can log in/,
  ],
  [
    'an API key',
    'delete from identity.api_keys where user_id in (select id from identity.users where enabled)',
    /key of u\S+, active: GET \/api\/test\/ answered 401/,
  ],
  [
    'a secret',
    `delete from secrets.secrets where id = (${aSecret('max_reads is null')})`,
    /secret \S+, open: POST \S+ answered 404/,
  ],
  [
    'a secret for one reader',
    `delete from secrets.secrets where id = (${aSecret('max_reads = 1')})`,
    /secret \S+, unknown by "reading": lost/,
  ],
  [
    'the reading of a secret for one reader',
    `update secrets.secrets s set blob = k.blob, commitment = k.commitment, tag = k.tag,
      reads = 0, ending = null, ended_at = null
      from kept_secrets k where k.id = s.id and s.ending = 'read'`,
    /secret \S+, ended by "reading": served 2 times/,
  ],
  [
    'an event',
    `with lost as (delete from webhook.events where id = (
        select id from webhook.events order by received_at limit 1) returning id)
      delete from webhook.outcomes where event_id in (select id from lost)`,
    /event \S+: acknowledged as \S+, stored as undefined/,
  ],
  [
    'the body of an event',
    `update webhook.events set body = 'other' where id = (
      select id from webhook.events order by received_at desc limit 1)`,
    /event \S+: stored with another body/,
  ],
  [
    'the delivery of an event',
    `insert into webhook.events (id, token_id, delivery_id, event, body)
      select gen_random_uuid(), token_id, 'msg_0_lost', event, body from webhook.events limit 1`,
    /event msg_0_lost: stored, not delivered/,
  ],
  [
    'the uniqueness of a delivery id',
    `insert into webhook.events (id, token_id, delivery_id, event, body)
      select gen_random_uuid(), gen_random_uuid(), delivery_id, event, body from webhook.events
      where delivery_id like 'msg%' limit 1`,
    /1 delivery ids are stored twice/,
  ],
];

test(`the check reports every loss (FAULTS_SEED=${SEED})`, { timeout: 240_000 }, async (t) => {
  const system = await startSystem(t);
  const load = await startLoad(t, system);
  const sql = connect(system.directUrl());
  t.after(() => sql.end({ timeout: 1 }));
  await load.progress(250);
  // What no later statement could bring back.
  await sql`create table kept_users as select id, password_hash from identity.users`;
  await sql`
    create table kept_secrets as
    select * from secrets.secrets where max_reads = 1 and blob is not null`;
  await load.progress(250);
  await load.stop();
  for (const [loss, statement] of LOSSES) {
    const { count } = await sql.unsafe(statement);
    assert.ok(count > 0, `the load has made nothing that could be lost: ${loss}`);
  }
  await assert.rejects(load.check(), /replies or records are wrong/);
  const { problems } = load.requests;
  for (const [loss, , reported] of LOSSES)
    assert.ok(
      problems.some((one) => reported.test(one)),
      `${loss} in:\n${problems.join('\n')}`,
    );
});
