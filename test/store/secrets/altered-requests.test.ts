/**
 * Write access to the database must not suffice to change a request, or what its answer inherits.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ask, AUTH_TOKEN, launch } from '../../support/gatehouse.ts';
import { expireRequest, requestsClient } from '../../support/secret-requests.ts';

const { sql, secrets: base, log } = await launch(['secrets'], { SHARE_PAGES: 'on' });
const { post, request, answer } = requestsClient(base);

const rows = async (id: string) => [
  await sql`select r::text from secrets.requests r where id = ${id}`,
  await sql`select s::text from secrets.secrets s where id = ${id}`,
];

const ofAnother = (columns: string) =>
  `(${columns}) = (select ${columns} from secrets.requests where id = $2)`;

for (const set of [
  'max_reads = 1000',
  "expires_at = expires_at + interval '1 day'",
  "expires_at = now() - interval '1 day'",
  'seconds = seconds + 1',
  "title = 'Password of the bank'",
  "kind = 'file'",
  "creator = 'user:mallory'",
  "asker = 'mallory'",
  "key_id = '0000000000000000'",
  "ending = 'answered', answer_key = public_key",
  ofAnother('public_key'),
  ofAnother('digest'),
  ofAnother('key_digest'),
  ofAnother('tag'),
  ofAnother('public_key, digest, key_digest, tag'),
]) {
  test(`altered request: 500 for its keys, and nothing used up, after ${set}`, async () => {
    const made = await request();
    const other = await request();
    const ids = set.includes('$2') ? [made.id, other.id] : [made.id];
    await sql.unsafe(`update secrets.requests set ${set} where id = $1`, ids);
    const before = await rows(made.id);
    const found = [await post(`/request/${made.id}`, { key: made.receipt })];
    // Whoever answers is known by the digest in the row alone.
    if (!/\bdigest/.test(set)) {
      found.push(await post(`/request/${made.id}`, { key: made.digest }));
      found.push(await answer(made));
    }
    for (const { status, json } of found)
      assert.deepEqual([status, json.error.code], [500, 'secret_damaged']);
    assert.equal((await sql`select from secrets.throttles`).length, 0, 'no wrong link is counted');
    assert.ok((await answer(made)).status >= 400);
    assert.deepEqual(await rows(made.id), before);
    await sql`delete from secrets.throttles`;
    assert.equal((await post(`/request/${other.id}`, { key: other.digest })).status, 200);
  });
}

test('altered requests are logged as errors, and clients cannot flood the log with them', async () => {
  const lines = () =>
    log().filter(({ message }) =>
      /^a stored secret or request has been altered/.test(String(message)),
    );
  const made = await request();
  await sql`update secrets.requests set title = 'x' where id = ${made.id}`;
  const before = lines().length;
  const calls = Array.from({ length: 200 }, () =>
    post(`/request/${made.id}`, { key: made.digest }),
  );
  for (const { status } of await Promise.all(calls)) assert.equal(status, 500);
  assert.ok(before > 0);
  assert.ok(lines().length - before < 100, `${lines().length - before} lines for 200 requests`);
});

test('altered request: a withdrawn, answered or expired one cannot be opened again', async () => {
  const withdrawn = await request();
  await ask('DELETE', `${base}/api/store/${withdrawn.id}`, { bearer: AUTH_TOKEN });
  const answered = await request();
  assert.equal((await answer(answered)).status, 201);
  const expired = await request();
  await expireRequest(sql, expired.id);
  const states = [];
  for (const { id, digest } of [withdrawn, answered, expired])
    states.push((await post(`/request/${id}`, { key: digest })).json.status);
  assert.deepEqual(states, ['withdrawn', 'answered', 'expired']);
  const open = sql`ending = null, expires_at = now() + interval '1 hour'`;
  await assert.rejects(
    async () => sql`update secrets.requests set ${open} where id = ${withdrawn.id}`,
    /tag_until_withdrawn/,
  );
  await sql`
    update secrets.requests set ${open}, tag = decode(repeat('00', 32), 'hex')
    where id = ${withdrawn.id}`;
  await sql`update secrets.requests set ${open}, answer_key = null where id = ${answered.id}`;
  await sql`update secrets.requests set ${open} where id = ${expired.id}`;
  for (const made of [withdrawn, answered, expired])
    assert.equal((await answer(made)).json.error.code, 'secret_damaged');
});
