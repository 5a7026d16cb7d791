/** Where a browser may return, by settings and programs, and what its headers and cookies mean. */
import assert from 'node:assert/strict';
import test from 'node:test';
import {
  isRegistered,
  redirectProblem,
  withQuery,
} from '../../../../src/identity/oidc/addresses.ts';
import { read } from '../../../../src/identity/settings.ts';
import { isFromPortal, setCookies } from '../../../../src/identity/signin/browser.ts';
import { programOf } from '../../../../src/identity/signin/pages.ts';
import { returnAddress } from '../../../../src/identity/signin/return-address.ts';
import { isNavigation, originalAddress } from '../../../../src/identity/signin/verify.ts';
import { Env } from '../../../../src/platform/runtime/env.ts';
import { hostileAddresses } from '../../../support/hostile-addresses.ts';
import { wordsOf } from '../../../support/words.ts';

const LOGIN = 'https://login.example.org';

/** @returns the settings of the sign-in pages, or the problems */
function portalOf(given: Readonly<Record<string, string>> = {}) {
  const database = { DATABASE_URL: 'postgres://localhost/d' };
  const env = new Env({ ...database, SIGNIN_PAGES: 'on', SIGNIN_ORIGIN: LOGIN, ...given });
  const { portal } = read(env);
  return { portal, problems: [...env.problems.values()], warnings: [...env.warnings] };
}

