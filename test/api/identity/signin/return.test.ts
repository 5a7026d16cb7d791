/** Where a browser goes after signing in, and what is said of a program to which it cannot return. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { createDatabase } from '../../../support/database.ts';
import { startGatehouse } from '../../../support/gatehouse.ts';
import { ORIGIN, PORTAL, visitorOf } from '../../../support/portal.ts';

const database = await createDatabase();
const start = (environment: Readonly<Record<string, string>> = {}) =>
  startGatehouse({ after }, ['identity'], database.url, {
    ...PORTAL,
    RETURN_ORIGINS:
      'https://app.example.org, https://*.apps.example.org, https://other.example.net',
    ...environment,
  });
const portal = await start();
const visit = visitorOf(portal.url.identity);
const NAVIGATION = { 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'document' };
const CANNOT_RETURN = 'a browser cannot return after signing in';

/** What a proxy says of the request that it asks about. */
const forwarded = (host: string, uri = '/a?b=c', proto = 'https') => ({
  'x-forwarded-proto': proto,
  'x-forwarded-host': host,
  'x-forwarded-uri': uri,
});

/** @returns the return address of the redirect, and the problems in the log */
async function ask(headers: Readonly<Record<string, string>>, { url, log } = portal) {
  const id = randomUUID();
  const { status, headers: sent } = await visitorOf(url.identity)('/api/auth/verify?redirect=302', {
    headers: { ...NAVIGATION, 'x-request-id': id, ...headers },
  });
  assert.equal(status, 303);
  const target = new URL(sent.get('location') ?? '');
  assert.equal(target.origin + target.pathname, `${ORIGIN}/login`);
  const lines = log().filter(({ request_id, message }) => {
    return request_id === id && message === CANNOT_RETURN;
  });
  return [target.searchParams.get('return_to'), ...lines.map(({ problem }) => problem)];
}

const openLogin = (returnTo: string) =>
  visit(`/login?return_to=${encodeURIComponent(returnTo)}`, {
    headers: { host: new URL(ORIGIN).host },
  });

test('several proxies, other spellings and raw characters keep the address', async () => {
  const page = 'https://app.example.org/a?b=c';
  for (const headers of [
    forwarded('app.example.org'),
    forwarded('app.example.org, app:5000', '/a?b=c, /inner', 'https, http'),
    forwarded('APP.example.org.', '/a?b=c', 'HTTPS'),
    forwarded('app.example.org:443'),
    { ...forwarded('app.example.org'), 'sec-fetch-dest': 'empty' },
  ])
    assert.deepEqual(await ask(headers), [page], JSON.stringify(headers));
  assert.deepEqual(await ask(forwarded('app.example.org', '/x?path=C:\\Temp a')), [
    'https://app.example.org/x?path=C:%5CTemp%20a',
  ]);
  assert.deepEqual(await ask(forwarded('one.apps.example.org')), [
    'https://one.apps.example.org/a?b=c',
  ]);
  assert.deepEqual(await ask(forwarded('other.example.net')), ['https://other.example.net/a?b=c']);
});

test('a program that is missing from RETURN_ORIGINS is named in the log and on the page', async () => {
  const missing = 'https://app2.example.org/a?b=c';
  assert.deepEqual(await ask(forwarded('app2.example.org')), [
    missing,
    'https://app2.example.org is not in RETURN_ORIGINS',
  ]);
  const said = (origin: string) => `You will not return to ${origin} after signing in`;
  const page = await openLogin(missing);
  assert.ok(page.text.includes(said('https://app2.example.org')), page.text);
  for (const address of ['https://app.example.org/', 'https://one.apps.example.org/', '/', '']) {
    const { text } = await openLogin(address);
    assert.ok(!text.includes('You will not return'), address);
  }
});

test('a host outside the domain is named in the log alone, and the browser does not get it', async () => {
  assert.deepEqual(await ask(forwarded('evil.example')), [
    null,
    'https://evil.example is not in RETURN_ORIGINS',
  ]);
  for (const address of [
    'https://evil.example/',
    'https://app2.example.org.evil.example/',
    'https://app2.example.org@evil.example/',
    'https://evilexample.org/',
  ]) {
    const { text } = await openLogin(address);
    assert.ok(!text.includes('You will not return'), address);
  }
});

test('the log says why headers of a proxy have no effect', async () => {
  // Of each message, five lines a second are written.
  const other = await start();
  const unreadable = 'X-Forwarded-Proto, -Host and -Uri are no address of at most 2,048 characters';
  for (const headers of [
    { 'x-forwarded-uri': '/a' },
    forwarded('', '/a'),
    forwarded('app.example.org', `/${'a'.repeat(2_048)}`),
    forwarded('app.example.org@evil.example'),
  ])
    assert.deepEqual(await ask(headers, other), [null, unreadable]);
  assert.deepEqual(await ask({}, other), [null], 'a service that asks for itself');
});

test('headers of a sender that is no trusted proxy have no effect, and the log says so', async () => {
  const untrusted = await start({ TRUSTED_PROXIES: '192.0.2.1' });
  const { headers } = await visitorOf(untrusted.url.identity)('/api/auth/verify?redirect=302', {
    headers: { ...NAVIGATION, ...forwarded('app.example.org') },
  });
  assert.equal(headers.get('location'), `${ORIGIN}/login`);
  const line = untrusted.log().find(({ message }) => message === CANNOT_RETURN);
  assert.equal(line?.problem, 'the proxy is not in TRUSTED_PROXIES');
  assert.deepEqual([line?.level, line?.ip], ['warn', '127.0.0.1']);
});

test('a request that is no navigation writes nothing about an address', async () => {
  const id = 'return-of-a-script';
  const headers = { ...forwarded('app2.example.org'), 'x-request-id': id };
  const { status } = await visit('/api/auth/verify?redirect=302', {
    headers: { ...headers, 'sec-fetch-mode': 'cors', 'sec-fetch-dest': 'empty' },
  });
  assert.equal(status, 401);
  const messages = portal.log().flatMap((line) => (line.request_id === id ? [line.message] : []));
  assert.deepEqual(messages, ['request']);
});
