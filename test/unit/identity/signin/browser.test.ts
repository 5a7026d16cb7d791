import assert from 'node:assert/strict';
import test from 'node:test';
import {
  isFromPortal,
  returnAddress,
  setCookies,
} from '../../../../src/identity/signin/browser.ts';
import { isNavigation, originalAddress } from '../../../../src/identity/signin/verify.ts';
import type { Portal } from '../../../../src/identity/settings.ts';

const portal: Portal = {
  origin: 'https://login.example.org',
  host: 'login.example.org',
  returnOrigins: [
    'https://app.example.org',
    'https://wiki.example.org:8443',
    'http://localhost:5000',
  ],
  cookieDomain: 'example.org',
  secrets: [],
  requireSecondFactor: 'off',
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
  ];
  for (const [given = '', expected] of followed)
    assert.equal(returnAddress(given, portal), expected, given);
});

const OTHER_HOSTS = [
  'evil.example',
  'app.example.org.evil.example',
  'evilapp.example.org',
  'xapp.example.org',
  'example.org',
  'sub.app.example.org',
  'app-example.org',
  'app.example.organization',
  'app.example.com',
  'appexample.org',
  'app.example.org.',
  'wiki.example.org',
  'login.example.org.evil.example',
  'аpp.example.org',
  'app.examp1e.org',
  'app.example.org%2eevil.example',
  'app.example.org%00.evil.example',
  'app.example.org%20.evil.example',
  '[::1]',
  '127.0.0.1',
  '2130706433',
  '0x7f000001',
  'localhost',
  'localhost:5001',
  'app.example.org:8443',
  'app.example.org:80',
  'wiki.example.org:443',
  'wiki.example.org:08444',
  'app。evil。example',
  'evil.example:443',
];
const NOT_PLAIN = [
  'https://good@app.example.org/',
  'https://good:pass@app.example.org/',
  'https://:pass@app.example.org/',
  'https://@app.example.org/',
  'https://app.example.org@evil.example/',
  'https://app.example.org:443@evil.example/',
  'https://app.example.org%40evil.example/',
  'https://app.example.org:@evil.example/',
  'https://evil.example@app.example.org/',
  'https://app.example.org%2f@evil.example/',
  'https://app.example.org#@evil.example:x@y',
  'https://a@b@app.example.org/',
].filter((address) => !address.includes('#'));
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
  ];
  assert.ok(new Set(hostile).size >= 100, `${hostile.length} addresses`);
  for (const address of hostile)
    assert.equal(returnAddress(address, portal), null, JSON.stringify(address));
});

test('the original address comes from a trusted proxy only', () => {
  const headers = {
    'x-forwarded-proto': 'https',
    'x-forwarded-host': 'app.example.org',
    'x-forwarded-uri': '/a?b=c',
  };
  assert.equal(originalAddress(headers, true, portal), 'https://app.example.org/a?b=c');
  assert.equal(originalAddress(headers, false, portal), null);
  for (const changed of [
    { 'x-forwarded-host': 'evil.example' },
    { 'x-forwarded-host': 'app.example.org@evil.example' },
    { 'x-forwarded-host': 'app.example.org, evil.example' },
    { 'x-forwarded-host': 'app.example.org/', 'x-forwarded-uri': '' },
    { 'x-forwarded-proto': 'http' },
    { 'x-forwarded-proto': 'javascript' },
    { 'x-forwarded-uri': '.evil.example/' },
    { 'x-forwarded-uri': '@evil.example/' },
    { 'x-forwarded-uri': '' },
    { 'x-forwarded-host': '' },
  ])
    assert.equal(
      originalAddress({ ...headers, ...changed }, true, portal),
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
    { ...html, 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'iframe' },
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