test('an origin is read as browsers write it', () => {
  for (const [given, expected] of [
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
  const problem =
    'SIGNIN_ORIGIN must be an origin such as https://login.example.org, without a path, and with https unless the host is localhost.';
  for (const given of [
    ...wordsOf(`
      login.example.org http://login.example.org https://login.example.org/login
      https://*.example.org https://login.example.org?x https://login.example.org#x
      https://user@login.example.org
      https://login.example.org. ftp://login.example.org
    `),
    ...['https://login.exam ple.org', 'https://login.exam\nple.org'],
  ])
    assert.deepEqual(portalOf({ SIGNIN_ORIGIN: given }).problems, [problem], given);
});

test('a wildcard in RETURN_ORIGINS stands for the first label alone, and never for a whole TLD', () => {
  const readList = (given: string) =>
    portalOf({ COOKIE_DOMAIN: 'example.org', RETURN_ORIGINS: given });
  for (const [given, expected] of [
    ['HTTPS://*.Apps.Example.org:8443/', 'https://*.apps.example.org:8443'],
    ['http://*.localhost:5000', 'http://*.localhost:5000'],
  ] as const) {
    const { portal, problems } = readList(given);
    assert.deepEqual([portal?.returnOrigins, problems], [[expected], []], given);
  }
  for (const given of wordsOf(`
    https://* https://*.org https://*.org:443 https://*.*.example.org https://app.*.example.org
    https://a*.example.org https://*a.example.org https://**.example.org http://*.example.org
    https://*.10.0.0.1 https://*.example.org. https://*.example.org/a *.example.org
  `)) {
    const [problem = ''] = readList(given).problems;
    assert.match(problem, /^RETURN_ORIGINS must be a comma-separated list, each an origin/, given);
  }
});

test('addresses that can never work cause a warning', () => {
  for (const [host, shown] of [
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
  const programs = 'https://app.example.org, https://*.apps.example.org, https://app.example.net';
  assert.deepEqual(portalOf({ COOKIE_DOMAIN: 'example.org', RETURN_ORIGINS: programs }).warnings, [
    'RETURN_ORIGINS has https://app.example.net, which gets no cookie of the sign-in: set COOKIE_DOMAIN to a domain above it and login.example.org.',
  ]);
  const { portal, warnings } = portalOf({ RETURN_ORIGINS: `${LOGIN}:8443` });
  assert.deepEqual([portal?.hasPasskeys, warnings], [true, []]);
});

test('COOKIE_DOMAIN is read as browsers read it', () => {
  for (const given of ['example.org', '.Example.ORG', '.Login.example.org']) {
    const { portal, problems } = portalOf({ COOKIE_DOMAIN: given });
    const expected = given.toLowerCase().replace(/^\./, '');
    assert.deepEqual([portal?.cookieDomain, problems], [expected, []], given);
  }
  for (const given of [
    ...['org', '..example.org', 'example.org.', 'https://example.org', '*.org'].map((domain) => ({
      COOKIE_DOMAIN: domain,
    })),
    { SIGNIN_ORIGIN: 'https://192.0.2.1', COOKIE_DOMAIN: '192.0.2.1' },
  ])
    assert.deepEqual(portalOf(given).problems, ['COOKIE_DOMAIN must be a domain with a dot.']);
});

const LISTED = wordsOf(`
  https://app.example.org https://wiki.example.org:8443 http://localhost:5000
  https://*.apps.example.org https://*.lab.example.org:8443
`);
const portal =
  portalOf({ COOKIE_DOMAIN: 'example.org', RETURN_ORIGINS: LISTED.join() }).portal ?? assert.fail();

/** The address as the parser writes it, if that differs. */
const FOLLOWED: Readonly<Record<string, string>> = {
  'https://app.example.org': 'https://app.example.org/',
  'https://APP.Example.ORG/Path?q=1&r=%2F#part': 'https://app.example.org/Path?q=1&r=%2F#part',
  'https://app.example.org:443/a': 'https://app.example.org/a',
  'https://wiki.example.org:8443/page?x=https://evil.example': '',
  'https://login.example.org/account': '',
  'http://localhost:5000/': '',
  'https://app.example.org/a/../b': 'https://app.example.org/b',
  'https://app.example.org/@evil.example': '',
  'https://app.example.org?u=a@b': 'https://app.example.org/?u=a@b',
  'https://app.example.org/ä': 'https://app.example.org/%C3%A4',
  'https://TWO-2.Apps.example.org:443/': 'https://two-2.apps.example.org/',
  'https://x_1.lab.example.org:8443/': '',
};

test('an address of a listed origin or of the portal is followed as the parser writes it', () => {
  for (const [given, expected] of Object.entries(FOLLOWED))
    assert.equal(returnAddress(given, portal), expected || given);
});

const OTHER_HOSTS = wordsOf(`
  evilapp.example.org example.org sub.app.example.org
  app-example.org app.example.organization app.example.com appexample.org app.example.org.
  wiki.example.org аpp.example.org apps.example.org *.apps.example.org %2a.apps.example.org
  one.two.apps.example.org .apps.example.org one.apps.example.org. one.apps.example.org.evil.example
  one.apps.example.org:8443 oneapps.example.org evil.example#.apps.example.org
  evil.example?.apps.example.org one.lab.example.org 127.0.0.1.apps.example.org
  app.example.org%00.evil.example app.example.org%20.evil.example
  [::1] 127.0.0.1 2130706433 0x7f000001 localhost localhost:5001 app.example.org:8443
  app.example.org:80 wiki.example.org:443 wiki.example.org:08444 app。evil。example
  good@app.example.org good:pass@app.example.org :pass@app.example.org @app.example.org
  app.example.org:@evil.example evil.example@app.example.org app.example.org%2f@evil.example
  a@b@app.example.org
`);
const OTHER_ADDRESSES = [
  ...wordsOf(`
    javascript://app.example.org/%0aalert(1) JaVaScRiPt:alert(1) vbscript:msgbox
    data:text/html,<script>alert(1)</script> data://app.example.org/,x file://app.example.org/
    ftp://app.example.org/ wss://app.example.org/ blob:https://app.example.org/1 about:blank
    mailto:a@app.example.org http://app.example.org/ http://login.example.org/ x:
    view-source:https://app.example.org/ intent://app.example.org/#Intent;end
    / // /// /account \\/evil.example
    app.example.org https: https:/ https:// https:app.example.org https:/app.example.org
    https:///app.example.org https:\\\\app.example.org https:/\\app.example.org
    https://app.example.org\\@evil.example https://app.example.org\\.evil.example
    https://[app.example.org]/ https://app.example.org:99999/ https://app.example.org:-1/
    https://%61pp.example.org\\ https://evil.example\\.apps.example.org/ null
    ?return_to=https://app.example.org #https://app.example.org
  `),
  ...['', ' ', '/\t/evil.example', '/\n/evil.example', 'java\nscript:alert(1)'],
  ...['https://app.example.org\t/', 'https://app.example.org\r\nLocation:x', ` ${LOGIN}`],
  ...['https://app.example.org ', 'https://app.example.org/a b', 'https://app.exa mple.org/'],
  ...['https://app.example.org/\u0000', 'https://app.example.org/\u0085', `\u0000${LOGIN}`],
  ...['https://app.example.org/\u2028', 'https://evil.example\t.apps.example.org/'],
  ...['https ://app.example.org', `https://app.example.org/${'a'.repeat(2_048)}`],
  '\ufeffhttps://a.b',
];

test('no other address is followed', () => {
  const hosts = OTHER_HOSTS.map((host) => `https://${host}/`);
  for (const address of [...hosts, ...OTHER_ADDRESSES, ...hostileAddresses('app.example.org')])
    assert.equal(returnAddress(address, portal), null, JSON.stringify(address));
});

/** Where a browser returns to, by what a proxy sends. */
const returnOf = (proto: string, host: string, uri: string) => {
  const headers = { 'x-forwarded-proto': proto, 'x-forwarded-host': host, 'x-forwarded-uri': uri };
  return returnAddress(originalAddress(headers), portal);
};
const APP = 'app.example.org';

test('the original address is read as the proxy nearest to the browser wrote it', () => {
  for (const [proto, host] of [
    ['https', APP],
    // Two proxies, each of which adds a value, as one header or as two.
    ['https, http', APP],
    ['https,http', `${APP},127.0.0.1:5000`],
    [', https', ` , ${APP}`],
    // Other spellings.
    ['HTTPS', 'APP.Example.ORG'],
    ['https', `${APP}.:443`],
  ] as const)
    assert.equal(returnOf(proto, host, '/a?b=c'), 'https://app.example.org/a?b=c', proto + host);
  assert.equal(returnOf('HTTPS', 'WIKI.example.org.:8443', '/'), 'https://wiki.example.org:8443/');
  // What browsers and programs leave as it is in an address.
  for (const [uri, expected] of [
    ['/a?b=c,  /inner?x', '/a?b=c'],
    ['/x?path=C:\\Temp', '/x?path=C:%5CTemp'],
    ['/a\\b', '/a%5Cb'],
    ['/a b?c d', '/a%20b?c%20d'],
    ['/a\tb', '/a%09b'],
    ['/a#b', '/a%23b'],
    ['/f\xc3\xbcr?q=\xc3\x84', '/f%C3%BCr?q=%C3%84'],
    ['/a,b?c=d,e,f', '/a,b?c=d,e,f'],
    ['/a%20b?c=%2F%26', '/a%20b?c=%2F%26'],
    ['//evil.example/', '//evil.example/'],
  ] as const)
    assert.equal(returnOf('https', APP, uri), `https://app.example.org${expected}`);
});

test('what is not the address of a listed origin is not returned to', () => {
  for (const host of [
    ...['evil.example', `${APP}@evil.example`, `evil.example, ${APP}`, `${APP}..`, `.${APP}`, ''],
    ...[`evil.example#${APP}`, `evil.example\\${APP}`, `${APP}:8443`],
  ])
    assert.equal(returnOf('https', host, '/a?b=c'), null, host);
  for (const proto of ['http, https', 'http', 'javascript'])
    assert.equal(returnOf(proto, APP, '/a'), null, proto);
  for (const uri of ['https://app.example.org/a', ', /a', '.evil.example/', '@evil.example/', ''])
    assert.equal(returnOf('https', APP, uri), null, uri);
  assert.equal(returnOf('https', `${APP}/`, ''), null);
});

const CALLBACK = 'https://app.example.net/callback';
const NATIVE = ['http://127.0.0.1/cb', 'http://localhost:8000', 'app.example:/cb'];

test('an address must be the registered one, character by character', () => {
  assert.equal(isRegistered(CALLBACK, ['https://app.example.net/other', CALLBACK]), true);
  const similar = wordsOf(`
    ${CALLBACK}/ ${CALLBACK}?a=b ${CALLBACK}#a ${CALLBACK}%20 https://app.example.net/Callback
    https://APP.example.net/callback https://app.example.net:443/callback
    http://app.example.net/callback https://app.example.net.evil.example/callback
    https://app.example.net@evil.example/callback https://app.example.net/callback/../evil
    https://evil.example/?https://app.example.net/callback //app.example.net/callback
    javascript:alert(1)
  `);
  for (const address of ['', ...similar, ...hostileAddresses('app.example.net')])
    assert.equal(isRegistered(address, [CALLBACK]), false, address);
});

test('on the machine of the person, only the port is free', () => {
  for (const address of ['http://127.0.0.1:49152/cb', 'http://localhost:18000', ...NATIVE])
    assert.equal(isRegistered(address, NATIVE), true, address);
  const refused = wordsOf(`
    http://127.0.0.1:99999/cb http://127.0.0.1:80@evil.example/cb
    http://127.0.0.1.evil.example/cb http://127.0.0.1:1/other https://127.0.0.1:1/cb
    http://localhost:80@evil.example http://localhost.evil.example:1 http://[::1]:1/cb
    app.example:/other other.example:/cb
  `);
  for (const address of [...refused, ...hostileAddresses('127.0.0.1:80')])
    assert.equal(isRegistered(address, NATIVE), false, address);
});

test('an address is registered only if nobody else can take it', () => {
  for (const address of [CALLBACK, ...NATIVE, 'http://[::1]:8000/cb'])
    assert.equal(redirectProblem(address), null, address);
  for (const address of [
    ...wordsOf('http://app.example.net/callback https://*.example.net/ https://app.example.net/#a'),
    ...wordsOf('https://ada@app.example.net/ javascript:alert(1) data:text/html,x nonsense'),
    ...wordsOf('http://127.0.0.1.evil.example/ http://localhost@evil.example/ app:/cb'),
    ...['https://app.example.net/a b', 'https://ä.example/', 'https://:x@app.example.net/'],
    `https://a.example/${'a'.repeat(2_048)}`,
  ])
    assert.notEqual(redirectProblem(address), null, address);
});

test('an answer is added to the query of an address', () => {
  for (const [address, answer, expected] of [
    [CALLBACK, { code: 'a&b' }, `${CALLBACK}?code=a%26b`],
    [
      `${CALLBACK}?at=1`,
      { code: 'x', iss: LOGIN },
      `${CALLBACK}?at=1&code=x&iss=${encodeURIComponent(LOGIN)}`,
    ],
    [CALLBACK, {}, CALLBACK],
  ] as const)
    assert.equal(withQuery(address, answer), expected);
});

const HTML = { accept: 'text/html,application/xhtml+xml;q=0.9,*/*;q=0.8' };
const of = (mode: string, dest?: string) => ({
  'sec-fetch-mode': mode,
  ...(dest && { 'sec-fetch-dest': dest }),
});
const htmlOf = (mode: string, dest?: string) => ({ ...HTML, ...of(mode, dest) });
const by = (method: string) => ({ ...HTML, 'x-forwarded-method': method });
const NAVIGATIONS = [
  ...[HTML, of('navigate', 'document'), htmlOf('navigate', 'document'), of('navigate')],
  ...[by('HEAD'), by('GET, GET')],
  // A service worker that passes the navigation on.
  ...[htmlOf('navigate', 'empty'), htmlOf('same-origin', 'empty')],
];
const OTHER_REQUESTS = [
  ...[{}, { accept: '*/*' }, { accept: 'application/json' }],
  { ...HTML, 'sec-fetch-dest': 'document' },
  ...[by('POST'), by('POST, GET'), by('get')],
  { ...of('navigate', 'document'), 'x-forwarded-method': 'POST' },
  { ...htmlOf('navigate', 'empty'), 'x-forwarded-method': 'PUT' },
  { accept: '*/*', ...of('same-origin', 'empty') },
  ...['iframe', 'frame', 'embed', 'object'].map((dest) => htmlOf('navigate', dest)),
  ...[htmlOf('same-origin', 'image'), htmlOf('cors', 'empty'), htmlOf('no-cors', 'image')],
  ...[htmlOf('websocket', 'empty'), htmlOf('websocket')],
];

test('only a person who opens a page is redirected', () => {
  for (const headers of NAVIGATIONS) assert.ok(isNavigation(headers), JSON.stringify(headers));
  for (const headers of OTHER_REQUESTS) assert.ok(!isNavigation(headers), JSON.stringify(headers));
});

test('a form counts as sent by the portal only if the browser says so', () => {
  const site = (name: string) => ({ 'sec-fetch-site': name });
  const own = { origin: LOGIN };
  for (const headers of [site('same-origin'), own, { ...own, ...site('same-origin') }])
    assert.equal(isFromPortal(headers, portal), true, JSON.stringify(headers));
  for (const headers of [
    ...[{}, { origin: 'null' }, { origin: 'https://app.example.org' }, { origin: `${LOGIN}.a.b` }],
    ...[site('same-site'), site('cross-site'), site('none'), { origin: '' }],
    ...['cross-site', 'same-site'].map((name) => ({ ...own, ...site(name) })),
    { origin: 'https://evil.example', ...site('same-origin') },
  ])
    assert.equal(isFromPortal(headers, portal), false, JSON.stringify(headers));
});

test('cookies are removed with the attributes they were set with', () => {
  const attributes = 'Path=/; Secure; HttpOnly; SameSite=Lax';
  assert.deepEqual(setCookies({ host: 'a', domain: 'b' }, portal), [
    `__Host-gatehouse=a; ${attributes}`,
    `__Secure-gatehouse=b; Domain=example.org; ${attributes}`,
  ]);
  const none = { host: '', domain: '' };
  assert.deepEqual(setCookies(none, portal), [
    `__Host-gatehouse=; ${attributes}; Max-Age=0`,
    `__Secure-gatehouse=; Domain=example.org; ${attributes}; Max-Age=0`,
  ]);
  assert.equal(setCookies(none, { ...portal, cookieDomain: null }).length, 1);
});

/** What is named first counts: most call themselves Chrome or Safari, too. */
const PROGRAMS: Readonly<Record<string, string>> = {
  'Windows Chrome/126 Safari/537': 'Chrome on Windows',
  'Windows Chrome/126 Safari/537 Edg/126': 'Edge on Windows',
  'Windows Chrome/126 Safari/537 OPR/112': 'Opera on Windows',
  'Windows Chrome/126 Safari/537 Vivaldi/6.8': 'Vivaldi on Windows',
  'Windows Chrome/126 YaBrowser/24.6 Safari/537': 'Yandex on Windows',
  'Linux Gecko/20100101 Firefox/128.0': 'Firefox on Linux',
  'CrOS x86_64 Chrome/126 Safari/537': 'Chrome on ChromeOS',
  'Mac OS X Version/17.5 Safari/605': 'Safari on Mac OS X',
  'Mac OS X Version/17.5 Safari/605 Ddg/17.5': 'DuckDuckGo on Mac OS X',
  'Linux; Android 10 Chrome/126 Safari/537 EdgA/126': 'Edge on Android',
  'Linux; Android 10 SamsungBrowser/25 Chrome/121 Safari/537': 'Samsung Internet on Android',
  'iPhone OS 17_5 like Mac OS X Version/17.5 Safari/604': 'Safari on iPhone',
  'iPhone OS 17_5 like Mac OS X CriOS/126 Safari/604': 'Chrome on iPhone',
  'iPhone OS 17_5 like Mac OS X FxiOS/128 Safari/605': 'Firefox on iPhone',
  'iPhone OS 17_5 like Mac OS X Focus/8.1': 'Firefox on iPhone',
  'iPhone OS 17_5 like Mac OS X EdgiOS/126 Safari/604': 'Edge on iPhone',
  'iPhone OS 17_5 like Mac OS X Safari/604 OPT/5': 'Opera on iPhone',
  'iPhone OS 17_5 like Mac OS X DuckDuckGo/7 Safari/605': 'DuckDuckGo on iPhone',
  'iPad; CPU OS 17_5 like Mac OS X CriOS/126 Safari/604': 'Chrome on iPad',
  'curl/8.8.0': 'curl/8.8.0',
  '': 'Unknown program',
};

test('a program is called as a person knows it', () => {
  for (const [agent, name] of Object.entries(PROGRAMS)) assert.equal(programOf(agent), name, agent);
});
