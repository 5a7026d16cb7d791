/** The bearer check, `GET /api/test/`, compared with one statement and its reply. */
import { createHash, randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { type Bench, compareP99, compareRates, measureRounds, type Report, startBaselines } from './compare.ts';
import { type Replay, writeRequests } from './load.ts';
import { startServices } from './service.ts';

const USERS = 200;
const SESSIONS = 1_000;

/** Inserts users with sessions as rows: a thousand logins would take minutes. The schema must exist. */
export async function prepareSessions({ sql, directory }: Bench): Promise<Replay> {
  const tokens = Array.from({ length: SESSIONS }, () => `session:${randomUUID()}`);
  const users = Array.from({ length: USERS }, () => randomUUID());
  const digests = tokens.map((token) => createHash('sha256').update(token).digest('hex'));
  const owners = tokens.map((_, number) => users[number % USERS] ?? '');
  const lastName = randomUUID();
  await sql`
    insert into identity.users (
      id, username, username_key, email, email_key, first_name, last_name, enabled, verified, super_admin
    )
    select id, 'reader-' || id, 'reader-' || id, id || '@example.org', id || '@example.org', 'Ada', ${lastName},
      true, true, false
    from unnest(${users}::uuid[]) as known (id)`;
  await sql`
    insert into identity.sessions (id, token_digest, user_id, expires_at)
    select gen_random_uuid(), decode(digest, 'hex'), user_id, now() + interval '1 day'
    from unnest(${digests}::text[], ${owners}::uuid[]) as known (digest, user_id)`;
  await sql`vacuum analyze identity.users, identity.sessions`;
  const requests = tokens.map((token) => {
    return { method: 'GET', path: '/api/test/', headers: { Authorization: `Bearer ${token}` } };
  });
  return { file: writeRequests(join(directory, 'bearer'), requests), status: 200, text: `"last_name":"${lastName}"` };
}

export async function bearer(bench: Bench): Promise<Report> {
  const ours = await startServices(['identity'], bench.postgres.url);
  const baselines = await startBaselines(bench, 'bearer');
  const replay = await prepareSessions(bench);
  const subjects = [...baselines, { name: 'gatehouse', service: ours }].map((one) => ({ ...one, replay }));
  const many = await measureRounds(bench, 64, subjects);
  const one = await measureRounds({ ...bench, warmUp: 0 }, 1, subjects);
  return {
    comparisons: [
      compareRates('bearer check, 64 clients', many, 1),
      compareP99('bearer check, 64 clients', many, 1),
      compareRates('bearer check, 1 client', one, 0.85),
    ],
    figures: [['bearer check, 64 clients', many], ['bearer check, 1 client', one]],
  };
}
