/** `token test` says of a captured request what the service answers. */
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { makeTemporary, removeTemporary } from '../../../scripts/temporary.ts';
import { runCommand } from '../../support/commands.ts';
import { ask } from '../../support/gatehouse.ts';
import { addOperator, OPERATOR_TOKEN } from '../../support/inbox.ts';
import { addToken, signedBy, SIGNING_SECRETS, WEBHOOK_SECRET } from '../../support/senders.ts';
import { launchWebhook } from '../../support/webhook.ts';

const directory = makeTemporary(tmpdir(), 'gatehouse-token-test');
after(() => removeTemporary(directory));
const file = join(directory, 'request');
const { sql, databaseUrl, database, base } = await launchWebhook();

interface Captured {
  readonly body: string;
  readonly headers?: Readonly<Record<string, string>>;
}
type Token = Awaited<ReturnType<typeof addToken>>;

const JSON_TYPE = { 'content-type': 'application/json' };

/** Runs `token test` on the request. */
function examine(id: string, { body, headers }: Captured, secret = WEBHOOK_SECRET) {
  const lines = Object.entries({ ...JSON_TYPE, ...headers }).map(
    ([name, value]) => `${name}: ${value}\r\n`,
  );
  writeFileSync(file, `${lines.join('')}\r\n${body}`);
  const environment = { DATABASE_URL: databaseUrl, WEBHOOK_SECRET: secret };
  return runCommand(['token', 'test', id, '--request', file], environment);
}

/** Also sends the request, and checks that the service answers with `status`. */
async function compare({ id, token }: Token, request: Captured, status: number) {
  const result = await examine(id, request);
  const headers = { ...JSON_TYPE, ...request.headers };
  const url = base;
  const answer = await ask('POST', url, { bearer: token, body: request.body, headers });
  assert.equal(answer.status, status, answer.text);
  assert.equal(result.code, status < 300 ? 0 : 1, result.stdout + result.stderr);
  return result;
}

test('the headers of Svix are those of Standard Webhooks by another name', async () => {
  const sender = await addToken(database, 'standard');
  const body = '{"type":"contact.created"}';
  const signed = Object.entries(signedBy('standard', body));
  const svix = signed.map(([name, value]) => [name.replace('webhook-', 'svix-'), value] as const);
  const { stdout } = await compare(sender, { body, headers: Object.fromEntries(svix) }, 200);
  assert.match(stdout, /signature: valid\n/);
  const { 'svix-id': id = '', ...others } = Object.fromEntries(svix);
  assert.notEqual(id, '');
  const { stderr } = await compare(sender, { body, headers: others }, 401);
  assert.match(stderr, /lacks the header svix-id\./);
});

const PAGE = '{"event":"page.updated","data":{"page_id":"p"}}';

test('the verdict on headers and body is that of the service', async () => {
  const generic = await addToken(database, 'generic');
  await compare(generic, { body: PAGE }, 200);
  const incomplete = await compare(generic, { body: '{"event":"a","data":{}}' }, 400);
  assert.match(incomplete.stderr, /^body: \/data\/page_id: /m);
  const plain = { body: PAGE, headers: { 'content-type': 'text/plain' } };
  const refused = await compare(generic, plain, 415);
  assert.match(refused.stderr, /^body: Send the body with "Content-Type: application\/json"/m);

  const linear = await addToken(database, 'linear');
  const body = '{"action":"create"}';
  const signature = signedBy('linear', body);
  const untimed = await compare(
    linear,
    { body, headers: { ...signature, 'linear-event': 'Issue' } },
    401,
  );
  assert.match(untimed.stderr, /^body: \/webhookTimestamp/m);

  const github = await addToken(database, 'github');
  const unpaired = '{"data":{"page_id":"\\ud800"}}';
  const signed = signedBy('github', unpaired);
  const push = { body: unpaired, headers: { ...signed, 'x-github-event': 'push' } };
  const { stderr } = await compare(github, push, 400);
  assert.match(stderr, /^body: \/data\/page_id: /m);
});

test('the token of an operator sends no events', async () => {
  await addOperator(sql);
  const operator = { id: 'an operator', token: OPERATOR_TOKEN };
  const { stderr } = await compare(operator, { body: PAGE }, 401);
  assert.match(stderr, /token of an operator, which sends no events/);
});

test('a handshake and a signing secret are accepted without an event', async () => {
  const discord = await addToken(database, 'discord');
  const body = '{"type":0}';
  const headers = signedBy('discord', body);
  const ping = await compare(discord, { body, headers }, 204);
  assert.match(ping.stdout, /handshake, which is answered and not stored/);

  const notion = await addToken(database, 'notion', null);
  const secret = JSON.stringify({ verification_token: SIGNING_SECRETS.notion });
  const first = await compare(notion, { body: secret }, 200);
  assert.match(first.stdout, /signing secret, which waits for: gatehouse token confirm/);
  assert.ok(!first.stdout.includes(SIGNING_SECRETS.notion));
});

test('WEBHOOK_SECRET is needed for a token with signing secrets only, and must be theirs', async () => {
  const generic = await addToken(database, 'generic');
  const unsigned = await examine(generic.id, { body: PAGE }, '');
  assert.equal(unsigned.code, 0, unsigned.stderr);

  const github = await addToken(database, 'github');
  const other = 'another-webhook-secret-for-tests-0123456789';
  const unknown = await examine(github.id, { body: '{}' }, other);
  assert.equal(unknown.code, 1);
  assert.match(unknown.stderr, /WEBHOOK_SECRET is missing or wrong/);
  const absent = await examine(github.id, { body: '{}' }, '');
  assert.equal(absent.code, 78);
});

test('the source, header, prefix or time that the request has instead is named', async () => {
  const github = await addToken(database, 'github');
  const body = '{"a":1}';
  const sign = (text: string) =>
    createHmac('sha256', SIGNING_SECRETS.github).update(text).digest('hex');
  const bitbucket = { 'x-hub-signature': `sha256=${sign(body)}`, 'x-github-event': 'push' };
  const other = await examine(github.id, { body, headers: bitbucket });
  assert.match(other.stderr, /lacks the header x-hub-signature-256\./);
  assert.match(other.stderr, /^It verifies with --source bitbucket\.$/m);
  const timed = { 'x-shop': `t=1700000000,v1=${sign(`1700000000.${body}`)}` };
  const inside = await examine(github.id, { body, headers: timed });
  const place = '--signature-header x-shop --signature-prefix v1= --time x-shop';
  const words = "--signed-text '{timestamp}.{body}' --algorithm hmac-sha256 --encoding hex";
  assert.ok(inside.stderr.includes(`It verifies with ${place} ${words}.\n`), inside.stderr);
  const apart = { 'x-shop': sign(`1700000000.${body}`), 'x-shop-time': '1700000000' };
  const beside = await examine(github.id, { body, headers: apart });
  const header = '--signature-header x-shop --time x-shop-time';
  assert.ok(beside.stderr.includes(`It verifies with ${header} ${words}.\n`), beside.stderr);
});

test('only options that token create accepts are proposed', async () => {
  const github = await addToken(database, 'github');
  const body = '{"a":1}';
  const digest = createHmac('sha512', SIGNING_SECRETS.github).update(body).digest('hex');
  const headers = { 'x-hub-signature-256': `sha256=${digest}`, 'x-github-event': 'push' };
  const { stderr } = await examine(github.id, { body, headers });
  const proposed = stderr.match(/^It verifies .*$/gm);
  const words = "--signed-text '{body}' --algorithm hmac-sha512 --encoding hex";
  assert.deepEqual(proposed, [`It verifies with ${words}.`]);
});
