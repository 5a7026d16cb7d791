/**
 * Marked secrets go through every route and every failure; none may show up in a log, the metrics,
 * an error or the audit trail.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TABLES } from '../../scripts/routes.ts';
import type { Route } from '../../src/platform/http/route/route.ts';
import { type Call, callsOf } from '../support/calls.ts';
import {
  ADMIN_PASSWORD,
  type Answer,
  ask,
  AUTH_TOKEN,
  type Launched,
  launch,
  logIn,
  SERVER_SECRET,
  WEBHOOK_TOKEN,
} from '../support/gatehouse.ts';

/** Sent in bodies, queries, paths, headers and credentials, well-formed and not. */
const MARK = 'MARKED-0123456789-secret-value';

/**
 * In capitals or not: passwords are typed where names belong, which are compared in small letters.
 */
const holds = (text: string, mark: string) => text.toLowerCase().includes(mark.toLowerCase());

/** A session, an API key, and a stored secret with its id. */
type Stage = Record<'session' | 'key' | 'id' | 'secret', string>;

async function prepare({ identity, secrets }: Launched): Promise<Stage> {
  const session = await logIn(identity);
  const body = { password: MARK };
  const stored = await ask('POST', `${secrets}/api/store/encrypt`, { bearer: AUTH_TOKEN, body });
  const made = await ask('POST', `${identity}/api/key/`, { bearer: session, body: {} });
  return { session, key: made.json.data.key, ...stored.json };
}

/** What must not show up anywhere, also in Base64. */
function marksOf({ session, key, secret }: Stage, databaseUrl: string): readonly string[] {
  const given = [MARK, ADMIN_PASSWORD, AUTH_TOKEN, SERVER_SECRET, WEBHOOK_TOKEN, secret];
  const made = [session, key].flatMap((one) => [one, one.slice(one.indexOf(':') + 1)]);
  const marks = [...given, ...made];
  const encoded = marks.map((mark) => Buffer.from(mark).toString('base64').replace(/=+$/, ''));
  return [...marks, ...encoded, decodeURIComponent(new URL(databaseUrl).password)];
}

interface Body {
  readonly body: unknown;
  /** Sent with parameters that a route does not take, or with a marked `webhook-id`. */
  readonly sentWith?: 'other parameters' | 'a delivery id';
}

function bodiesOf({ session, secret }: Stage): readonly Body[] {
  const page = { event: MARK, data: { page_id: MARK } };
  const marked = { username: MARK, password: MARK, session, secret: MARK, ...page };
  const opening = { session, secret, password: MARK, [MARK.slice(0, 20)]: 1, ...page };
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
}

/** Revoking everything, or logging out, would end the visit; its failures are still seen. */
const endsTheVisit = (pattern: string, isValid: boolean, { sentWith }: Body): boolean =>
  (pattern.includes('revoke') && isValid) || (pattern.endsWith('logout') && sentWith !== undefined);

function visit(
  { session, key, id }: Stage,
  call: Call,
  route: Route<never>,
  credential: string | undefined,
  { body, sentWith }: Body,
): Promise<Answer> {
  const path = route.pattern.replace(/\{[a-z_]+\}/, MARK);
  const marked = { user: MARK, page: MARK, event: MARK, require: MARK };
  const all = { session, id, token: credential ?? MARK, ...marked };
  // A route that takes parameters refuses all others.
  const { properties } = route.query.jsonSchema;
  const known = Object.entries(all).filter(([name]) => Object.hasOwn(properties ?? all, name));
  const query = new URLSearchParams(sentWith === 'other parameters' ? all : known);
  return call(route.method, `${path}?${query}`, {
    ...(credential === undefined ? {} : { bearer: credential }),
    body,
    headers: {
      cookie: `session=${session}${MARK}`,
      'x-api-key': `${key}${MARK}`,
      ...(sentWith === 'a delivery id' ? { 'webhook-id': `${MARK} ${MARK}` } : {}),
    },
  });
}

/** Calls every route of every service with every credential and body. @returns the replies */
async function visitAll(stage: Stage, house: Launched): Promise<Answer[]> {
  const answers: Answer[] = [];
  for (const [service, ...bearers] of [
    ['identity', stage.session, stage.key],
    ['secrets', AUTH_TOKEN],
    ['webhook', WEBHOOK_TOKEN],
  ] as const) {
    const call = callsOf(house.listenerOf(service));
    const wrong = [MARK, ...bearers.map((bearer) => bearer + MARK), undefined];
    // The sign-in pages are off here.
    const rows = TABLES[service]?.[service === 'identity' ? 'withoutPages' : 'all'] ?? [];
    for (const route of rows) {
      const bodies: readonly Body[] = route.body.schema ? bodiesOf(stage) : [{ body: undefined }];
      for (const [index, credential] of [...bearers, ...wrong].entries()) {
        for (const body of bodies) {
          if (endsTheVisit(route.pattern, index < bearers.length, body)) continue;
          answers.push(await visit(stage, call, route, credential, body));
        }
      }
    }
    answers.push(
      await ask('GET', `${house[service]}/${MARK}/${stage.session}?token=${MARK}`),
      await ask('GET', `${house[service]}/%zz${MARK}`),
    );
  }
  return answers;
}

test('no secret reaches a log, the metrics, an error or the audit trail, whatever fails', async (t) => {
  const settings = { LOG_LEVEL: 'debug', SHARE_PAGES: 'on' };
  const house = await launch(['identity', 'secrets', 'webhook'], settings, t);
  const { sql } = house;
  const stage = await prepare(house);
  const answers = await visitAll(stage, house);
  const rows = await sql`select a::text as line from identity.audit a`;
  const trail = rows.map(({ line }) => line).join('\n');
  for (const event of ['login.succeeded', 'login.failed', 'password.failed', 'user.created'])
    assert.ok(trail.includes(event), event);

  // What a database says of a failing statement may quote its values.
  await sql.unsafe(`
    alter table identity.users rename column password_hash to gone;
    alter table identity.sessions rename column token_digest to gone;
    alter table secrets.secrets rename column commitment to gone;
    alter table webhook.events rename column body to gone`);
  answers.push(...(await visitAll(stage, house)));
  assert.ok(house.log().some(({ message }) => message === 'dependency failed'));
  const statuses = new Set(answers.map(({ status }) => status));
  for (const status of [200, 201, 400, 401, 404, 409, 500, 503])
    assert.ok(statuses.has(status), `some answer was ${status}`);

  const metrics = (await ask('GET', `${house.url.metrics}/metrics`)).text;
  const errors = answers
    .filter(({ status }) => status >= 400)
    .map(({ text, headers }) => `${text} ${JSON.stringify([...headers])}`);
  const places = { log: house.stdout(), errorOutput: house.stderr(), metrics, trail };
  for (const mark of marksOf(stage, house.databaseUrl)) {
    for (const [place, text] of Object.entries(places))
      assert.ok(!holds(text, mark), `the ${place} holds ${mark}`);
    const holding = errors.filter((error) => holds(error, mark));
    assert.deepEqual(holding, [], `an error holds ${mark}`);
  }
});
