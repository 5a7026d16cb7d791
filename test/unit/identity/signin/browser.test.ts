import assert from 'node:assert/strict';
import test from 'node:test';
import { isFromPortal, setCookies } from '../../../../src/identity/signin/browser.ts';
import { returnAddress } from '../../../../src/identity/signin/return-address.ts';
import { isNavigation, originalAddress } from '../../../../src/identity/signin/verify.ts';
import type { Portal } from '../../../../src/identity/settings.ts';
import { hostileAddresses } from '../../../support/hostile-addresses.ts';
import { wordsOf } from '../../../support/words.ts';

const portal: Portal = {
  origin: 'https://login.example.org',
  host: 'login.example.org',
  hasOidc: false,
  hasPasskeys: true,
  returnOrigins: [
    'https://app.example.org',
    'https://wiki.example.org:8443',
    'http://localhost:5000',
    'https://*.apps.example.org',
    'https://*.lab.example.org:8443',
  ],
  cookieDomain: 'example.org',
  requireSecondFactor: 'off',
  staySeconds: 0,
  linkSeconds: 3_600,
};

test('an address of a listed origin or of the portal is followed as the parser writes it', () => {
  const followed = [
    ['https://app.example.org', 'https://app.example.org/'],
    ['https://app.example.org/', 'https://app.example.org/'],
    ['https://APP.Example.ORG/Path?q=1&r=%2F#part', 'https://app.example.org/Path?q=1&r=%2F#part'],
    ['https://app.example.org:443/a', 'https://app.example.org/a'],
    [
      'https://wiki.example.org:8443/page?x=https://evil.example',
      'https://wiki.example.org:8443/page?x=https://evil.example',
    ],
    ['https://login.example.org/account', 'https://login.example.org/account'],
    ['http://localhost:5000/', 'http://localhost:5000/'],
    ['https://app.example.org/a/../b', 'https://app.example.org/b'],
    ['https://app.example.org/@evil.example', 'https://app.example.org/@evil.example'],
    ['https://app.example.org?u=a@b', 'https://app.example.org/?u=a@b'],
    ['https://app.example.org/ä', 'https://app.example.org/%C3%A4'],
    ['https://one.apps.example.org/a', 'https://one.apps.example.org/a'],
    ['https://TWO-2.Apps.example.org:443/', 'https://two-2.apps.example.org/'],
    ['https://x_1.lab.example.org:8443/', 'https://x_1.lab.example.org:8443/'],
  ];
  for (const [given = '', expected] of followed)
    assert.equal(returnAddress(given, portal), expected, given);
});

const OTHER_HOSTS = wordsOf(`
  evil.example app.example.org.evil.example evilapp.example.org xapp.example.org example.org
  sub.app.example.org app-example.org app.example.organization app.example.com appexample.org
  app.example.org. wiki.example.org login.example.org.evil.example аpp.example.org app.examp1e.org
  apps.example.org *.apps.example.org %2a.apps.example.org one.two.apps.example.org
  .apps.example.org one.apps.example.org. one.apps.example.org.evil.example
  one.apps.example.org:8443 oneapps.example.org evil.example#.apps.example.org
  evil.example?.apps.example.org one.lab.example.org 127.0.0.1.apps.example.org
  app.example.org%2eevil.example app.example.org%00.evil.example app.example.org%20.evil.example
  [::1] 127.0.0.1 2130706433 0x7f000001 localhost localhost:5001 app.example.org:8443
  app.example.org:80 wiki.example.org:443 wiki.example.org:08444 app。evil。example evil.example:443
`);
const NOT_PLAIN = wordsOf(`
  https://good@app.example.org/ https://good:pass@app.example.org/ https://:pass@app.example.org/
  https://@app.example.org/ https://app.example.org@evil.example/
  https://app.example.org:443@evil.example/ https://app.example.org%40evil.example/
  https://app.example.org:@evil.example/ https://evil.example@app.example.org/
  https://app.example.org%2f@evil.example/ https://app.example.org#@evil.example:x@y
  https://a@b@app.example.org/
`).filter((address) => !address.includes('#'));
const OTHER_SCHEMES = [
  'javascript:alert(1)',
  'javascript://app.example.org/%0aalert(1)',
  'java\nscript:alert(1)',
  'JaVaScRiPt:alert(1)',
  'data:text/html,<script>alert(1)</script>',
  'data://app.example.org/,x',
  'vbscript:msgbox',
  'file:///etc/passwd',
  'file://app.example.org/',
  'ftp://app.example.org/',
  'ws://app.example.org/',
  'wss://app.example.org/',
  'blob:https://app.example.org/1',
  'about:blank',
  'mailto:a@app.example.org',
  'http://app.example.org/',
  'http://login.example.org/',
  'view-source:https://app.example.org/',
  'intent://app.example.org/#Intent;end',
  'x:',
];
const NOT_ADDRESSES = [
  '',
  ' ',
  '/',
  '//',
  '///',
  '/account',
  '//evil.example',
  '///evil.example',
  '////evil.example',
  '/\\evil.example',
  '\\\\evil.example',
  '\\/evil.example',
  '/\t/evil.example',
  '/\n/evil.example',
  '/\r/evil.example',
  '/%09/evil.example',
  '/%5cevil.example',
  '/%2f%2fevil.example',
  'evil.example',
  'app.example.org',
  'https:',
  'https:/',
  'https://',
  'https:app.example.org',
  'https:/app.example.org',
  'https:///app.example.org',
  'https:\\\\app.example.org',
  'https:/\\app.example.org',
  'https://app.example.org\\@evil.example',
  'https://app.example.org\\.evil.example',
  'https://app.example.org\t/',
  'https://app.example.org\n/',
  'https://app.example.org\r\nLocation:x',
  '\thttps://app.example.org',
  ' https://app.example.org',
  'https://app.example.org ',
  'https://app.example.org/a b',
  'https://app.example.org/\u0000',
  'https://app.example.org/\u007f',
  'https://app.example.org/\u0085',
  'https://app.example.org/\u2028',
  'https://[app.example.org]/',
  'https://app.example.org:99999/',
  'https://app.example.org:-1/',
  'https://app.exa mple.org/',
  'https://app.example.org,evil.example/x y',
  'https://%61pp.example.org\\',
  'https://evil.example\\.apps.example.org/',
  'https://evil.example\t.apps.example.org/',
  'null',
  'undefined',
  '?return_to=https://app.example.org',
  '#https://app.example.org',
  `https://app.example.org/${'a'.repeat(2_048)}`,
  '\u0000https://app.example.org',
  '\ufeffhttps://app.example.org',
  'https ://app.example.org',
];

