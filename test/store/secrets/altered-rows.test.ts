import assert from 'node:assert/strict';
import { test } from 'node:test';
import { keepExpired } from '../../support/expired.ts';
import { ask, launch } from '../../support/gatehouse.ts';
import { secretsClient } from '../../support/secrets.ts';

const TEXT = 'marked-password-text';
const gatehouse = await launch(['secrets'], { SHARE_PAGES: 'on' });
const { sql } = gatehouse;
const { keep, decrypt } = secretsClient(gatehouse.url.secrets);

const flip = (at: number) => (id: string) =>
  sql`update secrets.secrets set blob = set_byte(blob, ${at}, get_byte(blob, ${at}) # 1)
    where id = ${id}`;
const flipLast = (id: string) => sql`
  update secrets.secrets set blob = set_byte(blob, length(blob) - 1, get_byte(blob,
    length(blob) - 1) # 1)
  where id = ${id}`;
const cutTo = (length: number) => (id: string) =>
  sql`update secrets.secrets set blob = substring(blob from 1 for ${length}) where id = ${id}`;

/**
 * Write access to the database must not suffice to change what the sender of a secret asked for.
 */
const EDITS: ReadonlyArray<
  readonly [what: string, edit: (id: string, otherId: string) => PromiseLike<unknown>]
> = [
  [
    'its expiry was put off',
    (id) =>
      sql`update secrets.secrets set expires_at = expires_at + interval '1 millisecond'
        where id = ${id}`,
  ],
  [
    'its expiry was brought forward',
    (id) =>
      sql`update secrets.secrets set expires_at = expires_at - interval '1 hour' where id = ${id}`,
  ],
  [
    'its expiry was removed',
    (id) => sql`update secrets.secrets set expires_at = null where id = ${id}`,
  ],
  [
    'more reads were allowed',
    (id) => sql`update secrets.secrets set max_reads = max_reads + 1 where id = ${id}`,
  ],
  [
    'fewer reads were allowed',
    (id) => sql`update secrets.secrets set max_reads = 1 where id = ${id}`,
  ],
  [
    'any number of reads was allowed',
    (id) => sql`update secrets.secrets set max_reads = null where id = ${id}`,
  ],
  [
    'its text was replaced with that of another row',
    (id, other) =>
      sql`update secrets.secrets set blob = (select blob from secrets.secrets where id = ${other})
        where id = ${id}`,
  ],
  ['its version was changed', flip(0)],
  ['a bit of its nonce was flipped', flip(1)],
  ['the first bit of its text was flipped', flip(13)],
  ['a bit in its middle was flipped', flip(140)],
  ['the last bit of its tag was flipped', flipLast],
  [
    'its last byte was cut off',
    (id) =>
      sql`update secrets.secrets set blob = substring(blob from 1 for length(blob) - 1)
        where id = ${id}`,
  ],
  [
    'a byte was added',
    (id) => sql`update secrets.secrets set blob = blob || decode('00', 'hex') where id = ${id}`,
  ],
  ['only its version and nonce were left', cutTo(13)],
  ['nothing was left', cutTo(0)],
  [
    'its key id was changed',
    (id) => sql`update secrets.secrets set key_id = '0000000000000000' where id = ${id}`,
  ],
];
for (const [what, edit] of EDITS) {
  test(`altered row: 500, nothing used up, and one error in the log if ${what}`, async () => {
    const { id, secret } = await keep(TEXT, { max_reads: 3, expires_in: 86_400 });
    const other = await keep('another text', { max_reads: 3, expires_in: 86_400 });
    await edit(id, other.id);
    const before = await sql`select * from secrets.secrets where id = ${id}`;
    const { status, json, text } = await decrypt(id, secret);
    assert.equal(status, 500, text);
    assert.equal(json.error.code, 'secret_damaged');
    assert.ok(!text.includes(TEXT));
    assert.deepEqual([...(await sql`select * from secrets.secrets where id = ${id}`)], [...before]);

    const logged = gatehouse
      .log()
      .filter((line) => line.level === 'error' && line.secret_id === id);
    assert.equal(logged.length, 1);
    assert.match(String(logged[0]?.message), /has been altered/);
    for (const path of [`/s/${id}/status`, `/s/${id}`]) {
      const link = await ask('POST', `${gatehouse.url.secrets}${path}`, { body: { secret } });
      assert.deepEqual([link.status, link.json.error.code], [500, 'secret_damaged'], path);
    }
    assert.deepEqual([...(await sql`select * from secrets.secrets where id = ${id}`)], [...before]);
    assert.equal((await sql`select from secrets.throttles`).length, 0, 'no wrong link is counted');
    assert.equal((await decrypt(other.id, other.secret)).status, 200);
  });
}

