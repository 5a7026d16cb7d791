/**
 * Signing secrets, rotations at once, and what `token test` says of a captured request.
 * `transcripts/tokens.txt` and `targets.txt` have the rest.
 */
import assert from 'node:assert/strict';
import { createHmac, randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { runCommand } from '../../support/commands.ts';
import { untilSql } from '../../support/connections.ts';
import { makeDirectory } from '../../support/directories.ts';
import { ask } from '../../support/gatehouse.ts';
import { addOperator, OPERATOR_TOKEN } from '../../support/inbox.ts';
import {
  addToken,
  signatureOf,
  signedBy,
  type SignedSource,
  SIGNING_SECRETS,
  WEBHOOK_SECRET,
} from '../../support/senders.ts';
import { launchWebhook } from '../../support/webhook.ts';

const directory = makeDirectory({ after }, 'tokens');
const settings = { WEBHOOK_SECRET };
const { sql, databaseUrl, database, base, stdout, stderr } = await launchWebhook(settings);
await addOperator(sql);

/** As senders had them before such secrets were refused. */
const SPACED = ' a secret of GitHub ';
/** For `token test`. */
const senders = {
  standard: await addToken(database, 'standard'),
  generic: await addToken(database, 'generic'),
  linear: await addToken(database, 'linear'),
  github: await addToken(database, 'github'),
  discord: await addToken(database, 'discord'),
  notion: await addToken(database, 'notion', null),
  spaced: await addToken(database, 'github', SPACED),
  operator: { id: 'an operator', token: OPERATOR_TOKEN },
};

const run = (words: readonly string[], input = '') =>
  runCommand(['token', ...words], { DATABASE_URL: databaseUrl, ...settings }, input);

/** Asserts that standard output is one token. */
function tokenIn({ code, stdout, stderr }: Awaited<ReturnType<typeof run>>) {
  assert.equal(code, 0, stderr);
  assert.match(stdout, /^[A-Za-z0-9_-]{43}\n$/);
  assert.match(stderr, /\nToken \(shown only once\):\n$/);
  const token = stdout.trim();
  return { token, id: /[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/.exec(stderr)?.[0] ?? '' };
}
async function send(source: SignedSource, token: string, secret: string): Promise<number> {
  const body = JSON.stringify({ id: `evt_${randomUUID()}`, type: 'x' });
  const signature = signatureOf(source, secret, body, { id: randomUUID() });
  const headers = { 'x-github-event': 'push', ...signature };
  return (await ask('POST', `${base}?token=${token}`, { body, headers })).status;
}

test('a signing secret from standard input applies at once, with any end of its line', async () => {
  const words = ['create', '--source', 'github', '--signing-secret-file', '-'];
  const secret = SIGNING_SECRETS.github;
  for (const end of ['', '\n', '\r\n']) {
    const { token } = tokenIn(await run(words, secret + end));
    assert.equal(await send('github', token, secret), 200);
    assert.equal(await send('github', token, `${secret.slice(0, -4)}AAAA`), 401);
  }
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
  const file = join(directory, 'secret');
  writeFileSync(file, `${SIGNING_SECRETS.stripe}\n`);
  const { token: signed } = tokenIn(
    await run(['create', '--source=stripe', '--signing-secret-file', file]),
  );
  assert.equal(await send('stripe', signed, SIGNING_SECRETS.stripe), 200);

  const list = async () => (await run(['list', '--json'])).stdout;
  const isUsed = async () => {
    const listed: Array<{ id: string; last_used_at: string | null }> = JSON.parse(await list());
    return listed.some((one) => one.id === id && one.last_used_at !== null);
  };
  await untilSql(isUsed, 'the use is listed');
  const rows = await sql`select t::text as row from webhook.tokens t union all select s::text
      from webhook.signing_secrets s union all select e.headers::text from webhook.events e`;
  const printed = [await list(), (await run(['list'])).stdout, stdout(), stderr()];
  const places = [...printed, ...rows.map(({ row }) => String(row))].join('\n');
  assert.ok(places.includes('twice at once'));
  for (const secret of [...tokens, signed, SIGNING_SECRETS.stripe])
    for (const encoding of ['utf8', 'hex', 'base64'] as const) {
      const form = Buffer.from(secret).toString(encoding).replace(/=+$/, '');
      assert.ok(!places.includes(form), form);
    }
});

type Headers = Readonly<Record<string, string>>;
const JSON_TYPE = { 'content-type': 'application/json' };

/** Runs `token test` on the request. */
function examine(id: string, body: string, headers: Headers = {}, secret = WEBHOOK_SECRET) {
  const all = Object.entries({ ...JSON_TYPE, ...headers });
  const file = join(directory, 'request');
  writeFileSync(file, `${all.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n${body}`);
  const environment = { DATABASE_URL: databaseUrl, WEBHOOK_SECRET: secret };
  return runCommand(['token', 'test', id, '--request', file], environment);
}

const PAGE = '{"event":"page.updated","data":{"page_id":"p"}}';
const standard = '{"type":"contact.created"}';
const svix: Headers = Object.fromEntries(
  Object.entries(signedBy('standard', standard)).map(([name, value]) => [
    name.replace('webhook-', 'svix-'),
    value,
  ]),
);
const { 'svix-id': _id, ...withoutId } = svix;
const untimed = signedBy('standard', standard, { at: 'soon' });
const trimmed = { ...signatureOf('github', SPACED.trim(), standard), 'x-github-event': 'push' };
const action = '{"action":"create"}';
const unpaired = '{"data":{"page_id":"\\ud800"}}';
const push = { ...signedBy('github', unpaired), 'x-github-event': 'push' };
const handed = JSON.stringify({ verification_token: SIGNING_SECRETS.notion });
type Verdict = readonly [keyof typeof senders, number, RegExp, body: string, headers?: Headers];
const VERDICTS: readonly Verdict[] = [
  ['standard', 200, /signature: valid\n/, standard, svix],
  ['standard', 401, /lacks the header svix-id\./, standard, withoutId],
  ['generic', 200, /./, PAGE],
  ['generic', 400, /^body: \/data\/page_id: /m, '{"event":"a","data":{}}'],
  ['generic', 415, /^body: Send the body with "Content-/m, PAGE, { 'content-type': 'text/plain' }],
  ['linear', 401, /^body: \/webhookTimestamp/m, action, signedBy('linear', action)],
  ['github', 400, /^body: \/data\/page_id: /m, unpaired, push],
  ['github', 415, /^body: unsupported_media_type$/m, '{}', { 'content-encoding': 'gzip' }],
  ['operator', 401, /token of an operator, which sends no events/, PAGE],
  ['discord', 204, /handshake, which is answered/, '{"type":0}', signedBy('discord', '{"type":0}')],
  ['notion', 401, /^The token has no active signing secret\.$/m, '{"type":"page.created"}'],
  ['standard', 401, /^The signed time is neither a number /m, standard, untimed],
  ['spaced', 401, /^It verifies without the spaces around the secret\.$/m, standard, trimmed],
  ['notion', 200, /signing secret, which waits for: gatehouse token confirm/, handed],
];

test('the verdict on headers and body is that of the service', async () => {
  for (const [name, status, said, body, headers = {}] of VERDICTS) {
    const { id, token } = senders[name];
    const { code, stdout, stderr } = await examine(id, body, headers);
    const answer = await ask('POST', base, {
      bearer: token,
      body,
      headers: { ...JSON_TYPE, ...headers },
    });
    assert.equal(answer.status, status, answer.text);
    assert.equal(code, status < 300 ? 0 : 1, stdout + stderr);
    assert.match(stdout + stderr, said);
    assert.ok(!stdout.includes(SIGNING_SECRETS.notion));
  }
});

test('WEBHOOK_SECRET is needed for a token with signing secrets only, and must be theirs', async () => {
  const unsigned = await examine(senders.generic.id, PAGE, {}, '');
  assert.equal(unsigned.code, 0, unsigned.stderr);
  const unknown = await examine(senders.github.id, '{}', {}, 'x'.repeat(40));
  assert.equal(unknown.code, 1);
  assert.match(unknown.stderr, /WEBHOOK_SECRET is missing or wrong/);
  assert.equal((await examine(senders.github.id, '{}', {}, '')).code, 78);
});

test('the source, header, prefix or time that the request has instead is named', async () => {
  const body = '{"a":1}';
  const sign = (text: string, algorithm = 'sha256') =>
    createHmac(algorithm, SIGNING_SECRETS.github).update(text).digest('hex');
  const bitbucket = { 'x-hub-signature': `sha256=${sign(body)}`, 'x-github-event': 'push' };
  const timed = sign(`1700000000.${body}`);
  const inside = { 'x-shop': `t=1700000000,v1=${timed}` };
  const apart = { 'x-shop': timed, 'x-shop-time': '1700000000' };
  const longer = {
    'x-hub-signature-256': `sha256=${sign(body, 'sha512')}`,
    'x-github-event': 'push',
  };
  const words = "--signed-text '{timestamp}.{body}' --algorithm hmac-sha256 --encoding hex";
  for (const [headers, proposed] of [
    [bitbucket, '--source bitbucket'],
    [inside, `--signature-header x-shop --signature-prefix v1= --time x-shop ${words}`],
    [apart, `--signature-header x-shop --time x-shop-time ${words}`],
    // Nothing that token create would not accept.
    [longer, "--signed-text '{body}' --algorithm hmac-sha512 --encoding hex"],
  ] as const) {
    const { stderr } = await examine(senders.github.id, body, headers);
    assert.ok(stderr.includes(`It verifies with ${proposed}.\n`), stderr);
    if (headers === longer) assert.equal(stderr.match(/^It verifies /gm)?.length, 1);
    if (headers === bitbucket) assert.match(stderr, /lacks the header x-hub-signature-256\./);
  }
});
