/**
 * `make bench PART=verify`: forward authentication by a cookie of the sign-in pages compared with a
 * bearer token. The subjects take turns, so that noise of the machine hits all of them. Processor
 * time says more than the rate: it does not count other programs.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { prepareSessions } from './bearer.ts';
import { createDatabase, withPostgres } from './database.ts';
import { load, type Replay, writeRequests } from './load.ts';
import { median, type Service, spread, startServices, stopAll } from './service.ts';
import { ownCpuMicros } from './usage.ts';
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
  /** The subject in the same process with which it is compared. */
  readonly reference: string | null;
  readonly rates: number[];
  /** Microseconds of the service's processor for each request. */
  readonly costs: number[];
}

const derived = (what: string) => (token: string) =>
  createHash('sha256').update(`${what} of ${token}`).digest('base64url');
const domainOf = derived('domain');
const hostOf = derived('host');

/** Settings of the sign-in pages, without a proxy. */
const PAGES = {
  SIGNIN_PAGES: 'on',
  SIGNIN_ORIGIN: 'https://login.example.org',
  IDENTITY_SECRET: 'identity-secret-for-benchmarks-0123456789',
};

/**
 * For each session, the tokens of the portal's cookies, as the portal makes them: a second session
 * for the cookie of the host, because it is no bearer token.
 * @returns the bearer tokens
 */
async function prepareSignIns(sql: ReturnType<typeof connect>, directory: string) {
  const bearer = await prepareSessions(sql, directory);
  const requests = readFileSync(bearer.file, 'utf8');
  const tokens = [...requests.matchAll(/Bearer (\S+)/g)].map(([, token = '']) => token);
  for (const token of tokens) {
    await sql`
      insert into identity.sessions (id, token_digest, domain_digest, user_id, methods,
        authenticated_at, expires_at, created_at, updated_at, last_seen_at)
      select gen_random_uuid(), sha256(${hostOf(token)}::text::bytea),
        sha256(${domainOf(token)}::text::bytea), user_id, 'password, totp',
        created_at, expires_at, created_at, updated_at, last_seen_at
      from identity.sessions where token_digest = sha256(${token}::text::bytea)`;
  }
  await sql`vacuum analyze identity.sessions`;
  return tokens;
}

type HeadersOf = (token: string) => Record<string, string>;

function writeReplay(file: string, tokens: readonly string[], headersOf: HeadersOf): Replay {
  const path = '/api/auth/verify';
  const requests = tokens.map((token) => ({ method: 'GET', path, headers: headersOf(token) }));
  return { file: writeRequests(file, requests), status: 200, text: 'null' };
}

async function openSubjects(url: string, tokens: readonly string[], directory: string) {
  const start = (environment: Readonly<Record<string, string>>) =>
    startServices(['identity'], url, environment);
  const plain = await start({});
  const shared = await start({ ...PAGES, COOKIE_DOMAIN: 'example.org' });
  const alone = await start(PAGES);
  const replay = (name: string, headersOf: HeadersOf) =>
    writeReplay(join(directory, name), tokens, headersOf);
  const byBearer = replay('by-bearer', (token) => ({ Authorization: `Bearer ${token}` }));
  const byDomain = replay('by-domain', (token) => ({
    Cookie: `__Secure-gatehouse=${domainOf(token)}`,
  }));
  const byHost = replay('by-host', (token) => ({
    Cookie: `__Host-gatehouse=${hostOf(token)}`,
  }));
  const subject = (name: string, service: Service, requests: Replay, reference: string | null) => ({
    name,
    service,
    replay: requests,
    reference,
    rates: [],
    costs: [],
  });
  return [
    subject('bearer, without the pages', plain, byBearer, null),
    subject('bearer, COOKIE_DOMAIN', shared, byBearer, null),
    subject('__Secure-gatehouse', shared, byDomain, 'bearer, COOKIE_DOMAIN'),
    subject('bearer, no COOKIE_DOMAIN', alone, byBearer, null),
    subject('__Host-gatehouse', alone, byHost, 'bearer, no COOKIE_DOMAIN'),
  ];
}

/** Adds a figure of each round to the subjects. The first round warms up. */
async function measureInTurn(subjects: readonly Subject[]): Promise<void> {
  for (let round = 0; round <= ROUNDS; round += 1) {
    for (let position = 0; position < subjects.length; position += 1) {
      const one = subjects[(round + position) % subjects.length];
      if (!one) continue;
      const { name, service, replay } = one;
      const before = ownCpuMicros(service.processId) ?? 0;
      const { port } = service;
      const sent = await load({ name, port, clients: CLIENTS, seconds: SECONDS, replay });
      if (round === 0) continue;
      one.rates.push(sent.requests / sent.seconds);
      one.costs.push(((ownCpuMicros(service.processId) ?? 0) - before) / sent.requests);
    }
  }
}

/**
 * The costs of each round divided by those of the reference: some rounds are slower than others.
 */
function report(subjects: readonly Subject[]): void {
  for (const { name, reference, rates, costs } of subjects) {
    const referenceCosts = subjects.find((one) => one.name === reference)?.costs;
    const ratios = costs.map((cost, round) => cost / (referenceCosts?.[round] ?? Number.NaN));
    const compared = reference === null ? '' : `, ${spread(ratios, 2)} of "${reference}"`;
    const cost = `${spread(costs, 1)} µs of processor`;
    print(`${name.padEnd(28)} ${spread(rates, 0)} per second, ${cost}${compared}`);
    // Also if there are no figures: then the median is NaN.
    if (reference !== null && !(median(ratios) <= MAX_COST)) process.exitCode = 1;
  }
  print(`${ROUNDS} rounds of ${SECONDS} s, ${CLIENTS} clients; target: at most ${MAX_COST}`);
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

await withPostgres(async (postgres, directory) => {
  const url = await createDatabase(postgres.url, 'verify');
  const sql = connect(url);
  try {
    const tokens = await prepareSignIns(sql, directory);
    const subjects = await openSubjects(url, tokens, directory);
    await measureInTurn(subjects);
    report(subjects);
  } finally {
    await stopAll();
    await sql.end();
  }
});
