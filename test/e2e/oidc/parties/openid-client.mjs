import * as client from 'openid-client';
import { CALLBACK, CLIENT_ID, CLIENT_SECRET, HERE, ISSUER, SCOPE, serve } from './party.mjs';

const configuration = await client.discovery(
  new URL(ISSUER),
  CLIENT_ID,
  { client_secret: CLIENT_SECRET },
  client.ClientSecretBasic(CLIENT_SECRET),
  { execute: [client.allowInsecureRequests] },
);
let begun;
let tokens;
let sub;

serve({
  async '/login'() {
    const pkceCodeVerifier = client.randomPKCECodeVerifier();
    begun = {
      pkceCodeVerifier,
      expectedNonce: client.randomNonce(),
      expectedState: client.randomState(),
      idTokenExpected: true,
    };
    return client.buildAuthorizationUrl(configuration, {
      redirect_uri: CALLBACK,
      scope: SCOPE,
      nonce: begun.expectedNonce,
      state: begun.expectedState,
      code_challenge: await client.calculatePKCECodeChallenge(pkceCodeVerifier),
      code_challenge_method: 'S256',
    }).href;
  },
  async '/callback'(url) {
    tokens = await client.authorizationCodeGrant(configuration, url, begun);
    sub = tokens.claims().sub;
    return '/';
  },
  '/': () => client.fetchUserInfo(configuration, tokens.access_token, sub),
  async '/refresh'() {
    tokens = await client.refreshTokenGrant(configuration, tokens.refresh_token);
    return tokens.claims();
  },
  '/logout': () =>
    client.buildEndSessionUrl(configuration, {
      id_token_hint: tokens.id_token,
      post_logout_redirect_uri: `${HERE}/out`,
    }).href,
  '/out': () => ({}),
});
