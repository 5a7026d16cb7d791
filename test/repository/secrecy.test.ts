/**
 * Marked secrets go through every route and every failure; none may show up in a log, the metrics,
 * an error or the audit trail.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Sql } from 'postgres';
import type { Route } from '../../src/platform/http/route/route.ts';
import { createRoutes as createIdentityRoutes } from '../../src/identity/routes.ts';
import { createRoutes } from '../../src/secrets/routes.ts';
import { createRoutes as createWebhookRoutes } from '../../src/webhook/routes.ts';
import { createDatabase } from '../support/database.ts';
import {
  ADMIN_PASSWORD,
  type Answer,
  ask,
  AUTH_TOKEN,
  type Gatehouse,
  logIn,
  SERVER_SECRET,
  startGatehouse,
  WEBHOOK_TOKEN,
} from '../support/gatehouse.ts';
import { SITE } from '../support/service-context.ts';

const identity = await createIdentityRoutes(null);

const webhook = await createWebhookRoutes(SITE);
const secrets = await createRoutes(
  {
    expires_in: { default: 60, max: 60 },
    max_reads: { default: 1, max: 1 },
    password: { max_bytes: 64_512 },
  },
  SITE,
);

/** Sent in bodies, queries, paths, headers and credentials, well-formed and not. */
const MARK = 'MARKED-0123456789-secret-value';

/**
 * In capitals or not: names are compared in small letters, and passwords are typed where names
 * belong.
 */
const holds = (text: string, mark: string) => text.toLowerCase().includes(mark.toLowerCase());

interface Service {
  readonly base: string;
  readonly routes: ReadonlyArray<Route<never>>;
  /** Valid credentials. */
  readonly bearers: readonly string[];
}

interface Stage {
  readonly url: Gatehouse['url'];
  readonly session: string;
  readonly key: string;
  /** Of a stored secret. */
  readonly secret: { readonly id: string; readonly secret: string };
}

async function prepare(url: Gatehouse['url']): Promise<Stage> {
  const session = await logIn(url.identity);
  const made = await ask('POST', `${url.secrets}/api/store/encrypt`, {
    bearer: AUTH_TOKEN,
    body: { password: MARK },
  });
  const created = await ask('POST', `${url.identity}/api/key/`, { bearer: session, body: {} });
  return { url, session, key: created.json.data.key, secret: made.json };
}

const servicesOf = ({ url, session, key }: Stage): readonly Service[] => [
  { base: url.identity, routes: identity, bearers: [session, key] },
  { base: url.secrets, routes: secrets, bearers: [AUTH_TOKEN] },
  { base: url.webhook, routes: webhook, bearers: [WEBHOOK_TOKEN] },
];

/** What must not show up anywhere, also in Base64. */
function marksOf({ session, key, secret }: Stage, databaseUrl: string): readonly string[] {
  const marks = [
    MARK,
    ADMIN_PASSWORD,
    AUTH_TOKEN,
    SERVER_SECRET,
    WEBHOOK_TOKEN,
    session,
    session.slice('session:'.length),
    key,
    key.slice('key:'.length),
    secret.secret,
  ];
  const encoded = marks.map((mark) => Buffer.from(mark).toString('base64').replace(/=+$/, ''));
  return [...marks, ...encoded, decodeURIComponent(new URL(databaseUrl).password)];
}

interface Body {
  readonly body: unknown;
  /** Sent with parameters that a route does not take, or with a marked `webhook-id`. */
  readonly sentWith?: 'other parameters' | 'a delivery id';
}

const bodiesOf = ({ session, secret }: Stage): readonly Body[] => {
  const page = { event: MARK, data: { page_id: MARK } };
  const marked = { username: MARK, password: MARK, session, secret: MARK, ...page };
  const opening = {
    session,
    secret: secret.secret,
    password: MARK,
    [MARK.slice(0, 20)]: 1,
    ...page,
  };
  return [
    { body: { username: 'admin', password: ADMIN_PASSWORD } },
    { body: marked, sentWith: 'other parameters' },
    { body: opening, sentWith: 'a delivery id' },
    { body: { session: [MARK], password: { MARK }, secret: 7, event: '', data: MARK } },
    { body: { username: 'marked', email: 'marked@example.org', password: MARK } },
    { body: { current_password: MARK, new_password: `${MARK}, another one` } },
    { body: `{"password": "${MARK}", "session": "${session}"` },
    { body: Buffer.from([0xff, ...Buffer.from(MARK)]) },
  ];
};