test('no other address is followed', () => {
  const hostile = [
    ...OTHER_HOSTS.map((host) => `https://${host}/`),
    ...NOT_PLAIN,
    ...OTHER_SCHEMES,
    ...NOT_ADDRESSES,
    ...hostileAddresses('app.example.org'),
  ];
  assert.ok(new Set(hostile).size >= 800, `${hostile.length} addresses`);
  for (const address of hostile)
    assert.equal(returnAddress(address, portal), null, JSON.stringify(address));
});

/** Where a browser returns to. */
const returnOf = (proto: string, host: string, uri: string) =>
  returnAddress(
    originalAddress({
      'x-forwarded-proto': proto,
      'x-forwarded-host': host,
      'x-forwarded-uri': uri,
    }),
    portal,
  );

test('the original address is read as the proxy nearest to the browser wrote it', () => {
  const page = 'https://app.example.org/a?b=c';
  for (const [proto, host, uri, expected] of [
    ['https', 'app.example.org', '/a?b=c', page],
    // Two proxies, each of which adds a value, as one header or as two.
    ['https, http', 'app.example.org', '/a?b=c', page],
    ['https,http', 'app.example.org,127.0.0.1:5000', '/a?b=c, /inner?x', page],
    ['https , http', 'app.example.org , app:5000', '/a?b=c,  /a?b=c', page],
    [', https', ' , app.example.org', '/a?b=c', page],
    // Other spellings.
    ['HTTPS', 'APP.Example.ORG', '/a?b=c', page],
    ['https', 'app.example.org.', '/a?b=c', page],
    ['https', 'app.example.org:443', '/a?b=c', page],
    ['https', 'app.example.org.:443', '/a?b=c', page],
    ['HTTPS', 'WIKI.example.org.:8443', '/', 'https://wiki.example.org:8443/'],
    ['HTTP', 'localhost:5000', '/', 'http://localhost:5000/'],
    // What browsers and programs leave as it is in an address.
    ['https', 'app.example.org', '/x?path=C:\\Temp', 'https://app.example.org/x?path=C:%5CTemp'],
    ['https', 'app.example.org', '/a\\b', 'https://app.example.org/a%5Cb'],
    ['https', 'app.example.org', '/a b?c d', 'https://app.example.org/a%20b?c%20d'],
    ['https', 'app.example.org', '/a\tb', 'https://app.example.org/a%09b'],
    ['https', 'app.example.org', '/a#b', 'https://app.example.org/a%23b'],
    [
      'https',
      'app.example.org',
      '/f\xc3\xbcr?q=\xc3\x84',
      'https://app.example.org/f%C3%BCr?q=%C3%84',
    ],
    ['https', 'app.example.org', '/a,b,/c?d=e,f', 'https://app.example.org/a,b,/c?d=e,f'],
    ['https', 'app.example.org', '/a%20b?c=%2F%26', 'https://app.example.org/a%20b?c=%2F%26'],
    ['https', 'app.example.org', '//evil.example/', 'https://app.example.org//evil.example/'],
  ] as const)
    assert.equal(returnOf(proto, host, uri), expected, JSON.stringify([proto, host, uri]));
});

