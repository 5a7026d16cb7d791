/**
 * Write access to the database must not suffice to change what the sender of a secret asked for, a
 * request, or what its answer inherits. Every change of the row of a secret is tried in
 * test/unit/crypto/envelope.test.ts; here, one of each column.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Answer, ask, AUTH_TOKEN, launch } from '../../support/gatehouse.ts';
import { onOneServer } from '../../support/one-server.ts';
import { expireRequest, requestsClient } from '../../support/secret-requests.ts';
import { secretsClient } from '../../support/secrets.ts';

const TEXT = 'marked-password-text';
const { sql, secrets, log, stdout, stderr } = await launch(['secrets'], { SHARE_PAGES: 'on' });
const { keep, decrypt } = secretsClient(secrets);
const { post, request, answer } = requestsClient(secrets);

const errorsOf = (id: string) =>
  log().filter(({ level, secret_id }) => level === 'error' && secret_id === id);
const rows = async (id: string) => [
  await sql`select r::text from secrets.requests r where id = ${id}`,
  await sql`select s::text from secrets.secrets s where id = ${id}`,
];
const ofAnother = (table: string, ...all: readonly string[]) =>
  all.map((columns) => `(${columns}) = (select ${columns} from secrets.${table} where id = $2)`);
const assertDamaged = ({ status, json }: Answer, what: string) =>
  assert.deepEqual([status, json.error?.code], [500, 'secret_damaged'], what);
const attempts = async () => (await sql`select from secrets.throttles`).length;

for (const edit of [
  "expires_at = expires_at + interval '1 millisecond'",
  "expires_at = expires_at - interval '1 hour'",
  'expires_at = null',
  'max_reads = max_reads + 1',
  'max_reads = null',
  'blob = set_byte(blob, 140, get_byte(blob, 140) # 1)',
  "blob = ''",
  'commitment = commitment || substring(blob from 1 for 1), blob = substring(blob from 2)',
  "key_id = '0000000000000000'",
  ...ofAnother('secrets', 'blob', 'commitment', 'tag', 'blob, commitment', 'commitment, tag'),
  ...ofAnother('secrets', 'blob, commitment, tag'),
]) {
  // Citus updates no row by another one, or by a function that depends on settings.
  const options = /select|expires_at [+-]/.test(edit) ? onOneServer : {};
  test(`altered row: 500, nothing used up, an error logged after ${edit}`, options, async () => {
    const { id, secret } = await keep(TEXT, { max_reads: 3, expires_in: 86_400 });
    const other = await keep('another text', { max_reads: 3, expires_in: 86_400 });
    const ids = edit.includes('$2') ? [id, other.id] : [id];
    await sql.unsafe(`update secrets.secrets set ${edit} where id = $1`, ids);
    const before = await rows(id);
    assertDamaged(await decrypt(id, secret), 'the API');
    assert.deepEqual(
      errorsOf(id).map(({ message }) => /has been altered/.test(String(message))),
      [true],
    );
    // A link is known by its commitment.
    for (const path of edit.includes('commitment') ? [] : [`/s/${id}/status`, `/s/${id}`])
      assertDamaged(await post(path, { secret }), path);
    // Without its server secret, the right key alone shows that the key id was edited.
    if (!edit.startsWith('key_id')) assertDamaged(await decrypt(id, other.secret), 'a wrong key');
    assert.deepEqual(await rows(id), before);
    assert.equal(await attempts(), 0, 'no wrong link is counted');
    assert.equal((await decrypt(other.id, other.secret)).status, 200);
    for (const mark of [TEXT, secret]) assert.ok(!(stdout() + stderr()).includes(mark));
  });
}

// --- Requests

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
  ...ofAnother('requests', 'public_key', 'digest', 'key_digest', 'tag'),
  ...ofAnother('requests', 'public_key, digest, key_digest, tag'),
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
    for (const one of found) assertDamaged(one, 'its keys');
    assert.equal(await attempts(), 0, 'no wrong link is counted');
    assert.ok((await answer(made)).status >= 400);
    assert.deepEqual(await rows(made.id), before);
    await sql`delete from secrets.throttles`;
    assert.equal((await post(`/request/${other.id}`, { key: other.digest })).status, 200);
  });
}

test('altered requests are logged as errors, and clients cannot flood the log with them', async () => {
  const made = await request();
  await sql`update secrets.requests set title = 'x' where id = ${made.id}`;
  const calls = Array.from({ length: 200 }, () =>
    post(`/request/${made.id}`, { key: made.digest }),
  );
  for (const answered of await Promise.all(calls)) assertDamaged(answered, 'each is answered');
  assert.ok(log().some(({ level, route }) => level === 'error' && route === 'POST /request/{id}'));
  const lines = errorsOf(made.id).length;
  assert.ok(lines < 100, `${lines} lines for 200 requests`);
});

test('altered request: a withdrawn, answered or expired one cannot be opened again', async () => {
  const withdrawn = await request();
  await ask('DELETE', `${secrets}/api/store/${withdrawn.id}`, { bearer: AUTH_TOKEN });
  const answered = await request();
  assert.equal((await answer(answered)).status, 201);
  const expired = await request();
  await expireRequest(sql, expired.id);
  const states = [];
  for (const { id, digest } of [withdrawn, answered, expired])
    states.push((await post(`/request/${id}`, { key: digest })).json.status);
  assert.deepEqual(states, ['withdrawn', 'answered', 'expired']);
  const open = sql`ending = null, expires_at = now() + interval '1 hour'`;
  await sql`
    update secrets.requests set ${open}, tag = decode(repeat('00', 32), 'hex')
    where id = ${withdrawn.id}`;
  await sql`update secrets.requests set ${open}, answer_key = null where id = ${answered.id}`;
  await sql`update secrets.requests set ${open} where id = ${expired.id}`;
  for (const made of [withdrawn, answered, expired]) assertDamaged(await answer(made), made.id);
});
