/** Marked secrets go through every route and every failure; none may show up in a log, the metrics or an error. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { routes as identity } from '../src/identity/routes.ts';
import { routes as secrets } from '../src/secrets/routes.ts';
import { routes as webhook } from '../src/webhook/routes.ts';
import { createDatabase } from './support/database.ts';
import { ADMIN_PASSWORD, type Answer, ask, AUTH_TOKEN, logIn, SERVER_SECRET, startGatehouse, WEBHOOK_TOKEN } from './support/gatehouse.ts';

/** Sent in bodies, queries, paths, headers and credentials, well-formed and not. */
const MARK = 'MARKED-0123456789-secret-value';

test('no secret reaches a log, the metrics or an error, whatever fails', async (context) => {
  const database = await createDatabase(context);
  const house = await startGatehouse(context, ['identity', 'secrets', 'webhook'], database.url, { LOG_LEVEL: 'debug' });
  const { url } = house;
  const session = await logIn(url.identity);
  const made = await ask('POST', `${url.secrets}/api/store/encrypt`, { bearer: AUTH_TOKEN, body: { password: MARK } });
  const secret: { id: string; secret: string } = made.json;
  const marks = [MARK, ADMIN_PASSWORD, AUTH_TOKEN, SERVER_SECRET, WEBHOOK_TOKEN, session, session.slice('session:'.length), secret.secret];
  marks.push(...marks.map((mark) => Buffer.from(mark).toString('base64').replace(/=+$/, '')), decodeURIComponent(new URL(database.url).password));

  const answers: Answer[] = [];
  const visit = async () => {
    const doors = [
      { base: url.identity, routes: identity, bearer: session },
      { base: url.secrets, routes: secrets, bearer: AUTH_TOKEN },
      { base: url.webhook, routes: webhook, bearer: WEBHOOK_TOKEN },
    ];
    const bodies = [
      { username: 'admin', password: ADMIN_PASSWORD },
      { username: MARK, password: MARK, session, secret: MARK, event: MARK, data: { page_id: MARK } },
      { session, secret: secret.secret, password: MARK, [MARK.slice(0, 20)]: 1, event: MARK, data: { page_id: MARK } },
      { session: [MARK], password: { MARK }, secret: 7, event: '', data: MARK },
      `{"password": "${MARK}", "session": "${session}"`,
      Buffer.from([0xff, ...Buffer.from(MARK)]),
    ];
    for (const { base, routes, bearer } of doors) {
      for (const route of routes) {
        for (const credential of [bearer, MARK, `${bearer}${MARK}`, undefined]) {
          for (const body of route.schemas.body ? bodies : [undefined]) {
            // Revoking everything would end the visit; its failures are still seen.
            if (/revoke|logout/.test(route.pattern) && credential === bearer) continue;
            const path = route.pattern.replace(/\{[a-z_]+\}/, MARK);
            const query = new URLSearchParams({ session, id: secret.id, token: credential ?? MARK, user: MARK, page: MARK });
            const given = credential === undefined ? {} : { bearer: credential };
            answers.push(await ask(route.method, `${base}${path}?${query}`, { ...given, body, headers: body === bodies[2] ? { 'webhook-id': `${MARK} ${MARK}` } : {} }));
          }
        }
      }
      answers.push(await ask('GET', `${base}/${MARK}/${session}?token=${MARK}`), await ask('GET', `${base}/%zz${MARK}`));
    }
  };

  await visit();
  // Again with the tables out of reach: what a database says of a failing statement may quote its values.
  await database.sql`alter table identity.users rename column password_hash to gone`;
  await database.sql`alter table identity.sessions rename column token_digest to gone`;
  await database.sql`alter table secrets.secrets rename column commitment to gone`;
  await database.sql`alter table webhook.events rename column body to gone`;
  await visit();
  assert.ok(house.log().some((line) => line.message === 'dependency failed'), 'the failures were real');
  const statuses = new Set(answers.map(({ status }) => status));
  for (const status of [200, 400, 401, 404, 500, 503]) assert.ok(statuses.has(status), `some answer was ${status}`);

  const metrics = (await ask('GET', `${url.metrics}/metrics`)).text;
  const errors = answers.filter(({ status }) => status >= 400).map(({ text, headers }) => `${text} ${JSON.stringify([...headers])}`);
  for (const mark of marks) {
    assert.ok(!house.stdout().includes(mark), `the log holds ${mark}`);
    assert.ok(!house.stderr().includes(mark), `standard error holds ${mark}`);
    assert.ok(!metrics.includes(mark), `the metrics hold ${mark}`);
    assert.deepEqual(errors.filter((error) => error.includes(mark)), [], `an error holds ${mark}`);
  }
});
