/** Headers of a sender that could change what a target, or a proxy before it, understands. */
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { makeTemporary, removeTemporary } from '../../../scripts/temporary.ts';
import { sealSecret } from '../../../src/platform/crypto/service-secret.ts';
import { createSigningKey } from '../../../src/webhook/service.ts';
import type { CustomSource } from '../../../src/webhook/sources.ts';
import { createForwardTarget } from '../../../src/webhook/targets/forward.ts';
import { createDatabase } from '../../support/database.ts';
import { ask, startGatehouse } from '../../support/gatehouse.ts';
import { startRecorder } from '../../support/recorder.ts';
import { openWebhook, WEBHOOK_SECRET } from '../../support/senders.ts';
import { runCommand } from '../../support/commands.ts';
import { createToken } from '../../support/tokens.ts';
import { untilSql } from '../../support/connections.ts';
import { deliverOnce, leasedEvent } from '../../support/webhook-store.ts';
import { wordsOf } from '../../support/words.ts';

const OF_MESSAGE = wordsOf(`
  Host Connection Keep-Alive Transfer-Encoding TE Trailer Upgrade Expect Content-Length
  Content_Length Content-Encoding Proxy-Connection Proxy-Authorization Cookie
`);
const TRUSTED = wordsOf(`
  Authorization Forwarded Via X-Forwarded-For X_Forwarded_For X-Forwarded-Host X-Real-IP
  X-Auth-Username x.auth.groups X-Original-URL True-Client-IP
`);
const ALL = [...OF_MESSAGE, ...TRUSTED];

const directory = makeTemporary(tmpdir(), 'gatehouse-headers');
after(() => removeTemporary(directory));
const SECRET = 'the secret of a custom sender';
const secretFile = join(directory, 'secret');
writeFileSync(secretFile, SECRET);
const { url: databaseUrl, sql } = await createDatabase();
const database = openWebhook({ after }, databaseUrl);

test('a custom source cannot take its values from such a header', async () => {
  const environment = { DATABASE_URL: databaseUrl, WEBHOOK_SECRET };
  const create = (options: Readonly<Record<string, string>>) => {
    const given = { '--signature-header': 'X-Sig', '--event-name': '/type', ...options };
    const words = ['token', 'create', '--source', 'custom', '--signing-secret-file', secretFile];
    return runCommand([...words, ...Object.entries(given).flat()], environment);
  };
  const count = async () => (await sql`select from webhook.tokens`).length;
  const first = await create({ '--signature-header': 'Authorization' });
  assert.equal(first.code, 0, first.stderr);
  const before = await count();
  for (const header of ALL) {
    const named: Array<Readonly<Record<string, string>>> = [
      { '--event-name': header },
      { '--delivery-id': header },
      { '--delivery-id': header, '--signed-text': '{id}{body}' },
    ];
    if (OF_MESSAGE.includes(header))
      named.push(
        { '--signature-header': header },
        { '--time': header, '--signed-text': '{timestamp}{body}' },
      );
    for (const options of named) {
      const { code, stderr } = await create(options);
      assert.equal(code, 2, `${JSON.stringify(options)}: ${stderr}`);
      assert.ok(stderr.includes(`cannot be ${header.toLowerCase()}`), stderr);
    }
  }
  assert.equal(await count(), before);
});

test('such a header is not forwarded, whatever is stored with an event', async (t) => {
  const recorder = await startRecorder(t);
  recorder.answer((response) => response.end());
  const url = new URL(`http://127.0.0.1:${recorder.port}/`);
  const target = createForwardTarget({ url, secret: null, allowPrivate: true }, 1);
  const body = Buffer.from('{"type":"a"}');
  for (const header of ALL) {
    for (const name of [header, header.toLowerCase(), header.toUpperCase()]) {
      const headers = { 'content-type': 'application/json', 'x-kind': 'kept', [name]: 'chunked' };
      assert.equal(await deliverOnce(target, leasedEvent({ headers, body })), null, name);
      const got = recorder.received.at(-1);
      assert.ok(got);
      assert.equal(got.headers['x-kind'], 'kept');
      assert.equal(got.headers['content-length'], String(body.length));
      assert.equal(got.headers.host, url.host);
      const values = Object.values(got.headers);
      assert.ok(!values.includes('chunked'), `${name}: ${JSON.stringify(got.headers)}`);
    }
  }
});

test('such a header is neither stored nor forwarded, even if a token keeps the signature', async (t) => {
  const recorder = await startRecorder(t);
  recorder.answer((response) => response.end());
  const gatehouse = await startGatehouse(t, ['webhook'], databaseUrl, {
    WEBHOOK_SECRET,
    WEBHOOK_FORWARD_URL: `http://127.0.0.1:${recorder.port}/`,
    WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
  });
  const custom: CustomSource = {
    scheme: { header: 'authorization', prefix: 'hmac ' },
    event: ['/type', 'x-forwarded-host'],
    deliveryId: ['cookie'],
  };
  const sealed = sealSecret(createSigningKey(WEBHOOK_SECRET), SECRET);
  const given = { name: 'custom', role: 'sender', source: 'custom', custom } as const;
  const { id, token } = await createToken(database, given, sealed);
  await sql`update webhook.tokens set keep_signature = true where id = ${id}`;
  const body = '{"type":"a"}';
  const signature = createHmac('sha256', SECRET).update(body).digest('hex');
  const { status, json } = await ask('POST', `${gatehouse.url.webhook}/webhook?token=${token}`, {
    body,
    headers: {
      authorization: `hmac ${signature}`,
      'x-forwarded-host': 'evil.example',
      cookie: 'session=x',
      'user-agent': 'sender',
    },
  });
  assert.equal(status, 200);
  const [row] = await sql`select headers from webhook.events where id = ${json.id}`;
  const stored = Object.keys(Object(row?.headers)).toSorted();
  assert.deepEqual(stored, ['content-type', 'user-agent', 'x-request-id']);
  await untilSql(async () => recorder.received.length > 0, 'the event is forwarded');
  const text = JSON.stringify(recorder.received.at(-1)?.headers);
  assert.ok(!/hmac|evil|session/.test(text), text);
});
