import express from 'express';
import session from 'express-session';
import oidc from 'express-openid-connect';
import { CLIENT_ID, CLIENT_SECRET, HERE, ISSUER, PORT, SCOPE } from './party.mjs';

const { auth } = oidc;
const options = {
  issuerBaseURL: ISSUER,
  baseURL: HERE,
  clientID: CLIENT_ID,
  clientSecret: CLIENT_SECRET,
  secret: 'not a secret, but of the length that is asked for',
  authRequired: false,
  idpLogout: true,
  routes: { postLogoutRedirect: `${HERE}/out` },
  authorizationParams: { response_type: 'code', scope: SCOPE },
  backchannelLogout: { store: new session.MemoryStore() },
};

express()
  .use(auth(options))
  .get('/', async ({ oidc }, response) => {
    if (oidc.isAuthenticated()) response.json(await oidc.fetchUserInfo());
    else response.status(401).send('not signed in');
  })
  .get('/quiet', ({ oidc }, response) =>
    response.status(oidc.isAuthenticated() ? 200 : 401).json({}),
  )
  .get('/refresh', async ({ oidc }, response) => {
    await oidc.accessToken.refresh();
    response.json(oidc.idTokenClaims);
  })
  .get('/out', (_request, response) => response.json({}))
  .use((error, _request, response, _next) => response.status(401).send(error.stack))
  .listen(PORT, '127.0.0.1');
