/** A page of another site in a real Chromium cannot use up a visitor's login attempts. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { after, test } from 'node:test';
import { createDatabase } from '../../support/database.ts';
import { ADMIN_PASSWORD, logIn, startGatehouse } from '../../support/gatehouse.ts';
import { until } from '../../support/until.ts';
import { startBrowser } from './browsers.ts';

const { url: databaseUrl } = await createDatabase();
const gatehouse = await startGatehouse({ after }, ['identity'], databaseUrl);
const browser = await startBrowser();

const attacker = createServer((_request, response) => {
  response.setHeader('Content-Type', 'text/html').end('<!doctype html><title>waiting</title>');
});
await once(attacker.listen(0, '127.0.0.1'), 'listening');
after(() => attacker.close());
const address = attacker.address();
assert.ok(typeof address === 'object' && address !== null);

for (const [site, host] of [
  ['another site', '127.0.0.1'],
  ['another origin of the same site', 'localhost'],
] as const) {
  test(`a page of ${site} gets 403 and uses up no login attempt`, async () => {
    const target = `${gatehouse.url.identity.replace('127.0.0.1', 'localhost')}/api/auth/login`;
    await browser.open(`http://${host}:${address.port}/`);
    const refused = () => gatehouse.log().filter(({ status }) => status === 403).length;
    const before = refused();
    await browser.run(`
      const body = JSON.stringify({ username: 'admin', password: 'wrong' });
      const init = { method: 'POST', mode: 'no-cors', body };
      const tries = Array.from({ length: 10 }, () => fetch('${target}', init));
      Promise.allSettled(tries).then(() => {
document.title = 'done';
});`);
    await browser.until('document.title === "done"');
    await until(() => refused() === before + 10, 'the log lines of ten refused requests');
    assert.match(await logIn(gatehouse.url.identity, 'admin', ADMIN_PASSWORD), /^session:/);
  });
}
