/**
 * Requests of the conformance plan for a basic provider (OIDCCBasicTestPlan of the OpenID
 * Foundation), under its names. Other tests of this folder have those that need more than one
 * request; their names end with the names of the cases.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { answerIn, begin, readToken, startProvider } from '../../../support/oidc.ts';
import { wordsOf } from '../../../support/words.ts';

const provider = await startProvider({ after });
const { visit } = provider;
const web = await provider.register('web');
const ada = await provider.enter({ first_name: 'Ada', last_name: 'Lovelace' });
const { host: cookie } = await provider.signIn(ada.username);

const PROFILE = wordsOf('name given_name family_name preferred_username updated_at');
const EMAIL = ['email', 'email_verified'];
const ALL = [...PROFILE, ...EMAIL, 'groups'];

type Case = readonly [more: Readonly<Record<string, string>>, claims: readonly string[]];

/** With the claims that the program may know, besides `sub`. */
const ACCEPTED: Readonly<Record<string, Case>> = {
  EnsureRequestWithoutNonceSucceedsForCodeFlow: [{ nonce: '' }, ALL],
  ScopeProfile: [{ scope: 'openid profile' }, PROFILE],
  ScopeEmail: [{ scope: 'openid email' }, EMAIL],
  ScopeAddress: [{ scope: 'openid address' }, []],
  ScopePhone: [{ scope: 'openid phone' }, []],
  ScopeAll: [{ scope: 'openid profile email address phone' }, [...PROFILE, ...EMAIL]],
  DisplayPage: [{ display: 'page' }, ALL],
  DisplayPopup: [{ display: 'popup' }, ALL],
  PromptNoneLoggedIn: [{ prompt: 'none' }, ALL],
  MaxAge10000: [{ max_age: '10000' }, ALL],
  EnsureRequestWithUnknownParameterSucceeds: [{ extra: 'foobar' }, ALL],
  LoginHint: [{ login_hint: 'ada@example.org' }, ALL],
  UiLocales: [{ ui_locales: 'de fr' }, ALL],
  ClaimsLocales: [{ claims_locales: 'de' }, ALL],
  EnsureRequestWithAcrValuesSucceeds: [{ acr_values: '1 2' }, ALL],
  ClaimsEssential: [{ claims: '{"userinfo":{"name":{"essential":true}}}' }, ALL],
  EnsureRequestWithValidPkceSucceeds: [{}, ALL],
};

for (const [name, [more, claims]] of Object.entries(ACCEPTED)) {
  test(name, async () => {
    const tokens = await provider.tokensFor(web, cookie, more);
    const known = JSON.parse((await provider.userinfo(tokens.access_token)).text);
    assert.deepEqual(Object.keys(known).sort(), ['sub', ...claims].sort());
    const { nonce, auth_time } = readToken(tokens.id_token).claims;
    assert.equal(nonce, more['nonce'] === '' ? undefined : 'nonce-1');
    assert.equal(typeof auth_time, 'number');
  });
}

/** With the error that the program gets. */
const REFUSED: Readonly<Record<string, Case>> = {
  ResponseTypeMissing: [{ response_type: '' }, ['invalid_request']],
  RequestObjectSupportedOrRejected: [{ request: 'eyJ' }, ['request_not_supported']],
  RequestUriSupportedOrRejected: [
    { request_uri: 'https://app.example.net/request' },
    ['request_uri_not_supported'],
  ],
};

for (const [name, [more, error]] of Object.entries(REFUSED)) {
  test(name, async () => {
    const answer = answerIn(await visit(begin(web, more).path, { cookie }));
    assert.deepEqual([[answer.get('error')], answer.get('code')], [error, null]);
  });
}
