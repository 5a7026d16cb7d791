import { createServer } from 'node:http';
import { Auth } from '@auth/core';
import {
  askUserinfo,
  CLIENT_ID,
  CLIENT_SECRET,
  HERE,
  ISSUER,
  logoutAddress,
  PORT,
  SCOPE,
} from './party.mjs';

const config = {
  basePath: '/auth',
  secret: 'not a secret',
  trustHost: true,
  providers: [
    {
      id: 'gatehouse',
      name: 'Gatehouse',
      type: 'oidc',
      issuer: ISSUER,
      clientId: CLIENT_ID,
      clientSecret: CLIENT_SECRET,
      checks: ['pkce', 'state', 'nonce'],
      authorization: { params: { scope: SCOPE } },
    },
  ],
  callbacks: {
    jwt: ({ token, account }) => ({ ...token, ...(account && { account }) }),
    session: ({ session, token }) => ({ ...session, account: token.account }),
  },
};

async function respond(request, path) {
  const headers = { cookie: request.headers.cookie ?? '' };
  const ask = (to, init = {}) =>
    Auth(new Request(HERE + to, { ...init, headers: { ...headers, ...init.headers } }), config);
  if (path.startsWith('/auth/')) return ask(path);
  if (path === '/login') {
    const asked = await ask('/auth/csrf');
    const { csrfToken } = await asked.json();
    const cookie = asked.headers.getSetCookie().map((text) => text.split(';')[0]);
    return ask('/auth/signin/gatehouse', {
      method: 'POST',
      headers: { cookie: [headers.cookie, ...cookie].filter(Boolean).join('; ') },
      body: new URLSearchParams({ csrfToken, callbackUrl: `${HERE}/` }),
    });
  }
  if (path === '/out') return Response.json({});
  const { user, account } = await (await ask('/auth/session')).json();
  if (path === '/logout') return Response.redirect(logoutAddress(account.id_token));
  return Response.json({ ...(await askUserinfo(account.access_token)), name: user.name });
}

createServer(async (request, response) => {
  try {
    const answer = await respond(request, request.url);
    response.setHeader('set-cookie', answer.headers.getSetCookie());
    const location = answer.headers.get('location');
    if (location) response.setHeader('location', location);
    response.writeHead(answer.status).end(await answer.text());
  } catch (error) {
    response.writeHead(401).end(String(error.stack));
  }
}).listen(PORT, '127.0.0.1');
