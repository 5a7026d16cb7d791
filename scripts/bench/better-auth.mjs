/**
 * Checks sessions with better-auth, which must be installed in DIRECTORY together with `pg`.
 *
 *   node better-auth.mjs DIRECTORY
 *
 * GET answers with the session of the cookie. Its tables are created before it listens.
 */
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [directory = ''] = process.argv.slice(2);
const { resolve } = createRequire(join(directory, 'package.json'));
const load = (name) => import(pathToFileURL(resolve(name)));
const { betterAuth } = await load('better-auth');
const { getMigrations } = await load('better-auth/db/migration');
const { fromNodeHeaders } = await load('better-auth/node');
const { default: pg } = await load('pg');

const { DATABASE_URL, AUTH_TOKEN } = process.env;
const auth = betterAuth({
  baseURL: 'http://localhost',
  secret: AUTH_TOKEN,
  database: new pg.Pool({ connectionString: DATABASE_URL }),
  session: { cookieCache: { enabled: false } },
});
const { runMigrations } = await getMigrations(auth.options);
await runMigrations();

const server = createServer((request, response) => {
  const send = (status, value) => {
    const text = JSON.stringify(value);
    const headers = {
      'Content-Type': 'application/json',
      'Content-Length': Buffer.byteLength(text),
    };
    response.writeHead(status, headers).end(text);
  };
  auth.api.getSession({ headers: fromNodeHeaders(request.headers) }).then(
    (session) => send(session ? 200 : 401, session),
    (error) => send(500, { error: String(error) }),
  );
});
process.on('SIGINT', () => process.exit());
server.listen(0, '127.0.0.1', () => {
  const { port } = server.address();
  console.log(JSON.stringify({ message: 'listening', service: 'better-auth', port }));
  console.log(JSON.stringify({ message: 'ready', service: 'better-auth' }));
});
