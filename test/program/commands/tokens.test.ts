/**
 * Signing secrets, concurrent rotations and the last use of tokens. `transcripts/tokens.txt` has
 * the rest of the token commands.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { makeTemporary, removeTemporary } from '../../../scripts/temporary.ts';
import { assertRefused, runCommand } from '../../support/commands.ts';
import { createDatabase } from '../../support/database.ts';
import { type Answer, ask, startGatehouse } from '../../support/gatehouse.ts';
import type { Finished } from '../../support/process.ts';
import {
  signatureOf,
  type SignedSource,
  SIGNING_SECRETS,
  WEBHOOK_SECRET,
} from '../../support/senders.ts';

const directory = makeTemporary(tmpdir(), 'gatehouse-tokens');
after(() => removeTemporary(directory));
const file = await createDatabase();
const environment = { DATABASE_URL: file.url, WEBHOOK_SECRET };
const gatehouse = await startGatehouse({ after }, ['webhook'], file.url, { WEBHOOK_SECRET });
const { webhook } = gatehouse.url;

/** All output that must not contain a secret. The last test searches it. */
const written: string[] = [];
const secrets = new Set<string>();

async function run(
  words: readonly string[],
  given: Readonly<Record<string, string>> = environment,
  input = '',
): Promise<Finished> {
  const finished = await runCommand(['token', ...words], given, input);
  written.push(
    finished.stderr,
    ...(['create', 'rotate', 'confirm'].includes(words[0] ?? '') && finished.code === 0
      ? []
      : [finished.stdout]),
  );
  return finished;
}

function fileWith(secret: string): string {
  const path = join(directory, `${randomUUID()}.txt`);
  writeFileSync(path, secret);
  return path;
}

/** Asserts that standard output is one token. */
function tokenIn({ code, stdout, stderr }: Finished): string {
  assert.equal(code, 0, stderr);
  assert.match(stdout, /^[A-Za-z0-9_-]{43}\n$/);
  assert.match(stderr, /\nToken \(shown only once\):\n$/);
  secrets.add(stdout.trim());
  return stdout.trim();
}

async function create(
  name: string,
  ...more: readonly string[]
): Promise<{ id: string; token: string }> {
  const finished = await run(['create', '--name', name, ...more]);
  const token = tokenIn(finished);
  const [, said, id = ''] =
    /^Created token "(.*)" with id ([0-9a-f-]{36})\.\n/.exec(finished.stderr) ?? [];
  assert.equal(said, name);
  return { id, token };
}

const withSecret = (source: SignedSource, secret = SIGNING_SECRETS[source]) => {
  secrets.add(secret);
  return create(source, '--source', source, '--signing-secret-file', fileWith(`${secret}\n`));
};

const list = async (): Promise<Array<Record<string, unknown>>> =>
  JSON.parse((await run(['list', '--json'])).stdout);
const one = async (id: string) => (await list()).find((token) => token.id === id);
const lineOf = async (id: string) =>
  (await run(['list'])).stdout
    .split('\n')
    .find((line) => line.startsWith(id))
    ?.split(/ {2,}/) ?? [];

const use = async (token: string): Promise<number> =>
  (
    await ask('POST', `${webhook}/webhook`, {
      bearer: token,
      body: { event: 'x', data: { page_id: 'p' } },
    })
  ).status;
const sendAs = (source: SignedSource, token: string, secret: string): Promise<Answer> => {
  const body = JSON.stringify({ id: `evt_${randomUUID()}`, type: 'x' });
  return ask('POST', `${webhook}/webhook?token=${token}`, {
    body,
    headers: {
      'x-github-event': 'push',
      ...signatureOf(source, secret, body, { id: randomUUID() }),
    },
  });
};

test('a token for each source works at once and is listed without the token itself', async () => {
  const plain = await create('a "program"');
  assert.equal(await use(plain.token), 200);
  assert.deepEqual((await lineOf(plain.id)).slice(1, 4), ['a "program"', 'sender', 'generic']);
  for (const source of ['standard', 'github', 'stripe', 'slack', 'notion'] as const) {
    const { id, token } = await withSecret(source);
    assert.equal((await sendAs(source, token, SIGNING_SECRETS[source])).status, 200, source);
    assert.equal(
      (await sendAs(source, token, `${SIGNING_SECRETS[source].slice(0, -4)}AAAA`)).status,
      401,
      source,
    );
    // The wrong signature is counted a second later.
    const { refused, last_refusal, last_refused_at: _at, ...others } = (await one(id)) ?? {};
    const { created_at, last_used_at: _, ...rest } = others;
    const { last_refusal_detail: _detail, last_refused_from: _from, ...listed } = rest;
    assert.ok(refused === 0 || last_refusal === 'unauthorized');
    assert.deepEqual(listed, {
      id,
      name: source,
      role: 'sender',
      source,
      custom: null,
      target: null,
      keep_signature: false,
      order_by: null,
      revoked_at: null,
      last_handshake: null,
      last_handshake_at: null,
      pending: false,
    });
    assert.equal(new Date(String(created_at)).toISOString(), created_at);
  }
});

