/** Addresses of the sign-in pages and of programs: as meant, or refused, or with a warning. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { read } from '../../../../src/identity/settings.ts';
import { Env } from '../../../../src/platform/runtime/env.ts';
import { wordsOf } from '../../../support/words.ts';

/** @returns the settings of the sign-in pages, or the problems */
function portalOf(given: Readonly<Record<string, string>>) {
  const env = new Env({ DATABASE_URL: 'postgres://localhost/d', SIGNIN_PAGES: 'on', ...given });
  const { portal } = read(env);
  return { portal, problems: [...env.problems.values()], warnings: [...env.warnings] };
}

const LOGIN = 'https://login.example.org';

test('an origin is read as browsers write it', () => {
  for (const [given, expected] of [
    [LOGIN, LOGIN],
    [`${LOGIN}/`, LOGIN],
    ['HTTPS://Login.Example.ORG:443', LOGIN],
    ['https://login.example.org:8443', 'https://login.example.org:8443'],
    ['https://bücher.example', 'https://xn--bcher-kva.example'],
    ['http://localhost:3000', 'http://localhost:3000'],
    ['http://app.localhost', 'http://app.localhost'],
  ] as const) {
    const { portal, problems } = portalOf({ SIGNIN_ORIGIN: given });
    assert.deepEqual([portal?.origin, problems], [expected, []], given);
  }
});

test('what is no origin, or can never match one, is refused', () => {
  const form =
    'an origin such as https://login.example.org, without a path, and with https unless the host is localhost.';
  for (const given of [
    'login.example.org',
    'http://login.example.org',
    'https://login.example.org/login',
    'https://login.example.org?x',
    'https://login.example.org#x',
    'https://user@login.example.org',
    'https://login.example.org.',
    'https://*.example.org',
    'https://login.exam ple.org',
    'https://login.exam\nple.org',
    'ftp://login.example.org',
  ])
    assert.deepEqual(
      portalOf({ SIGNIN_ORIGIN: given }).problems,
      [`SIGNIN_ORIGIN must be ${form}`],
      given,
    );
});

test('a wildcard in RETURN_ORIGINS stands for the first label alone, and never for a whole TLD', () => {
  const domain = { SIGNIN_ORIGIN: LOGIN, COOKIE_DOMAIN: 'example.org' };
  for (const [given, expected] of [
    ['https://*.example.org', 'https://*.example.org'],
    ['HTTPS://*.Apps.Example.org:8443/', 'https://*.apps.example.org:8443'],
    ['http://*.localhost:5000', 'http://*.localhost:5000'],
  ] as const) {
    const { portal, problems } = portalOf({ ...domain, RETURN_ORIGINS: given });
    assert.deepEqual([portal?.returnOrigins, problems], [[expected], []], given);
  }
  for (const given of wordsOf(`
    https://* https://*.org https://*.org:443 https://*.*.example.org https://app.*.example.org
    https://a*.example.org https://*a.example.org https://**.example.org http://*.example.org
    https://*.10.0.0.1 https://*.example.org. https://*.example.org/a *.example.org
  `)) {
    const [problem = ''] = portalOf({ ...domain, RETURN_ORIGINS: given }).problems;
    assert.match(problem, /^RETURN_ORIGINS must be a comma-separated list, each an origin/, given);
  }
});

test('addresses that can never work cause a warning', () => {
  for (const [host, shown] of [
    ['192.0.2.1', '192.0.2.1'],
    ['127.0.0.1:8443', '127.0.0.1'],
    ['[::1]:8443', '[::1]'],
    ['2130706433', '127.0.0.1'],
  ] as const) {
    const { portal, warnings } = portalOf({ SIGNIN_ORIGIN: `https://${host}` });
    assert.equal(portal?.hasPasskeys, false, host);
    assert.deepEqual(warnings, [
      `SIGNIN_ORIGIN has an IP address, ${shown}: browsers allow passkeys only under a host name.`,
    ]);
  }
  const named = portalOf({ SIGNIN_ORIGIN: LOGIN });
  assert.deepEqual([named.portal?.hasPasskeys, named.warnings], [true, []]);
  const programs = 'https://app.example.org, https://*.apps.example.org, https://app.example.net';
  const domain = { SIGNIN_ORIGIN: LOGIN, COOKIE_DOMAIN: 'example.org' };
  assert.deepEqual(portalOf({ ...domain, RETURN_ORIGINS: programs }).warnings, [
    'RETURN_ORIGINS has https://app.example.net, which gets no cookie of the sign-in: set COOKIE_DOMAIN to a domain above it and login.example.org.',
  ]);
  const same = portalOf({ SIGNIN_ORIGIN: LOGIN, RETURN_ORIGINS: `${LOGIN}:8443` });
  assert.deepEqual(same.warnings, []);
});

test('COOKIE_DOMAIN is read as browsers read it', () => {
  for (const given of ['example.org', '.example.org', 'Example.ORG', '.Login.example.org']) {
    const { portal, problems } = portalOf({ SIGNIN_ORIGIN: LOGIN, COOKIE_DOMAIN: given });
    const expected = given.toLowerCase().replace(/^\./, '');
    assert.deepEqual([portal?.cookieDomain, problems], [expected, []], given);
  }
  for (const given of ['org', '..example.org', 'example.org.', 'https://example.org', '*.org'])
    assert.deepEqual(portalOf({ SIGNIN_ORIGIN: LOGIN, COOKIE_DOMAIN: given }).problems, [
      'COOKIE_DOMAIN must be a domain with a dot.',
    ]);
  const address = { SIGNIN_ORIGIN: 'https://192.0.2.1', COOKIE_DOMAIN: '192.0.2.1' };
  assert.deepEqual(portalOf(address).problems, ['COOKIE_DOMAIN must be a domain with a dot.']);
});
