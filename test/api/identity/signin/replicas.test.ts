/**
 * What must happen once happens once, and what is limited stays limited, whichever replicas are
 * asked.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { totpCode } from '../../../../src/identity/factors/codes.ts';
import { createPasskey } from '../../../support/authenticator.ts';
import { ALONE, factorsOf } from '../../../support/factors.ts';
import { startGatehouse } from '../../../support/gatehouse.ts';
import { cookieFrom, type Page, PORTAL, startPortal, visitorOf } from '../../../support/portal.ts';

const portal = await startPortal({ after });
const { sql, databaseUrl, add, signIn } = portal;
const other = await startGatehouse({ after }, ['identity'], databaseUrl, PORTAL);
const here = factorsOf(portal);
const there = factorsOf({ ...portal, visit: visitorOf(other.url.identity) });
const { enrol, events, forgetSteps, newBrowser, options, register, start, stepNow } = here;

const ROUNDS = 5;
const statuses = async (pages: ReadonlyArray<Promise<Page>>) =>
  (await Promise.all(pages)).map(({ status }) => status).sort();
const sessionsOf = async (id: string) =>
  (await sql`select from identity.sessions where user_id = ${id}`).length;

test('a code is accepted by one of two replicas', async () => {
  const { username, id } = await add();
  const { secret } = await enrol(username);
  for (let round = 1; round <= ROUNDS; round += 1) {
    await forgetSteps(id);
    const one = await start(username);
    const two = await there.start(username);
    const code = totpCode(secret, await stepNow());
    assert.deepEqual(await statuses([here.enter(one, code), there.enter(two, code)]), [200, 401]);
  }
  assert.equal(await sessionsOf(id), 1 + ROUNDS);
});

test('a recovery code is accepted by one of two replicas', async () => {
  const { username, id } = await add();
  const { codes } = await enrol(username);
  for (const code of codes.slice(0, ROUNDS)) {
    const one = await start(username);
    const two = await there.start(username);
    assert.deepEqual(await statuses([here.enter(one, code), there.enter(two, code)]), [200, 401]);
  }
  assert.equal(await events(id, 'recovery.used'), ROUNDS);
});

test('the response of a passkey is accepted by one of two replicas', async () => {
  const { username, id } = await add();
  const passkey = createPasskey();
  const added = await register((await signIn(username)).host, passkey);
  assert.equal(added.status, 200);
  for (let round = 1; round <= ROUNDS; round += 1) {
    const browser = await newBrowser();
    // Synchronized passkeys always send 0: only the challenge tells the two apart.
    const credential = here.answer(passkey, (await options(ALONE, browser)).challenge, id, {
      counter: 0,
    });
    assert.deepEqual(
      await statuses([here.send(credential, browser), there.send(credential, browser)]),
      [200, 401],
    );
  }
  const [row] = await sql`select counter from identity.passkeys where user_id = ${id}`;
  assert.equal(row?.counter, '0');
});

test('wrong codes are limited for a sign-in and for a day over all replicas', async () => {
  const { username, id } = await add();
  const {
    secret,
    codes: [recovery = ''],
  } = await enrol(username);
  let rejected = 0;
  for (let round = 1; round <= 5; round += 1) {
    const pending = await start(username);
    const tries = Array.from({ length: 8 }, (_, index) =>
      (index % 2 === 0 ? here : there).enter(pending, '000000'),
    );
    rejected += (await Promise.all(tries)).filter(({ text }) =>
      /wrong, too old, or was used before/.test(text),
    ).length;
    assert.equal(rejected, Math.min(5 * round, 20));
  }
  assert.equal(await events(id, 'factor.failed'), 20);
  await forgetSteps(id);
  for (const code of [totpCode(secret, await stepNow()), recovery]) {
    for (const replica of [here, there]) {
      const page = await replica.enter(await start(username), code);
      assert.deepEqual([page.status, cookieFrom(page, '__Host-gatehouse')], [429, '']);
      assert.ok(Number(page.headers.get('retry-after')) > 0);
    }
  }
  // A right code neither passes nor ends the limit, and is not used up.
  const [left] = await sql`
    select (select count(*)::int4 from identity.recovery_codes where user_id = ${id}) as codes,
      (select last_step::int4 from identity.totp where user_id = ${id}) as last_step`;
  assert.deepEqual(left, { codes: 10, last_step: 0 });
});
