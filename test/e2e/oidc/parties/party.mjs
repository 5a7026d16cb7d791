/** What the programs in JavaScript share: a web server with one visitor at a time. */
import { createServer } from 'node:http';

export const { ISSUER, CLIENT_ID, CLIENT_SECRET, PORT, SCOPE } = process.env;
export const HERE = `http://127.0.0.1:${PORT}`;
export const CALLBACK = `${HERE}/callback`;

/** @param routes a text is where the browser goes, anything else what it gets */
export const serve = (routes) =>
  createServer(async (request, response) => {
    const url = new URL(request.url, HERE);
    try {
      const answer = await routes[url.pathname](url);
      if (typeof answer === 'string') response.writeHead(302, { location: answer });
      response.end(JSON.stringify(answer));
    } catch (error) {
      response.writeHead(401).end(String(error.stack));
    }
  }).listen(PORT, '127.0.0.1');

/** As programs do it whose library does not. */
export async function askUserinfo(token) {
  const headers = { authorization: `Bearer ${token}` };
  const response = await fetch(`${ISSUER}/oidc/userinfo`, { headers });
  if (!response.ok) throw new Error(`the provider answered ${response.status}`);
  return response.json();
}

export const logoutAddress = (id_token_hint) =>
  `${ISSUER}/oidc/logout?${new URLSearchParams({ id_token_hint, post_logout_redirect_uri: `${HERE}/out` })}`;
