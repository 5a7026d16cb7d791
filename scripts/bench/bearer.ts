/** The bearer check, `GET /api/test/`, compared with one statement and its reply. */
import { createHash, randomUUID } from 'node:crypto';
import { join } from 'node:path';
import type { Sql } from 'postgres';
import type { Report } from './compare.ts';
import { type Replay, writeRequests } from './load.ts';
import type { Bench } from './measure.ts';
import { type LoadCase, measureCase } from './operation.ts';

const USERS = 200;
const SESSIONS = 1_000;

const tokens = Array.from({ length: SESSIONS }, () => `session:${randomUUID()}`);
const users = Array.from({ length: USERS }, () => randomUUID());
const lastName = randomUUID();

/**
 * Inserts users with sessions as rows: a thousand logins would take minutes. The schema must exist.
 */
export async function prepareSessions(
  sql: Sql,
  directory: string,
  path = '/api/test/',
): Promise<Replay> {
  const digests = tokens.map((token) => createHash('sha256').update(token).digest('hex'));
  const owners = tokens.map((_, number) => users[number % USERS] ?? '');
  await sql`
    insert into identity.users (
      id, username, username_key, email, email_key, first_name, last_name, enabled, verified,
        super_admin
    )
    select id, 'reader-' || id, 'reader-' || id, id || '@example.org', id || '@example.org', 'Ada',
      ${lastName},
      true, true, false
    from unnest(${users}::uuid[]) as known (id)
    on conflict (id) do nothing`;
  await sql`
    insert into identity.sessions (id, token_digest, user_id, expires_at)
    select gen_random_uuid(), decode(digest, 'hex'), user_id, now() + interval '1 day'
    from unnest(${digests}::text[], ${owners}::uuid[]) as known (digest, user_id)
    on conflict (token_digest) do nothing`;
  await sql`vacuum analyze identity.users, identity.sessions`;
  const requests = tokens.map((token) => {
    return { method: 'GET', path, headers: { Authorization: `Bearer ${token}` } };
  });
  return {
    file: writeRequests(join(directory, path.replaceAll('/', '-')), requests),
    status: 200,
    text: path === '/api/test/' ? `"last_name":"${lastName}"` : '"data":null',
  };
}

export const bearerCheck: LoadCase = {
  name: 'bearer check',
  service: 'identity',
  baseline: 'bearer',
  hasFloor: true,
  hasSingle: true,
  caveat: '1,000 sessions fit in memory. Not measured: logins, and checks that read from disk.',
  variants: [
    {
      name: '',
      targets: { rate: 1, cpu: 1, cpuBesideFloor: 1.35, p99: 1 },
      prepare: ({ directory }, { sql }) => prepareSessions(sql, directory),
    },
  ],
};

export const bearer = (bench: Bench): Promise<Report> => measureCase(bench, bearerCheck);
