/** What a service answers is what its document describes. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { createDatabase } from '../support/database.ts';
import {
  ADMIN_PASSWORD,
  type Answer,
  ask,
  AUTH_TOKEN,
  logIn,
  startGatehouse,
} from '../support/gatehouse.ts';
import { addOperator, OPERATOR_TOKEN } from '../support/inbox.ts';
import { ORIGIN, PORTAL, visitorOf } from '../support/portal.ts';

interface Description {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
}
interface Operation {
  readonly responses: Readonly<Record<string, { readonly content?: object }>>;
}

const PAGES = { SHARE_PAGES: 'on', INBOX_PAGE: 'on', ...PORTAL };
/** Never ends. */
const STREAM = '/events/stream';

const database = await createDatabase();
await addOperator(database.sql);
const { url } = await startGatehouse(
  { after },
  ['identity', 'secrets', 'webhook'],
  database.url,
  PAGES,
);
const bearer = await logIn(url.identity);
const fields = { username: 'admin', password: ADMIN_PASSWORD };
const { host: cookie } = await visitorOf(url.identity)('/login', { fields });

/** @returns whether status and content type are those of the document */
function isDescribed({ responses }: Operation, { status, headers, text }: Answer) {
  const { [String(status)]: response } = responses;
  const [type = ''] = (headers.get('content-type') ?? '').split(';');
  const types = Object.keys(response?.content ?? {});
  return text === '' ? response !== undefined : types.includes(type) || types.includes('*/*');
}

for (const [service, credential] of [
  ['identity', bearer],
  ['secrets', AUTH_TOKEN],
  ['webhook', OPERATOR_TOKEN],
] as const) {
  test(`${service}: status and content type of every read and of empty writes`, async () => {
    const host = new URL(ORIGIN).host;
    const { json } = await ask('GET', `${url[service]}/openapi.json`, { headers: { host } });
    const { paths }: Description = json;
    const unknown: string[] = [];
    for (const [path, operations] of Object.entries(paths)) {
      for (const [method, operation] of Object.entries(operations)) {
        if (path === STREAM) continue;
        const target = url[service] + path.replace(/\{\w+\}/g, randomUUID());
        const isWrite = method !== 'get';
        // An empty form ends no session, so the next request is let in as well.
        const callers = isWrite
          ? [{ headers: { host } }]
          : [
              { headers: { host } },
              { bearer: credential, headers: { host, cookie } },
              { bearer: credential, headers: { host, cookie, accept: 'text/html' } },
            ];
        for (const caller of callers) {
          const answer = await ask(method.toUpperCase(), target, caller);
          if (!isDescribed(operation, answer))
            unknown.push(
              `${method} ${path}: ${answer.status} ${answer.headers.get('content-type')}`,
            );
        }
      }
    }
    assert.deepEqual(unknown, []);
  });
}
