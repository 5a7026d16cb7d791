/** What OpenID Connect costs, beside forward authentication and the bearer check. */
import { createHash, randomBytes } from 'node:crypto';
import { join } from 'node:path';
import type { Sql } from 'postgres';
import { prepareSessions } from './bearer.ts';
import { compare, type Report, tableOf } from './compare.ts';
import { type Replay, type RequestTemplate, writeRequests } from './load.ts';
import { type Bench, measureLoad, openDatabase, type Subject } from './measure.ts';
import { startServices, TOKEN } from './service.ts';

const CLIENTS = 64;
const PORTAL = {
  SIGNIN_PAGES: 'on',
  SIGNIN_ORIGIN: 'https://login.example.org',
  IDENTITY_SECRET: TOKEN,
};

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');
const tokens = Array.from({ length: 1_000 }, () => randomBytes(32).toString('base64url'));
const refreshOf = (token: string) => `${token.slice(1)}R`;

/** A sign-in at a program for each session, with an access token and a refresh token. */
async function prepareGrants(sql: Sql): Promise<void> {
  await sql`
    insert into identity.oidc_clients (id, name, secret_digest, redirect, logout_uri,
      backchannel_uri, groups, pkce, consent, refresh, second_factor, id_token_seconds, enabled)
    values ('bench', 'Bench', decode(${sha256(TOKEN)}, 'hex'), '{https://app.example.org/}', '{}',
      '', '{}', true, false, true, false, 600, true)`;
  await sql`
    insert into identity.oidc_grants (id, client_id, session_id, scopes, redirect_uri, nonce,
      challenge)
    select gen_random_uuid(), 'bench', id, '{openid,profile,email,groups,offline_access}', '', '',
      ''
    from identity.sessions`;
  for (const [kind, digests] of [
    ['access', tokens.map(sha256)],
    ['refresh', tokens.map((token) => sha256(refreshOf(token)))],
  ] as const) {
    await sql`
      insert into identity.oidc_tokens (digest, grant_id, kind, ends_at)
      select decode(digest, 'hex'), granted.id, ${kind}, now() + interval '1 day'
      from unnest(${digests}::text[]) with ordinality as one (digest, number)
      join (select id, row_number() over () as number from identity.oidc_grants) granted
        using (number)`;
  }
  await sql`vacuum analyze identity.oidc_grants, identity.oidc_tokens`;
}

/** Starts a process with its own database. */
async function start(bench: Bench, OIDC: 'on' | 'off') {
  const { url, sql } = await openDatabase(bench);
  const [build] = bench.builds;
  if (!build) throw new Error('no build');
  const service = await startServices(['identity'], url, { ...PORTAL, OIDC }, build);
  const sessions = await prepareSessions(sql, bench.directory);
  const verify = await prepareSessions(sql, bench.directory, '/api/auth/verify');
  if (OIDC === 'on') await prepareGrants(sql);
  const subject = (name: string, role: Subject['role'], replay: Replay): Subject => ({
    ...{ name, role, replay },
    ...{ service, sql, databaseUrl: url, build },
  });
  return { subject, sessions, verify };
}

/** What a program sends with an access token, and with a refresh token. */
function replaysOf({ directory }: Bench): Readonly<Record<'userinfo' | 'refresh', Replay>> {
  const replay = (text: string, requestOf: (token: string) => RequestTemplate): Replay => ({
    file: writeRequests(join(directory, text), tokens.map(requestOf)),
    status: 200,
    text,
  });
  return {
    userinfo: replay('preferred_username', (token) => ({
      method: 'GET',
      path: '/oidc/userinfo',
      headers: { Authorization: `Bearer ${token}` },
    })),
    refresh: replay('id_token', (token) => ({
      method: 'POST',
      path: '/oidc/token',
      headers: {
        Authorization: `Basic ${Buffer.from(`bench:${TOKEN}`).toString('base64')}`,
        'Content-Type': 'application/x-www-form-urlencoded',
      },
      body: `grant_type=refresh_token&refresh_token=${refreshOf(token)}`,
    })),
  };
}

export async function oidc(bench: Bench): Promise<Report> {
  const { userinfo, refresh } = replaysOf(bench);
  const on = await start(bench, 'on');
  const again = await start(bench, 'on');
  const off = await start(bench, 'off');
  const information = await measureLoad(bench, CLIENTS, [
    on.subject('verify', 'baseline', on.verify),
    on.subject('userinfo', 'ours', userinfo),
    again.subject('userinfo, again', 'ours again', userinfo),
  ]);
  const bearer = await measureLoad(bench, CLIENTS, [
    off.subject('OIDC=off', 'baseline', off.sessions),
    on.subject('OIDC=on', 'ours', on.sessions),
    again.subject('OIDC=on, again', 'ours again', again.sessions),
  ]);
  const issued = await measureLoad(bench, CLIENTS, [on.subject('refresh', 'ours', refresh)]);
  return {
    comparisons: [
      ...compare(`user information, ${CLIENTS} clients`, 'CPU', information, { max: 1.3 }),
      ...compare(`bearer check, OIDC=on, ${CLIENTS} clients`, 'CPU', bearer, { max: 1 }),
    ],
    tables: [
      tableOf(
        `OpenID Connect: user information and verify, ${CLIENTS} clients`,
        information,
        'Both take a bearer token, and share statements.',
      ),
      tableOf(
        `OpenID Connect: bearer check, ${CLIENTS} clients`,
        bearer,
        'It says nothing of memory.',
      ),
      tableOf(
        `OpenID Connect: a refresh with a signed ID token, ${CLIENTS} clients`,
        issued,
        'The target is 3,000 µs in all. Each is a transaction that waits for its flush.',
      ),
    ],
  };
}
