/** `token test` says of a captured request what the service answers. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { makeTemporary, removeTemporary } from '../../../scripts/temporary.ts';
import { runCommand } from '../../support/commands.ts';
import { createDatabase } from '../../support/database.ts';
import { ask, startGatehouse } from '../../support/gatehouse.ts';
import {
  addToken,
  openWebhook,
  signatureOf,
  SIGNING_SECRETS,
  WEBHOOK_SECRET,
} from '../../support/senders.ts';

const directory = makeTemporary(tmpdir(), 'gatehouse-token-test');
after(() => removeTemporary(directory));
const file = join(directory, 'request');
const { url: databaseUrl } = await createDatabase({ after });
const gatehouse = await startGatehouse({ after }, ['webhook'], databaseUrl, { WEBHOOK_SECRET });
const database = openWebhook({ after }, databaseUrl);

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
  const url = `${gatehouse.url.webhook}/webhook`;
  const answer = await ask('POST', url, { bearer: token, body: request.body, headers });
  assert.equal(answer.status, status, answer.text);
  assert.equal(result.code, status < 300 ? 0 : 1, result.stdout + result.stderr);
  return result;
}

test('the headers of Svix are those of Standard Webhooks by another name', async () => {
  const sender = await addToken(database, 'standard', SIGNING_SECRETS.standard);
  const body = '{"type":"contact.created"}';
  const signed = Object.entries(signatureOf('standard', SIGNING_SECRETS.standard, body));
  const svix = signed.map(([name, value]) => [name.replace('webhook-', 'svix-'), value] as const);
  const { stdout } = await compare(sender, { body, headers: Object.fromEntries(svix) }, 200);
  assert.match(stdout, /signature: valid\n/);
  const { 'svix-id': id = '', ...others } = Object.fromEntries(svix);
  assert.notEqual(id, '');
  const { stderr } = await compare(sender, { body, headers: others }, 401);
  assert.match(stderr, /lacks the header webhook-id\./);
});
