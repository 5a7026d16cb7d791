/**
 * The page at `/` of each service, for people who open its address; programs still get the JSON
 * error. And what a service answers is what its document describes.
 */
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
import { PAGE_SECURITY } from '../support/page-assertions.ts';
import { ORIGIN, PORTAL, visitorOf } from '../support/portal.ts';

const SERVICES = ['identity', 'secrets', 'webhook'] as const;
const { url: databaseUrl, sql } = await createDatabase();
const SITE = { SITE_NAME: 'Example <Ltd>', SITE_COLOR: '#0a7d4b' };
const without = await startGatehouse({ after }, SERVICES, databaseUrl, SITE);
const plain = await startGatehouse({ after }, ['webhook'], databaseUrl, {
  WEBHOOK_VARIANT: 'plain',
});
const PAGES = { SHARE_PAGES: 'on', INBOX_PAGE: 'on', ...PORTAL };
await addOperator(sql);
const { url } = await startGatehouse({ after }, SERVICES, databaseUrl, PAGES);
const bearer = await logIn(url.identity);
const fields = { username: 'admin', password: ADMIN_PASSWORD };
const { host: cookie } = await visitorOf(url.identity)('/login', { fields });

const BROWSER = { accept: 'text/html,application/xhtml+xml,*/*;q=0.8' };
const open = (url: string, path = '/') => ask('GET', url + path, { headers: BROWSER });
function assertSecure(headers: Headers) {
  for (const [name, value] of Object.entries(PAGE_SECURITY))
    assert.equal(headers.get(name), value, name);
}

for (const service of SERVICES) {
  test(`${service}: a browser sees what it is and whose, and what it may open`, async () => {
    const { status, text, headers } = await open(without.url[service]);
    assert.equal(status, 200);
    assert.equal(headers.get('content-type'), 'text/html; charset=utf-8');
    assertSecure(headers);
    assert.match(text, new RegExp(`<h1>Gatehouse ${service}</h1>`));
    assert.match(text, /Example &#60;Ltd&#62;/);
    assert.deepEqual(
      [...text.matchAll(/<a (?:class="button" )?href="([^"]+)"/g)].map(([, path]) => path),
      ['/', '/openapi'],
    );
    for (const path of ['/pages/style.css', '/pages/site.css', '/pages/logo']) {
      assert.ok(text.includes(`"${path}"`), path);
      assert.equal((await open(without.url[service], path)).status, 200, path);
    }
    assert.match((await open(without.url[service], '/pages/site.css')).text, /--accent: #0a7d4b/);
  });

  test(`${service}: a program gets the JSON error, at this and at every unknown path`, async () => {
    for (const path of ['/', '/pages/landing.ts', '/pages/frame.html', '/pages/__proto__']) {
      const headers = { accept: path === '/' ? 'application/json' : '*/*' };
      const { status, json } = await ask('GET', without.url[service] + path, { headers });
      assert.deepEqual([status, json.error.code], [404, 'no_such_path'], path);
    }
  });

  test(`${service}: a browser gets a page at an unknown path, and at what is none`, async () => {
    for (const [path, expected] of [
      ['/pages/', 404],
      ['/other/deeper', 404],
      ['/other%23x', 404],
      ['//other', 400],
      ['/%23%zz', 400],
    ] as const) {
      const { status, text, headers } = await open(without.url[service], path);
      assert.equal(status, expected, path);
      assert.match(text, /<a href="\/">start page<\/a>/, path);
      assertSecure(headers);
    }
  });

  test(`${service}: its interface is a page in the frame of the site, with its document`, async () => {
    const { status, text, headers } = await open(without.url[service], '/openapi');
    assert.equal(status, 200);
    assertSecure(headers);
    assert.match(text, /Example &#60;Ltd&#62;/);
    assert.doesNotMatch(text, /<script|style=|undefined/);
    const { json } = await ask('GET', `${without.url[service]}/openapi.json`);
    for (const path of Object.keys(json.paths)) assert.ok(text.includes(` ${path}</code>`), path);
  });
}

test('a # that a mail program encoded is decoded before a page is looked for', async () => {
  for (const [service, path, address] of [
    ['identity', '/link%23AbC-_', '/link#AbC-_'],
    ['identity', '/link/%2523AbC.?utm=1', '/link/#AbC.'],
    ['identity', '/link%23%23AbC%20%C3%A4', '/link#%23AbC%20%C3%A4'],
    ['identity', '/%23AbC', '/#AbC'],
    ['identity', '/account/users%252523x', '/account/users#x'],
    ['secrets', '/s/0/%231.A.B', '/s/0/#1.A.B'],
    ['secrets', '/r/0/%23A', '/r/0/#A'],
    ['secrets', '/answer/0/%231.A', '/answer/0/#1.A'],
    ['secrets', '/request/0/%231.A.B.C', '/request/0/#1.A.B.C'],
    ['identity', '/%5Cevil.example.net/%23x', null],
  ] as const) {
    const sent = { headers: BROWSER };
    const { status, headers } = await ask('GET', url[service] + path, sent);
    assert.equal(headers.get('location'), address, path);
    assert.equal(status, address === null ? 404 : 303, path);
    const program = await ask('GET', url[service] + path);
    assert.equal(program.status, 404, path);
  }
});

test('pages that are switched on are linked', async () => {
  assert.match((await open(url.webhook)).text, /href="\/inbox">Open the inbox<\/a>/);
  assert.equal((await open(plain.url.webhook)).status, 200);
});

// --- The document

interface Description {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
}
interface Operation {
  readonly responses: Readonly<Record<string, { readonly content?: object }>>;
}

/** Never ends. */
const STREAM = '/events/stream';

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
