import { InMemoryWebStorage, OidcClient, WebStorageStateStore } from 'oidc-client-ts';
import { askUserinfo, CALLBACK, CLIENT_ID, HERE, ISSUER, SCOPE, serve } from './party.mjs';

const client = new OidcClient({
  authority: ISSUER,
  client_id: CLIENT_ID,
  redirect_uri: CALLBACK,
  post_logout_redirect_uri: `${HERE}/out`,
  scope: SCOPE,
  stateStore: new WebStorageStateStore({ store: new InMemoryWebStorage() }),
});
let user;

serve({
  '/login': async () => (await client.createSigninRequest({})).url,
  async '/callback'(url) {
    user = await client.processSigninResponse(url.href);
    return '/';
  },
  '/': () => askUserinfo(user.access_token),
  async '/refresh'() {
    user = await client.useRefreshToken({ state: user });
    return user.profile;
  },
  '/logout': async () => (await client.createSignoutRequest({ id_token_hint: user.id_token })).url,
  '/out': () => ({}),
});
