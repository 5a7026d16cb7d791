/** Marked secrets go through every route and every failure; none may show up in a log, the metrics, an error or the audit trail. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { routes as identity } from '../src/identity/routes.ts';
import { createRoutes } from '../src/secrets/routes.ts';
import { createRoutes as createWebhookRoutes } from '../src/webhook/routes.ts';
import { createDatabase } from './support/database.ts';
import {
  ADMIN_PASSWORD,
  type Answer,
  ask,
  AUTH_TOKEN,
  logIn,
  SERVER_SECRET,
  startGatehouse,
  WEBHOOK_TOKEN,
} from './support/gatehouse.ts';
import { SITE } from './support/context.ts';

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

/** In capitals or not: names are compared in small letters, and passwords are typed where names belong. */
const holds = (text: string, mark: string) => text.toLowerCase().includes(mark.toLowerCase());

test('no secret reaches a log, the metrics, an error or the audit trail, whatever fails', async (context) => {
  const database = await createDatabase(context);
  const house = await startGatehouse(context, ['identity', 'secrets', 'webhook'], database.url, {
    LOG_LEVEL: 'debug',
    SHARE_PAGES: 'on',
  });
  const { url } = house;
  const session = await logIn(url.identity);
  const made = await ask('POST', `${url.secrets}/api/store/encrypt`, {
    bearer: AUTH_TOKEN,
    body: { password: MARK },
  });
  const secret: { id: string; secret: string } = made.json;
  const key: string = (await ask('POST', `${url.identity}/api/key/`, { bearer: session, body: {} }))
    .json.data.key;
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
  marks.push(
    ...marks.map((mark) => Buffer.from(mark).toString('base64').replace(/=+$/, '')),
    decodeURIComponent(new URL(database.url).password),
  );

  const answers: Answer[] = [];
  const visit = async () => {
    const doors = [
      { base: url.identity, routes: identity, bearers: [session, key] },
      { base: url.secrets, routes: secrets, bearers: [AUTH_TOKEN] },
      { base: url.webhook, routes: webhook, bearers: [WEBHOOK_TOKEN] },
    ];
    const bodies = [
      { username: 'admin', password: ADMIN_PASSWORD },
      {
        username: MARK,
        password: MARK,
        session,
        secret: MARK,
        event: MARK,
        data: { page_id: MARK },
      },
      {
        session,
        secret: secret.secret,
        password: MARK,
        [MARK.slice(0, 20)]: 1,
        event: MARK,
        data: { page_id: MARK },
      },
      { session: [MARK], password: { MARK }, secret: 7, event: '', data: MARK },
      { username: 'marked', email: 'marked@example.org', password: MARK },
      { current_password: MARK, new_password: `${MARK}, another one` },
      `{"password": "${MARK}", "session": "${session}"`,
      Buffer.from([0xff, ...Buffer.from(MARK)]),
    ];
    for (const { base, routes, bearers } of doors) {
      for (const route of routes) {
        for (const credential of [
          ...bearers,
          MARK,
          ...bearers.map((bearer) => `${bearer}${MARK}`),
          undefined,
        ]) {
          for (const body of route.schemas.body ? bodies : [undefined]) {
            // Revoking everything, or logging out, would end the visit; its failures are still seen.
            if (route.pattern.includes('revoke') && bearers.some((bearer) => bearer === credential))
              continue;
            if (route.pattern.endsWith('logout') && (body === bodies[1] || body === bodies[2]))
              continue;
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
            const { properties } = route.schemas.query;
            const known = Object.entries(all).filter(
              ([name]) => !properties || Object.hasOwn(properties, name),
            );
            const query = new URLSearchParams(body === bodies[1] ? all : Object.fromEntries(known));
            const given = credential === undefined ? {} : { bearer: credential };
            const headers: Record<string, string> = {
              cookie: `session=${session}${MARK}`,
              'x-api-key': `${key}${MARK}`,
              'user-agent': 'a test',
            };
            if (body === bodies[2]) headers['webhook-id'] = `${MARK} ${MARK}`;
            answers.push(
              await ask(route.method, `${base}${path}?${query}`, { ...given, body, headers }),
            );
          }
        }
      }
      answers.push(
        await ask('GET', `${base}/${MARK}/${session}?token=${MARK}`),
        await ask('GET', `${base}/%zz${MARK}`),
      );
    }
  };

  await visit();
  const trail = (
    await database.sql<Array<{ line: string }>>`select a::text as line from identity.audit a`
  )
    .map(({ line }) => line)
    .join('\n');
  for (const event of [
    'login.succeeded',
    'login.failed',
    'password.failed',
    'user.created',
    'key.created',
  ])
    assert.ok(trail.includes(event), event);
  for (const mark of marks) assert.ok(!holds(trail, mark), `the audit trail holds ${mark}`);
  // Again with the tables out of reach: what a database says of a failing statement may quote its values.
  await database.sql`alter table identity.users rename column password_hash to gone`;
  await database.sql`alter table identity.sessions rename column token_digest to gone`;
  await database.sql`alter table secrets.secrets rename column commitment to gone`;
  await database.sql`alter table webhook.events rename column body to gone`;
  await visit();
  assert.ok(
    house.log().some((line) => line.message === 'dependency failed'),
    'the failures were real',
  );
  const statuses = new Set(answers.map(({ status }) => status));
  for (const status of [200, 201, 400, 401, 404, 409, 500, 503])
    assert.ok(statuses.has(status), `some answer was ${status}`);

  const metrics = (await ask('GET', `${url.metrics}/metrics`)).text;
  const errors = answers
    .filter(({ status }) => status >= 400)
    .map(({ text, headers }) => `${text} ${JSON.stringify([...headers])}`);
  for (const mark of marks) {
    assert.ok(!holds(house.stdout(), mark), `the log holds ${mark}`);
    assert.ok(!holds(house.stderr(), mark), `standard error holds ${mark}`);
    assert.ok(!holds(metrics, mark), `the metrics hold ${mark}`);
    assert.deepEqual(
      errors.filter((error) => holds(error, mark)),
      [],
      `an error holds ${mark}`,
    );
  }
});
