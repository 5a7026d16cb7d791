/** Two replicas of identity behind one issuer. The test decides which of them answers. */
import { createServer, request } from 'node:http';
import { after } from 'node:test';
import { startProvider } from '../../support/oidc.ts';
import { listenOn } from '../../support/ports.ts';

/** Call at the top level of a test file. */
export async function startReplicas() {
  let target = '';
  const server = createServer((incoming, response) => {
    const { method, url, headers } = incoming;
    const asked = request(target + url, { method, headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 0, answer.rawHeaders);
      answer.pipe(response);
    });
    incoming.pipe(asked);
  });
  const issuer = `http://localhost:${await listenOn({ after }, server)}`;
  const none = { COOKIE_DOMAIN: '', RETURN_ORIGINS: '', TRUSTED_PROXIES: '' };
  const provider = await startProvider({ after }, { ...none, SIGNIN_ORIGIN: issuer });
  const second = await provider.replica();
  const replicas = { first: provider.identity, second: second.identity };
  target = replicas.first;
  return {
    ...provider,
    issuer,
    /** Which of the two gets the next requests to the issuer. */
    use(replica: 'first' | 'second') {
      target = replicas[replica];
    },
  };
}
