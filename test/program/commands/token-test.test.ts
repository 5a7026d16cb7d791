/** `token test` says of a captured request what the service answers. */
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { runCommand } from '../../support/commands.ts';
import { makeDirectory } from '../../support/directories.ts';
import { ask } from '../../support/gatehouse.ts';
import { addOperator, OPERATOR_TOKEN } from '../../support/inbox.ts';
import { addToken, signedBy, SIGNING_SECRETS, WEBHOOK_SECRET } from '../../support/senders.ts';
import { launchWebhook } from '../../support/webhook.ts';

const directory = makeDirectory({ after }, 'token-test');
const { sql, databaseUrl, database, base } = await launchWebhook();

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
const action = '{"action":"create"}';
const unpaired = '{"data":{"page_id":"\\ud800"}}';
const push = { ...signedBy('github', unpaired), 'x-github-event': 'push' };
const handed = JSON.stringify({ verification_token: SIGNING_SECRETS.notion });
await addOperator(sql);
const tokens = {
  standard: await addToken(database, 'standard'),
  generic: await addToken(database, 'generic'),
  linear: await addToken(database, 'linear'),
  github: await addToken(database, 'github'),
  discord: await addToken(database, 'discord'),
  notion: await addToken(database, 'notion', null),
  operator: { id: 'an operator', token: OPERATOR_TOKEN },
};

type Verdict = readonly [keyof typeof tokens, number, RegExp, body: string, headers?: Headers];
const VERDICTS: readonly Verdict[] = [
  ['standard', 200, /signature: valid\n/, standard, svix],
  ['standard', 401, /lacks the header svix-id\./, standard, withoutId],
  ['generic', 200, /./, PAGE],
  ['generic', 400, /^body: \/data\/page_id: /m, '{"event":"a","data":{}}'],
  ['generic', 415, /^body: Send the body with "Content-/m, PAGE, { 'content-type': 'text/plain' }],
  ['linear', 401, /^body: \/webhookTimestamp/m, action, signedBy('linear', action)],
  ['github', 400, /^body: \/data\/page_id: /m, unpaired, push],
  ['operator', 401, /token of an operator, which sends no events/, PAGE],
  ['discord', 204, /handshake, which is answered/, '{"type":0}', signedBy('discord', '{"type":0}')],
  ['notion', 200, /signing secret, which waits for: gatehouse token confirm/, handed],
];

test('the verdict on headers and body is that of the service', async () => {
  for (const [name, status, said, body, headers = {}] of VERDICTS) {
    const { id, token } = tokens[name];
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
  const unsigned = await examine(tokens.generic.id, PAGE, {}, '');
  assert.equal(unsigned.code, 0, unsigned.stderr);
  const unknown = await examine(tokens.github.id, '{}', {}, 'x'.repeat(40));
  assert.equal(unknown.code, 1);
  assert.match(unknown.stderr, /WEBHOOK_SECRET is missing or wrong/);
  assert.equal((await examine(tokens.github.id, '{}', {}, '')).code, 78);
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
    const { stderr } = await examine(tokens.github.id, body, headers);
    assert.ok(stderr.includes(`It verifies with ${proposed}.\n`), stderr);
    if (headers === longer) assert.equal(stderr.match(/^It verifies /gm)?.length, 1);
    if (headers === bitbucket) assert.match(stderr, /lacks the header x-hub-signature-256\./);
  }
});