test('a signing secret is read from standard input, with or without a final newline', async () => {
  for (const input of [
    SIGNING_SECRETS.github,
    `${SIGNING_SECRETS.github}\n`,
    `${SIGNING_SECRETS.github}\r\n`,
  ]) {
    const token = tokenIn(
      await run(['create', '--source', 'github', '--signing-secret-file', '-'], environment, input),
    );
    assert.equal((await sendAs('github', token, SIGNING_SECRETS.github)).status, 200);
  }
});

test('a signing secret that is no UTF-8 text is refused', async () => {
  const path = join(directory, `${randomUUID()}.txt`);
  writeFileSync(path, Buffer.alloc(32, 0xff));
  const words = ['create', '--source', 'github', '--signing-secret-file', path];
  assertRefused(await run(words), 2, /--signing-secret-file is not UTF-8 text/);
});

test('a rotated signing secret stays valid for exactly its overlap, and the token stays', async () => {
  const { id, token } = await withSecret('github');
  const fresh = 'the secret of after';
  secrets.add(fresh);
  const finished = await run([
    'rotate',
    id,
    '--overlap',
    '2h',
    '--signing-secret-file',
    fileWith(fresh),
  ]);
  assert.deepEqual(
    [finished.code, finished.stdout, finished.stderr],
    [
      0,
      '',
      `Replaced the signing secret of token ${id}. The old one stays valid for 7200 seconds.\n`,
    ],
  );
  const [row] =
    await file.sql`select expires_at - interval '2 hours' between created_at and now() as exact
      from webhook.signing_secrets where token_id = ${id} and expires_at is not null`;
  assert.equal(row?.exact, true);
  const statuses = async () => [
    (await sendAs('github', token, SIGNING_SECRETS.github)).status,
    (await sendAs('github', token, fresh)).status,
  ];
  assert.deepEqual(await statuses(), [200, 200]);
  // A second rotation does not shorten the validity of the earlier secrets.
  await run(['rotate', id, '--overlap', '5h', '--signing-secret-file', fileWith('a third secret')]);
  assert.deepEqual(await statuses(), [200, 200]);
  const [limits] = await file.sql`
    select count(*) filter (where expires_at < now() + interval '2 hours')::int as soon,
      count(*)::int as all from webhook.signing_secrets where token_id = ${id}`;
  assert.deepEqual({ ...limits }, { soon: 1, all: 3 });
  await file.sql`update webhook.signing_secrets set expires_at = now() where token_id = ${id}
    and expires_at is not null`;
  assert.deepEqual(await statuses(), [401, 401]);
  assert.equal((await sendAs('github', token, 'a third secret')).status, 200);
});

test('two concurrent rotations of a token leave two working tokens', async () => {
  const { id } = await create('twice at once');
  const finished = await Promise.all([run(['rotate', id]), run(['rotate', id])]);
  const [one = '', other = ''] = finished.map(tokenIn);
  assert.notEqual(one, other);
  assert.deepEqual([await use(one), await use(other)], [200, 200]);
});

test('two concurrent rotations of a signing secret leave working secrets', async () => {
  const { id, token } = await withSecret('stripe');
  const fresh = ['whsec_of_the_one', 'whsec_of_the_other'];
  const finished = await Promise.all(
    fresh.map((secret) => run(['rotate', id, '--signing-secret-file', fileWith(secret)])),
  );
  assert.deepEqual(
    finished.map(({ code }) => code),
    [0, 0],
  );
  for (const secret of [...fresh, SIGNING_SECRETS.stripe])
    assert.equal((await sendAs('stripe', token, secret)).status, 200, secret);
});

test('the last use of a token is listed soon afterwards', async () => {
  const fresh = await create('used for the first time');
  const old = await create('used again');
  const unused = await create('never used');
  await file.sql`update webhook.tokens set last_used_at = now() - interval '2 minutes'
    where id = ${old.id}`;
  const before = (await one(old.id))?.last_used_at;
  assert.deepEqual([await use(fresh.token), await use(old.token)], [200, 200]);
  for (let tries = 0; ; tries += 1) {
    const tokens = new Map((await list()).map((token) => [token.id, token.last_used_at]));
    assert.equal(tokens.get(unused.id), null);
    if (tokens.get(fresh.id) !== null && tokens.get(old.id) !== before) break;
    assert.ok(tries < 300, 'shown in vain');
  }
  assert.match((await lineOf(fresh.id)).at(-7) ?? '', /^\d{4}-\d\d-\d\dT/);
});

test('tokens and signing secrets appear in no output, table or log', async () => {
  const rows = await file.sql`select t::text as row from webhook.tokens t union all select s::text
      from webhook.signing_secrets s union all select e.headers::text from webhook.events e`;
  const places = [
    ...written,
    ...rows.map(({ row }) => String(row)),
    gatehouse.stdout(),
    gatehouse.stderr(),
  ].join('\n');
  assert.ok(secrets.size > 10 && places.includes('used for the first time'));
  for (const secret of secrets) {
    for (const form of [
      secret,
      Buffer.from(secret).toString('hex'),
      Buffer.from(secret).toString('base64').replace(/=+$/, ''),
    ])
      assert.ok(!places.includes(form), form);
  }
});
