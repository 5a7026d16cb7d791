/** Authorization requests that are wrong, and where the browser goes then. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { hostileAddresses } from '../../../support/hostile-addresses.ts';
import { answerIn, begin, CALLBACK, startProvider } from '../../../support/oidc.ts';
import { ORIGIN } from '../../../support/portal.ts';

const provider = await startProvider({ after });
const { visit } = provider;
const web = await provider.register('web');
const native = { id: 'native', secret: '' };
const created = await provider.run([
  ...['client', 'create', '--id', 'native', '--name', 'Native', '--public', '--no-consent'],
  ...['--redirect', 'http://127.0.0.1/cb,http://localhost:8000,app.example:/cb'],
]);
assert.equal(created.code, 0, created.stderr);
const ada = await provider.enter();
const { host: cookie } = await provider.signIn(ada.username);

/** Each parameter that is wrong, with the error that the program gets. */
const WRONG: ReadonlyArray<readonly [more: Record<string, string>, error: string]> = [
  [{ response_type: 'token' }, 'unsupported_response_type'],
  [{ response_type: 'code id_token' }, 'unsupported_response_type'],
  [{ response_mode: 'form_post' }, 'invalid_request'],
  [{ scope: 'profile' }, 'invalid_scope'],
  [{ scope: '' }, 'invalid_scope'],
  [{ registration: '{}' }, 'registration_not_supported'],
  [{ code_challenge_method: 'plain' }, 'invalid_request'],
  [{ code_challenge_method: '' }, 'invalid_request'],
  [{ code_challenge: '' }, 'invalid_request'],
  [{ code_challenge: '', code_challenge_method: '' }, 'invalid_request'],
  [{ code_challenge: 'short' }, 'invalid_request'],
  [{ prompt: 'none login' }, 'invalid_request'],
  [{ max_age: '-1' }, 'invalid_request'],
  [{ nonce: 'x'.repeat(513) }, 'invalid_request'],
  [{ nonce: 'a\0b' }, 'invalid_request'],
];

for (const [more, error] of WRONG) {
  test(`${JSON.stringify(more).slice(0, 60)} is ${error}, with state and issuer`, async () => {
    const answer = answerIn(await visit(begin(web, more).path, { cookie }));
    assert.deepEqual(
      [answer.get('error'), answer.get('state'), answer.get('iss'), answer.get('code')],
      [error, 'a state & more', ORIGIN, null],
    );
  });
}

test('no wrong parameter leads to an address that is not registered', async () => {
  const redirect_uri = 'https://evil.example/callback';
  for (const more of [{}, ...WRONG.map(([more]) => more), { prompt: 'none' }]) {
    const page = await visit(begin(web, { ...more, redirect_uri }).path, { cookie });
    assert.deepEqual([page.status, page.headers.get('location')], [400, null]);
    assert.match(page.text, /address that is not registered for &#34;Program web&#34;/);
  }
});

test('an unknown program, or two of them, gets a page', async () => {
  for (const client_id of ['', 'unknown', 'web\0', 'WEB', 'w'.repeat(300)]) {
    const page = await visit(begin(web, { client_id }).path, { cookie });
    assert.deepEqual([page.status, page.headers.get('location')], [400, null], client_id);
  }
  for (const name of ['client_id', 'redirect_uri']) {
    const path = `${begin(web).path}&${name}=x`;
    const page = await visit(path, { cookie });
    assert.deepEqual([page.status, page.headers.get('location')], [400, null]);
  }
});

test('another parameter that is given twice is told to the program', async () => {
  const answer = answerIn(await visit(`${begin(web).path}&state=other`, { cookie }));
  assert.equal(answer.get('error'), 'invalid_request');
});

test('an address must be the registered one, character by character (EnsureRegisteredRedirectUri)', async () => {
  const SIMILAR = [
    `${CALLBACK}/`,
    `${CALLBACK}?a=b`,
    `${CALLBACK}#a`,
    `${CALLBACK}%20`,
    'https://app.example.net/Callback',
    'https://APP.example.net/callback',
    'https://app.example.net:443/callback',
    'http://app.example.net/callback',
    'https://app.example.net.evil.example/callback',
    'https://app.example.net@evil.example/callback',
    'https://evil.example/?https://app.example.net/callback',
    'https://app.example.net/callback/../evil',
    '//app.example.net/callback',
    'javascript:alert(1)',
    '',
  ];
  for (const redirect_uri of SIMILAR) {
    const page = await visit(begin(web, { redirect_uri }).path, { cookie });
    assert.deepEqual([page.status, page.headers.get('location')], [400, null], redirect_uri);
  }
});

test('no hostile address is followed', async () => {
  const { host } = new URL(CALLBACK);
  const onThisMachine = hostileAddresses('127.0.0.1:80').filter((text) => /^http:/.test(text));
  const hostile = [...hostileAddresses(host), ...onThisMachine];
  const tryNext = async () => {
    for (let address = hostile.pop(); address !== undefined; address = hostile.pop()) {
      const program = address.includes('127.0.0.1') ? native : web;
      const page = await visit(begin(program, { redirect_uri: address }).path, { cookie });
      assert.deepEqual([page.status, page.headers.get('location')], [400, null], address);
      assert.ok(!page.text.includes('evil'), address);
    }
  };
  await Promise.all(Array.from({ length: 8 }, tryNext));
});

test('on the machine of the person, only the port is free', async () => {
  const accepted = [
    'http://127.0.0.1/cb',
    'http://127.0.0.1:49152/cb',
    'http://localhost:18000',
    'app.example:/cb',
  ];
  for (const redirect_uri of accepted) {
    const page = await visit(begin(native, { redirect_uri }).path, { cookie });
    // A program without a secret asks each time.
    assert.equal(page.status, 200, redirect_uri);
    assert.match(page.text, /Allow/);
  }
  const refused = [
    'http://127.0.0.1:99999/cb',
    'http://127.0.0.1:80@evil.example/cb',
    'http://127.0.0.1.evil.example/cb',
    'http://127.0.0.1:1/other',
    'https://127.0.0.1:1/cb',
    'http://localhost:80@evil.example',
    'http://localhost.evil.example:1',
    'http://[::1]:1/cb',
    'app.example:/other',
    'other.example:/cb',
  ];
  for (const redirect_uri of refused) {
    const page = await visit(begin(native, { redirect_uri }).path, { cookie });
    assert.deepEqual([page.status, page.headers.get('location')], [400, null], redirect_uri);
  }
});

test('the state comes back byte for byte', async () => {
  assert.equal((await visit(begin(web, { state: 'x'.repeat(65_536) }).path)).status, 431);
  for (const state of ['a+b c%20d', '\r\nSet-Cookie: a=b', '{"a":"\u2028"}', 'é😀', '\'"<>&']) {
    const page = await visit(begin(web, { state }).path, { cookie });
    assert.equal(answerIn(page).get('state'), state);
  }
});

test('a redirect sends no referrer, and pages cannot be framed', async () => {
  const page = await visit(begin(web).path, { cookie });
  assert.equal(page.headers.get('referrer-policy'), 'no-referrer');
  const asked = await visit(begin(native, { redirect_uri: 'app.example:/cb' }).path, { cookie });
  assert.match(asked.headers.get('content-security-policy') ?? '', /frame-ancestors 'none'/);
});