test('what is not the address of a listed origin is not returned to', () => {
  const headers = {
    'x-forwarded-proto': 'https',
    'x-forwarded-host': 'app.example.org',
    'x-forwarded-uri': '/a?b=c',
  };
  for (const changed of [
    { 'x-forwarded-host': 'evil.example' },
    { 'x-forwarded-host': 'app.example.org@evil.example' },
    { 'x-forwarded-host': 'evil.example, app.example.org' },
    { 'x-forwarded-host': 'app.example.org..' },
    { 'x-forwarded-host': '.app.example.org' },
    { 'x-forwarded-host': 'evil.example#app.example.org' },
    { 'x-forwarded-host': 'evil.example\\app.example.org' },
    { 'x-forwarded-host': 'app.example.org:8443' },
    { 'x-forwarded-proto': 'http, https' },
    { 'x-forwarded-uri': 'https://app.example.org/a' },
    { 'x-forwarded-uri': ', /a' },
    { 'x-forwarded-host': 'app.example.org/', 'x-forwarded-uri': '' },
    { 'x-forwarded-proto': 'http' },
    { 'x-forwarded-proto': 'javascript' },
    { 'x-forwarded-uri': '.evil.example/' },
    { 'x-forwarded-uri': '@evil.example/' },
    { 'x-forwarded-uri': '' },
    { 'x-forwarded-host': '' },
  ])
    assert.equal(
      returnAddress(originalAddress({ ...headers, ...changed }), portal),
      null,
      JSON.stringify(changed),
    );
});

test('only a person who opens a page is redirected', () => {
  const html = { accept: 'text/html,application/xhtml+xml;q=0.9,*/*;q=0.8' };
  const navigation = { 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'document' };
  for (const headers of [
    html,
    navigation,
    { ...html, ...navigation },
    { ...html, 'x-forwarded-method': 'HEAD' },
    { ...html, 'x-forwarded-method': 'GET, GET' },
    // A service worker that passes the navigation on.
    { ...html, 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'empty' },
    { ...html, 'sec-fetch-mode': 'same-origin', 'sec-fetch-dest': 'empty' },
    { 'sec-fetch-mode': 'navigate' },
  ]) {
    assert.equal(isNavigation(headers), true, JSON.stringify(headers));
  }
  for (const headers of [
    {},
    { accept: '*/*' },
    { accept: 'application/json' },
    { ...html, 'x-forwarded-method': 'POST' },
    { ...navigation, 'x-forwarded-method': 'POST' },
    { ...html, 'sec-fetch-mode': 'cors', 'sec-fetch-dest': 'empty' },
    { ...html, 'x-forwarded-method': 'POST, GET' },
    { ...html, 'x-forwarded-method': 'get' },
    {
      ...html,
      'sec-fetch-mode': 'navigate',
      'sec-fetch-dest': 'empty',
      'x-forwarded-method': 'PUT',
    },
    { accept: '*/*', 'sec-fetch-mode': 'same-origin', 'sec-fetch-dest': 'empty' },
    { ...html, 'sec-fetch-mode': 'same-origin', 'sec-fetch-dest': 'image' },
    { ...html, 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'iframe' },
    { ...html, 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'frame' },
    { ...html, 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'embed' },
    { ...html, 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'object' },
    { ...html, 'sec-fetch-mode': 'websocket', 'sec-fetch-dest': 'empty' },
    { ...html, 'sec-fetch-dest': 'document' },
    { ...html, 'sec-fetch-mode': 'websocket' },
    { ...html, 'sec-fetch-dest': 'image', 'sec-fetch-mode': 'no-cors' },
    { accept: 'text/event-stream' },
  ])
    assert.equal(isNavigation(headers), false, JSON.stringify(headers));
});

test('a form counts as sent by the portal only if the browser says so', () => {
  const own = portal.origin;
  for (const headers of [
    { 'sec-fetch-site': 'same-origin' },
    { origin: own },
    { origin: own, 'sec-fetch-site': 'same-origin' },
  ])
    assert.equal(isFromPortal(headers, portal), true, JSON.stringify(headers));
  for (const headers of [
    {},
    { origin: 'null' },
    { origin: 'https://app.example.org' },
    { origin: `${own}.evil.example` },
    { 'sec-fetch-site': 'same-site' },
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'none' },
    { origin: own, 'sec-fetch-site': 'cross-site' },
    { origin: own, 'sec-fetch-site': 'same-site' },
    { origin: 'https://evil.example', 'sec-fetch-site': 'same-origin' },
    { origin: '' },
  ])
    assert.equal(isFromPortal(headers, portal), false, JSON.stringify(headers));
});

test('cookies are removed with the attributes they were set with', () => {
  assert.deepEqual(setCookies({ host: 'a', domain: 'b' }, portal), [
    '__Host-gatehouse=a; Path=/; Secure; HttpOnly; SameSite=Lax',
    '__Secure-gatehouse=b; Domain=example.org; Path=/; Secure; HttpOnly; SameSite=Lax',
  ]);
  const none = { host: '', domain: '' };
  assert.deepEqual(setCookies(none, { ...portal, cookieDomain: null }), [
    '__Host-gatehouse=; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=0',
  ]);
  assert.match(
    setCookies(none, portal)[1] ?? '',
    /^__Secure-gatehouse=; Domain=example\.org; .*Max-Age=0$/,
  );
});