test('altered row: a later or earlier expiry is detected', async () => {
  const { id, secret } = await keepExpired(sql);
  assert.equal((await decrypt(id, secret)).status, 404);
  await sql`update secrets.secrets set expires_at = now() + interval '1 day' where id = ${id}`;
  assert.equal((await decrypt(id, secret)).json.error.code, 'secret_damaged');
  const short = await keep(TEXT, { expires_in: 60 });
  await sql`update secrets.secrets set expires_at = now() - interval '1 second'
    where id = ${short.id}`;
  assert.equal((await decrypt(short.id, short.secret)).json.error.code, 'secret_damaged');
});

const errorsOf = (id: string) =>
  gatehouse.log().filter((line) => line.level === 'error' && line.secret_id === id).length;

test('altered row: a row moved to another id opens with no key', async () => {
  const one = await keep(TEXT);
  const other = await keep(TEXT);
  await sql`delete from secrets.secrets where id = ${other.id}`;
  await sql`update secrets.secrets set id = ${other.id} where id = ${one.id}`;
  for (const { secret } of [one, other]) {
    assert.equal((await decrypt(other.id, secret)).json.error.code, 'secret_damaged');
  }
  assert.equal(errorsOf(other.id), 2);
});

const PARTS = ['blob', 'commitment', 'tag'];
for (const parts of [
  ['commitment'],
  ['tag'],
  ['blob', 'commitment'],
  ['blob', 'tag'],
  ['commitment', 'tag'],
  PARTS,
]) {
  test(`altered row: with ${parts.join(' and ')} of another row it opens with neither key`, async () => {
    const one = await keep(TEXT);
    const other = await keep(TEXT);
    await sql`
      update secrets.secrets set (${sql(parts)}) = (select ${sql(parts)} from secrets.secrets
        where id = ${other.id})
      where id = ${one.id}`;
    for (const { secret } of [one, other]) {
      assert.equal((await decrypt(one.id, secret)).json.error.code, 'secret_damaged');
    }
    assert.equal(errorsOf(one.id), 2);
  });
}

test('altered row: bytes moved between commitment and ciphertext are detected', async () => {
  const { id, secret } = await keep(TEXT);
  await sql`
    update secrets.secrets set commitment = commitment || substring(blob from 1 for 1),
      blob = substring(blob from 2)
    where id = ${id}`;
  assert.equal((await decrypt(id, secret)).json.error.code, 'secret_damaged');
});

test('altered row: detected with a wrong key too', async () => {
  const { id } = await keep(TEXT);
  const { secret } = await keep(TEXT);
  await flipLast(id);
  assert.equal((await decrypt(id, secret)).json.error.code, 'secret_damaged');
  assert.equal(errorsOf(id), 1);
});

test('the table rejects a row with only a part of its content', async () => {
  const { id } = await keep(TEXT);
  for (const part of PARTS) {
    await assert.rejects(
      async () => sql`update secrets.secrets set ${sql(part)} = null where id = ${id}`,
      /content_until_end|not-null/,
    );
  }
  await assert.rejects(
    async () => sql`update secrets.secrets set ending = 'read' where id = ${id}`,
    /content_until_end/,
  );
});

test('altered row: a missing tag is detected, whichever key is sent', async (t) => {
  const { id, secret } = await keep(TEXT);
  const wrong = await keep(TEXT);
  await sql`alter table secrets.secrets drop constraint content_until_end`;
  t.after(
    () => sql`
    alter table secrets.secrets add constraint content_until_end check (blob is null
      or tag is not null) not valid`,
  );
  await sql`update secrets.secrets set tag = null where id = ${id}`;
  for (const key of [secret, wrong.secret])
    assert.equal((await decrypt(id, key)).json.error.code, 'secret_damaged');
  assert.equal(errorsOf(id), 2);
});

test('altered row: the log contains neither text nor key', async () => {
  const { id, secret } = await keep(TEXT);
  await flipLast(id);
  const [row] = await sql`select blob from secrets.secrets where id = ${id}`;
  await decrypt(id, secret);
  const written = gatehouse.stdout() + gatehouse.stderr();
  for (const mark of [TEXT, secret, row?.blob.toString('base64url'), row?.blob.toString('hex')]) {
    assert.ok(!written.includes(mark));
  }
});
