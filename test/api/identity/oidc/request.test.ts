/**
 * Authorization requests, accepted or wrong, and where the browser goes then. Names in capitals are
 * those of the conformance plan for a basic provider (OIDCCBasicTestPlan of the OpenID Foundation).
 * Names of other tests of this folder end with those of its cases that need several requests.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { answerIn, begin, CALLBACK, readToken, startProvider } from '../../../support/oidc.ts';
import { ORIGIN, type Page } from '../../../support/portal.ts';
import { wordsOf } from '../../../support/words.ts';

const provider = await startProvider({ after });
const { show } = provider;
const web = await provider.register('web');
const created = await provider.run([
  ...['client', 'create', '--id', 'native', '--name', 'Native', '--public', '--no-consent'],
  ...['--redirect', 'http://127.0.0.1/cb,app.example:/cb'],
]);
assert.equal(created.code, 0, created.stderr);
const ada = await provider.addSignedIn({ first_name: 'Ada', last_name: 'Lovelace' });
const open = (path: string) => show(path, ada.host);
const assertStopped = ({ status, headers }: Page, what?: string) =>
  assert.deepEqual([status, headers.get('location')], [400, null], what);

type Parameters = Readonly<Record<string, string>>;
const PROFILE = wordsOf('name given_name family_name preferred_username updated_at');
const EMAIL = ['email', 'email_verified'];
const ALL = [...PROFILE, ...EMAIL, 'groups'];

/** With the claims that the program may know, besides `sub`. */
const ACCEPTED: Readonly<Record<string, readonly [Parameters, readonly string[]]>> = {
  EnsureRequestWithoutNonceSucceedsForCodeFlow: [{ nonce: '' }, ALL],
  ScopeProfile: [{ scope: 'openid profile' }, PROFILE],
  ScopeEmail: [{ scope: 'openid email' }, EMAIL],
  'ScopeAddress, ScopePhone': [{ scope: 'openid address phone' }, []],
  ScopeAll: [{ scope: 'openid profile email address phone' }, [...PROFILE, ...EMAIL]],
  PromptNoneLoggedIn: [{ prompt: 'none' }, ALL],
  MaxAge10000: [{ max_age: '10000' }, ALL],
  'EnsureRequestWithUnknownParameterSucceeds, LoginHint, UiLocales, ClaimsLocales, DisplayPopup': [
    { extra: 'x', login_hint: 'ada', ui_locales: 'de', claims_locales: 'de', display: 'popup' },
    ALL,
  ],
  'EnsureRequestWithAcrValuesSucceeds, ClaimsEssential': [
    { acr_values: '1 2', claims: '{"userinfo":{"name":{"essential":true}}}' },
    ALL,
  ],
};

for (const [name, [more, claims]] of Object.entries(ACCEPTED)) {
  test(name, async () => {
    const tokens = await provider.tokensFor(web, ada.host, more);
    const known = JSON.parse((await provider.userinfo(tokens.access_token)).text);
    assert.deepEqual(Object.keys(known).sort(), ['sub', ...claims].sort());
    const { nonce, auth_time } = readToken(tokens.id_token).claims;
    assert.equal(nonce, more['nonce'] === '' ? undefined : 'nonce-1');
    assert.equal(typeof auth_time, 'number');
  });
}

/** Each parameter that is wrong, with the error that the program gets. */
const WRONG: ReadonlyArray<readonly [Parameters, string]> = [
  [{ response_type: '' }, 'invalid_request'],
  [{ response_type: 'token' }, 'unsupported_response_type'],
  [{ response_type: 'code id_token' }, 'unsupported_response_type'],
  [{ response_mode: 'form_post' }, 'invalid_request'],
  [{ scope: 'profile' }, 'invalid_scope'],
  [{ scope: '' }, 'invalid_scope'],
  [{ request: 'eyJ' }, 'request_not_supported'],
  [{ request_uri: 'https://app.example.net/request' }, 'request_uri_not_supported'],
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
    const answer = answerIn(await open(begin(web, more).path));
    assert.deepEqual(
      [answer.get('error'), answer.get('state'), answer.get('iss'), answer.get('code')],
      [error, 'a state & more', ORIGIN, null],
    );
  });
}

test('nothing leads to an address that is not registered (EnsureRegisteredRedirectUri)', async () => {
  const redirect_uri = 'https://evil.example/callback';
  for (const more of [{}, ...WRONG.map(([more]) => more), { prompt: 'none' }]) {
    const page = await open(begin(web, { ...more, redirect_uri }).path);
    assertStopped(page, JSON.stringify(more));
    assert.match(page.text, /address that is not registered for &#34;Program web&#34;/);
  }
  for (const address of ['', `${CALLBACK}/`, 'http://127.0.0.1:49152/cb', 'app.example:/cb'])
    assertStopped(await open(begin(web, { redirect_uri: address }).path), address);
});

test('an unknown program, or two of them, gets a page', async () => {
  for (const client_id of ['', 'unknown', 'web\0', 'WEB', 'w'.repeat(300)])
    assertStopped(await open(begin(web, { client_id }).path), client_id);
  for (const name of ['client_id', 'redirect_uri'])
    assertStopped(await open(`${begin(web).path}&${name}=x`), name);
  const twice = answerIn(await open(`${begin(web).path}&state=other`));
  assert.equal(twice.get('error'), 'invalid_request', 'another parameter is told to the program');
});

test('a program without a secret is asked for each time, on any port of the machine', async () => {
  for (const redirect_uri of ['http://127.0.0.1:49152/cb', 'app.example:/cb']) {
    const { status, text, headers } = await open(begin({ id: 'native' }, { redirect_uri }).path);
    assert.equal(status, 200, redirect_uri);
    assert.match(text, /Allow/);
    assert.match(headers.get('content-security-policy') ?? '', /frame-ancestors 'none'/);
  }
});

test('the state comes back byte for byte, and the redirect sends no referrer', async () => {
  assert.equal((await provider.visit(begin(web, { state: 'x'.repeat(65_536) }).path)).status, 431);
  for (const state of ['a+b c%20d', '\r\nSet-Cookie: a=b', '{"a":"\u2028"}', 'é😀', '\'"<>&']) {
    const page = await open(begin(web, { state }).path);
    assert.equal(answerIn(page).get('state'), state);
    assert.equal(page.headers.get('referrer-policy'), 'no-referrer');
  }
});
