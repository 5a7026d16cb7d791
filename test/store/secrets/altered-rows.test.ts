/**
 * Write access to the database must not suffice to change what the sender of a secret asked for.
 * Every change of a row is tried in test/unit/crypto/envelope.test.ts; here, one of each column.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ask, launch } from '../../support/gatehouse.ts';
import { onOneServer } from '../../support/one-server.ts';
import { secretsClient } from '../../support/secrets.ts';

const TEXT = 'marked-password-text';
const { sql, secrets, log, stdout, stderr } = await launch(['secrets'], { SHARE_PAGES: 'on' });
const { keep, decrypt } = secretsClient(secrets);

const errorsOf = (id: string) =>
  log().filter(({ level, secret_id }) => level === 'error' && secret_id === id);
const rowOf = async (id: string) => [
  ...(await sql`select * from secrets.secrets where id = ${id}`),
];
const codeOf = async (id: string, key: string) => (await decrypt(id, key)).json.error?.code;
const ofAnother = (columns: string) =>
  `(${columns}) = (select ${columns} from secrets.secrets where id = $2)`;

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
  ...[
    'blob',
    'commitment',
    'tag',
    'blob, commitment',
    'commitment, tag',
    'blob, commitment, tag',
  ].map(ofAnother),
]) {
  // Citus updates no row by another one, or by a function that depends on settings.
  const options = /select|expires_at [+-]/.test(edit) ? onOneServer : {};
  test(
    `altered row: 500, nothing used up, one error in the log after ${edit}`,
    options,
    async () => {
      const { id, secret } = await keep(TEXT, { max_reads: 3, expires_in: 86_400 });
      const other = await keep('another text', { max_reads: 3, expires_in: 86_400 });
      const ids = edit.includes('$2') ? [id, other.id] : [id];
      await sql.unsafe(`update secrets.secrets set ${edit} where id = $1`, ids);
      const before = await rowOf(id);
      const answer = await decrypt(id, secret);
      assert.deepEqual([answer.status, answer.json.error.code], [500, 'secret_damaged']);
      assert.deepEqual(
        errorsOf(id).map(({ message }) => /has been altered/.test(String(message))),
        [true],
      );
      // A link is known by its commitment.
      for (const path of edit.includes('commitment') ? [] : [`/s/${id}/status`, `/s/${id}`]) {
        const link = await ask('POST', `${secrets}${path}`, { body: { secret } });
        assert.deepEqual([link.status, link.json.error.code], [500, 'secret_damaged'], path);
      }
      // Without its server secret, the right key alone shows that the key id was edited.
      if (!edit.startsWith('key_id'))
        assert.equal(await codeOf(id, other.secret), 'secret_damaged');
      assert.deepEqual(await rowOf(id), before);
      assert.equal(
        (await sql`select from secrets.throttles`).length,
        0,
        'no wrong link is counted',
      );
      assert.equal((await decrypt(other.id, other.secret)).status, 200);
    },
  );
}

test('altered row: a row moved to another id opens with no key', onOneServer, async () => {
  const one = await keep(TEXT);
  const other = await keep(TEXT);
  await sql`delete from secrets.secrets where id = ${other.id}`;
  await sql`update secrets.secrets set id = ${other.id} where id = ${one.id}`;
  for (const { secret } of [one, other])
    assert.equal(await codeOf(other.id, secret), 'secret_damaged');
});

test('the table rejects a row with only a part of its content', async () => {
  const { id } = await keep(TEXT);
  for (const edit of ['blob = null', 'commitment = null', 'tag = null', "ending = 'read'"]) {
    const edited = sql.unsafe(`update secrets.secrets set ${edit} where id = '${id}'`);
    await assert.rejects(edited, /content_until_end|not-null/, edit);
  }
});

test('altered row: a missing tag is detected with any key, and the log has neither text nor key', async () => {
  const { id, secret } = await keep(TEXT);
  const [row] = await sql`select blob from secrets.secrets where id = ${id}`;
  await sql`alter table secrets.secrets drop constraint content_until_end`;
  await sql`update secrets.secrets set tag = null where id = ${id}`;
  const other = await keep(TEXT);
  for (const key of [secret, other.secret]) assert.equal(await codeOf(id, key), 'secret_damaged');
  for (const mark of [TEXT, secret, row?.blob.toString('base64url'), row?.blob.toString('hex')])
    assert.ok(!(stdout() + stderr()).includes(mark));
});