/** Calls every route of a service with every credential and body. @returns the replies */
async function visitService(stage: Stage, service: Service): Promise<Answer[]> {
  const { base, routes, bearers } = service;
  const credentials = [...bearers, MARK, ...bearers.map((bearer) => `${bearer}${MARK}`), undefined];
  const answers: Answer[] = [];
  for (const route of routes) {
    const bodies: readonly Body[] = route.body.schema ? bodiesOf(stage) : [{ body: undefined }];
    for (const credential of credentials) {
      for (const body of bodies) {
        if (endsTheVisit(route, bearers, credential, body)) continue;
        answers.push(await visitRoute(stage, base, route, credential, body));
      }
    }
  }
  answers.push(
    await ask('GET', `${base}/${MARK}/${stage.session}?token=${MARK}`),
    await ask('GET', `${base}/%zz${MARK}`),
  );
  return answers;
}

/** Revoking everything, or logging out, would end the visit; its failures are still seen. */
function endsTheVisit(
  { pattern }: Route<never>,
  bearers: readonly string[],
  credential: string | undefined,
  { sentWith }: Body,
): boolean {
  const isValid = bearers.some((bearer) => bearer === credential);
  if (pattern.includes('revoke') && isValid) return true;
  return pattern.endsWith('logout') && sentWith !== undefined;
}

function visitRoute(
  { session, key, secret }: Stage,
  base: string,
  route: Route<never>,
  credential: string | undefined,
  { body, sentWith }: Body,
): Promise<Answer> {
  const path = route.pattern.replace(/\{[a-z_]+\}/, MARK);
  const all = {
    session,
    id: secret.id,
    token: credential ?? MARK,
    user: MARK,
    page: MARK,
    event: MARK,
    require: MARK,
  };
  // A route that takes parameters refuses all others.
  const { properties } = route.query.jsonSchema;
  const isKnown = (name: string) => !properties || Object.hasOwn(properties, name);
  const known = Object.fromEntries(Object.entries(all).filter(([name]) => isKnown(name)));
  const query = new URLSearchParams(sentWith === 'other parameters' ? all : known);
  const headers: Record<string, string> = {
    cookie: `session=${session}${MARK}`,
    'x-api-key': `${key}${MARK}`,
    'user-agent': 'a test',
  };
  if (sentWith === 'a delivery id') headers['webhook-id'] = `${MARK} ${MARK}`;
  const given = credential === undefined ? {} : { bearer: credential };
  return ask(route.method, `${base}${path}?${query}`, { ...given, body, headers });
}

async function visitAll(stage: Stage): Promise<Answer[]> {
  const answers: Answer[] = [];
  for (const service of servicesOf(stage)) answers.push(...(await visitService(stage, service)));
  return answers;
}

async function checkTrail(sql: Sql, marks: readonly string[]): Promise<void> {
  const rows = await sql<Array<{ line: string }>>`select a::text as line from identity.audit a`;
  const trail = rows.map(({ line }) => line).join('\n');
  for (const event of [
    'login.succeeded',
    'login.failed',
    'password.failed',
    'user.created',
    'key.created',
  ]) {
    assert.ok(trail.includes(event), event);
  }
  for (const mark of marks) assert.ok(!holds(trail, mark), `the audit trail holds ${mark}`);
}

/**
 * Puts the tables out of reach: what a database says of a failing statement may quote its values.
 */
async function breakTables(sql: Sql): Promise<void> {
  await sql`alter table identity.users rename column password_hash to gone`;
  await sql`alter table identity.sessions rename column token_digest to gone`;
  await sql`alter table secrets.secrets rename column commitment to gone`;
  await sql`alter table webhook.events rename column body to gone`;
}

test('no secret reaches a log, the metrics, an error or the audit trail, whatever fails', async (context) => {
  const database = await createDatabase(context);
  const house = await startGatehouse(context, ['identity', 'secrets', 'webhook'], database.url, {
    LOG_LEVEL: 'debug',
    SHARE_PAGES: 'on',
  });
  const stage = await prepare(house.url);
  const marks = marksOf(stage, database.url);
  const first = await visitAll(stage);
  await checkTrail(database.sql, marks);
  await breakTables(database.sql);
  const answers = [...first, ...(await visitAll(stage))];
  const isFailure = ({ message }: Record<string, unknown>) => message === 'dependency failed';
  assert.ok(house.log().some(isFailure), 'the failures were real');
  const statuses = new Set(answers.map(({ status }) => status));
  for (const status of [200, 201, 400, 401, 404, 409, 500, 503]) {
    assert.ok(statuses.has(status), `some answer was ${status}`);
  }

  const metrics = (await ask('GET', `${house.url.metrics}/metrics`)).text;
  const errors = answers
    .filter(({ status }) => status >= 400)
    .map(({ text, headers }) => `${text} ${JSON.stringify([...headers])}`);
  for (const mark of marks) {
    assert.ok(!holds(house.stdout(), mark), `the log holds ${mark}`);
    assert.ok(!holds(house.stderr(), mark), `standard error holds ${mark}`);
    assert.ok(!holds(metrics, mark), `the metrics hold ${mark}`);
    const holding = errors.filter((error) => holds(error, mark));
    assert.deepEqual(holding, [], `an error holds ${mark}`);
  }
});
