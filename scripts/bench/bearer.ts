/** The bearer check: `GET /api/test/` with everything the service does, against one statement and an answer. */
import { createHash, randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { type Bench, rateAgainst, type Report, slowestAgainst, startPlain, takeTurns } from './compare.ts';
import { type Replay, writeRequests } from './load.ts';
import { startServices } from './service.ts';

const USERS = 200;
const SESSIONS = 1_000;

/** Users with sessions, put in as rows: to log in a thousand times would take minutes. Identity has migrated before. */
export async function prepareSessions({ sql, directory }: Bench): Promise<Replay> {
  const tokens = Array.from({ length: SESSIONS }, () => `session:${randomUUID()}`);
  const users = Array.from({ length: USERS }, () => randomUUID());
  const digests = tokens.map((token) => createHash('sha256').update(token).digest('hex'));
  const owners = tokens.map((_, number) => users[number % USERS] ?? '');
  const mark = randomUUID();
  await sql`
    insert into identity.users (id, username, username_key, email, email_key, first_name, last_name, enabled, verified, super_admin)
    select id, 'reader-' || id, 'reader-' || id, id || '@example.org', id || '@example.org', 'Ada', ${mark}, true, true, false
    from unnest(${users}::uuid[]) as known (id)`;
  await sql`
    insert into identity.sessions (id, token_digest, user_id, expires_at)
    select gen_random_uuid(), decode(digest, 'hex'), user_id, now() + interval '1 day'
    from unnest(${digests}::text[], ${owners}::uuid[]) as known (digest, user_id)`;
  await sql`vacuum analyze identity.users, identity.sessions`;
  const asks = tokens.map((token) => ({ method: 'GET', path: '/api/test/', headers: { Authorization: `Bearer ${token}` } }));
  return { file: writeRequests(join(directory, 'bearer'), asks), status: 200, text: `"last_name":"${mark}"` };
}

export async function bearer(bench: Bench): Promise<Report> {
  const ours = await startServices(['identity'], bench.postgres.url);
  const plain = await startPlain(bench, 'bearer');
  const replay = await prepareSessions(bench);
  const subjects = [...plain, { name: 'gatehouse', service: ours }].map((one) => ({ ...one, replay }));
  const many = await takeTurns(bench, 64, subjects);
  const one = await takeTurns({ ...bench, warmUp: 0 }, 1, subjects);
  return {
    findings: [
      rateAgainst('bearer check, 64 clients', many, 1),
      slowestAgainst('bearer check, 64 clients', many, 1),
      rateAgainst('bearer check, 1 client', one, 0.85),
    ],
    figures: [['bearer check, 64 clients', many], ['bearer check, 1 client', one]],
  };
}
