/**
 * `make bench-verify`: forward authentication by a cookie of the sign-in pages compared with a bearer token. The
 * subjects take turns, so that noise of the machine hits all of them. Processor time says more than the rate: it does
 * not count other programs.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PORTAL } from '../../test/support/portal.ts';
import { prepareSessions } from '../bench/bearer.ts';
import { createDatabase, withPostgres } from '../bench/database.ts';
import { load, type Replay, writeRequests } from '../bench/load.ts';
import { median, type Service, spread, startServices, stopAll } from '../bench/service.ts';
import { ownCpuMicros } from '../bench/usage.ts';
import { connect } from '../postgres.ts';

const ROUNDS = Number(process.env.ROUNDS ?? 10);
const SECONDS = Number(process.env.SECONDS ?? 3);
const CLIENTS = 64;
/** Of a check by cookie, compared with one by bearer token. */
const MAX_COST = 1.05;

interface Subject {
  readonly name: string;
  readonly service: Service;
  readonly replay: Replay;
  readonly rates: number[];
  /** Microseconds of the service's processor for each request. */
  readonly costs: number[];
}

const domainOf = (token: string) =>
  createHash('sha256').update(`domain of ${token}`).digest('base64url');

await withPostgres(async (postgres, directory) => {
  const url = await createDatabase(postgres.url, 'verify');
  const sql = connect(url);
  const start = async (pages: boolean, domain: string) =>
    startServices(
      ['identity'],
      url,
      pages ? { ...PORTAL, TRUSTED_PROXIES: '', COOKIE_DOMAIN: domain } : {},
    );
  try {
    const plain = await start(false, '');
    const bearer = await prepareSessions(sql, directory);
    const tokens = [...readFileSync(bearer.file, 'utf8').matchAll(/Bearer (\S+)/g)].map(
      ([, token = '']) => token,
    );
    for (const token of tokens) {
      await sql`
        insert into identity.sign_ins (session_id, domain_digest, methods, authenticated_at)
        select id, sha256(${domainOf(token)}::text::bytea), 'password, totp', created_at from identity.sessions
        where token_digest = sha256(${token}::text::bytea)`;
    }
    await sql`vacuum analyze identity.sign_ins`;
    const replay = (name: string, headerOf: (token: string) => Record<string, string>): Replay => ({
      file: writeRequests(
        join(directory, name),
        tokens.map((token) => ({
          method: 'GET',
          path: '/api/auth/verify',
          headers: headerOf(token),
        })),
      ),
      status: 200,
      text: 'null',
    });
    const byBearer = replay('by-bearer', (token) => ({ Authorization: `Bearer ${token}` }));
    const byDomain = replay('by-domain', (token) => ({
      Cookie: `__Secure-gatehouse=${domainOf(token)}`,
    }));
    const byHost = replay('by-host', (token) => ({ Cookie: `__Host-gatehouse=${token}` }));
    const subject = (name: string, service: Service, requests: Replay): Subject => ({
      name,
      service,
      replay: requests,
      rates: [],
      costs: [],
    });
    const [shared, alone] = [await start(true, 'example.org'), await start(true, '')];
    const subjects = [
      subject('bearer, without the pages', plain, byBearer),
      subject('bearer, COOKIE_DOMAIN', shared, byBearer),
      subject('__Secure-gatehouse', shared, byDomain),
      subject('bearer, no COOKIE_DOMAIN', alone, byBearer),
      subject('__Host-gatehouse', alone, byHost),
    ];
    for (let round = 0; round <= ROUNDS; round += 1) {
      for (let position = 0; position < subjects.length; position += 1) {
        const one = subjects[(round + position) % subjects.length];
        if (!one) continue;
        const before = ownCpuMicros(one.service.processId) ?? 0;
        const { requests, seconds } = await load({
          name: one.name,
          port: one.service.port,
          clients: CLIENTS,
          seconds: SECONDS,
          replay: one.replay,
        });
        // The first round warms up.
        if (round === 0) continue;
        one.rates.push(requests / seconds);
        one.costs.push(((ownCpuMicros(one.service.processId) ?? 0) - before) / requests);
      }
    }
    for (const { name, service, rates, costs } of subjects) {
      // By a bearer token in the same process, in the same round: the machine is slower in some rounds than in others.
      const reference = subjects.find((one) => one.service === service && one.replay === byBearer);
      const ratios = costs.map((cost, round) => cost / (reference?.costs[round] ?? Number.NaN));
      const compared =
        reference && reference.name !== name ? `, ${spread(ratios, 2)} of "${reference.name}"` : '';
      process.stdout.write(
        `${name.padEnd(28)} ${spread(rates, 0)} per second, ${spread(costs, 1)} µs of processor${compared}\n`,
      );
      // Also if there are no figures: then the median is NaN.
      if (name.startsWith('__') && !(median(ratios) <= MAX_COST)) process.exitCode = 1;
    }
    process.stdout.write(
      `${ROUNDS} rounds of ${SECONDS} s, ${CLIENTS} clients; target: at most ${MAX_COST}\n`,
    );
  } finally {
    await stopAll();
    await sql.end();
  }
});
