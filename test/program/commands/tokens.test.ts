/** Signing secrets, and rotations at once. `transcripts/tokens.txt` has the rest of the commands. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { makeTemporary, removeTemporary } from '../../../scripts/temporary.ts';
import { assertRefused, runCommand } from '../../support/commands.ts';
import { untilSql } from '../../support/connections.ts';
import { ask } from '../../support/gatehouse.ts';
import {
  signatureOf,
  type SignedSource,
  SIGNING_SECRETS,
  WEBHOOK_SECRET,
} from '../../support/senders.ts';
import { launchWebhook } from '../../support/webhook.ts';

const directory = makeTemporary(tmpdir(), 'gatehouse-tokens');
after(() => removeTemporary(directory));
const { sql, databaseUrl, base, stdout: logged, stderr: noted } = await launchWebhook();
const run = (words: readonly string[], input = '') =>
  runCommand(['token', ...words], { DATABASE_URL: databaseUrl, WEBHOOK_SECRET }, input);

function fileWith(secret: string): string {
  const path = join(directory, randomUUID());
  writeFileSync(path, `${secret}\n`);
  return path;
}

/** Asserts that standard output is one token. */
function tokenIn({ code, stdout, stderr }: Awaited<ReturnType<typeof run>>) {
  assert.equal(code, 0, stderr);
  assert.match(stdout, /^[A-Za-z0-9_-]{43}\n$/);
  assert.match(stderr, /\nToken \(shown only once\):\n$/);
  const token = stdout.trim();
  return { token, id: /[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/.exec(stderr)?.[0] ?? '' };
}
const create = async (source: SignedSource) =>
  tokenIn(
    await run([
      'create',
      `--source=${source}`,
      '--signing-secret-file',
      fileWith(SIGNING_SECRETS[source]),
    ]),
  );

async function send(source: SignedSource, token: string, secret: string): Promise<number> {
  const body = JSON.stringify({ id: `evt_${randomUUID()}`, type: 'x' });
  const signature = signatureOf(source, secret, body, { id: randomUUID() });
  const headers = { 'x-github-event': 'push', ...signature };
  return (await ask('POST', `${base}?token=${token}`, { body, headers })).status;
}

test('a signing secret applies at once, from a file or from standard input', async () => {
  for (const source of ['standard', 'stripe', 'slack', 'notion'] as const) {
    const { token } = await create(source);
    const secret = SIGNING_SECRETS[source];
    assert.equal(await send(source, token, secret), 200, source);
    assert.equal(await send(source, token, `${secret.slice(0, -4)}AAAA`), 401, source);
  }
  for (const end of ['', '\n', '\r\n']) {
    const words = ['create', '--source', 'github', '--signing-secret-file', '-'];
    const { token } = tokenIn(await run(words, SIGNING_SECRETS.github + end));
    assert.equal(await send('github', token, SIGNING_SECRETS.github), 200);
  }
  const path = join(directory, 'bytes');
  writeFileSync(path, Buffer.alloc(32, 0xff));
  const refused = await run(['create', '--source', 'github', '--signing-secret-file', path]);
  assertRefused(refused, 2, /--signing-secret-file is not UTF-8 text/);
});

test('a rotated signing secret stays valid for exactly its overlap, and the token stays', async () => {
  const { id, token } = await create('github');
  const rotate = (overlap: string, secret: string) =>
    run(['rotate', id, '--overlap', overlap, '--signing-secret-file', fileWith(secret)]);
  const finished = await rotate('2h', 'the secret of after');
  const said = `Replaced the signing secret of token ${id}. The old one stays valid for 7200 seconds.\n`;
  assert.deepEqual([finished.code, finished.stdout, finished.stderr], [0, '', said]);
  const [row] = await sql`
    select expires_at - interval '2 hours' between created_at and now() as exact
    from webhook.signing_secrets where token_id = ${id} and expires_at is not null`;
  assert.equal(row?.exact, true);
  const statuses = async () => [
    await send('github', token, SIGNING_SECRETS.github),
    await send('github', token, 'the secret of after'),
  ];
  assert.deepEqual(await statuses(), [200, 200]);
  // A second rotation does not shorten the validity of the earlier secrets.
  await rotate('5h', 'a third secret');
  assert.deepEqual(await statuses(), [200, 200]);
  const [limits] = await sql`
    select count(*) filter (where expires_at < now() + interval '2 hours')::int as soon,
      count(*)::int as all from webhook.signing_secrets where token_id = ${id}`;
  assert.deepEqual({ ...limits }, { soon: 1, all: 3 });
  await sql`update webhook.signing_secrets set expires_at = now()
    where token_id = ${id} and expires_at is not null`;
  assert.deepEqual(await statuses(), [401, 401]);
  assert.equal(await send('github', token, 'a third secret'), 200);
});

test('two rotations at once leave two tokens, which no output, table or log has', async () => {
  const { id } = tokenIn(await run(['create', '--name', 'twice at once']));
  const both = await Promise.all([run(['rotate', id]), run(['rotate', id])]);
  const tokens = both.map(tokenIn).map(({ token }) => token);
  assert.equal(new Set(tokens).size, 2);
  for (const bearer of tokens) {
    const body = { event: 'x', data: { page_id: 'p' } };
    assert.equal((await ask('POST', base, { bearer, body })).status, 200);
  }
  const { token: signed } = await create('stripe');
  assert.equal(await send('stripe', signed, SIGNING_SECRETS.stripe), 200);

  const list = async () => (await run(['list', '--json'])).stdout;
  const isUsed = async () => {
    const listed: Array<{ id: string; last_used_at: string | null }> = JSON.parse(await list());
    return listed.some((one) => one.id === id && one.last_used_at !== null);
  };
  await untilSql(isUsed, 'the use is listed');
  const rows = await sql`select t::text as row from webhook.tokens t union all select s::text
      from webhook.signing_secrets s union all select e.headers::text from webhook.events e`;
  const printed = [await list(), (await run(['list'])).stdout, logged(), noted()];
  const places = [...printed, ...rows.map(({ row }) => String(row))].join('\n');
  assert.ok(places.includes('twice at once'));
  for (const secret of [...tokens, signed, SIGNING_SECRETS.stripe])
    for (const encoding of ['utf8', 'hex', 'base64'] as const) {
      const form = Buffer.from(secret).toString(encoding).replace(/=+$/, '');
      assert.ok(!places.includes(form), form);
    }
});
