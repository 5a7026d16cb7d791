/**
 * In which forms a session token is taken, and in which it is not: as bearer, in a query and in a
 * body alike.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ask, launch, logIn, assertStatus } from '../../../support/gatehouse.ts';
import { assertError, sessionOf } from '../../../support/users.ts';

const { identity } = await launch(['identity'], { TRUSTED_PROXIES: '127.0.0.1' });
const bearer = await logIn(identity);
const token = await logIn(identity);
const { id } = await sessionOf(identity, token);
const uuid = token.slice('session:'.length);
const base64 = (text: string) => Buffer.from(text).toString('base64');

const asBearer = (form: string) => ask('GET', `${identity}/api/test/`, { bearer: form });
const asQuery = (form: string) =>
  ask('GET', `${identity}/api/session/info?session=${encodeURIComponent(form)}`, { bearer });
const asBody = (form: string) =>
  ask('POST', `${identity}/api/auth/session`, { body: { session: form } });

const accepted: Readonly<Record<string, string>> = {
  'the plain token': token,
  'the whole in Base64': base64(token),
  'the whole in Base64 without padding': base64(token).replace('=', ''),
  'the whole in Base64url': Buffer.from(token).toString('base64url'),
  '"session:" and the Base64 of the token': `session:${base64(token)}`,
  '"session:" and the Base64url of the token': `session:${Buffer.from(token).toString('base64url')}`,
};

for (const [what, form] of Object.entries(accepted)) {
  test(`a token is taken as ${what}`, async () => {
    assert.equal((await asBearer(form)).status, 200);
    for (const answer of [await asQuery(form), await asBody(form)]) {
      assert.equal(answer.status, 200, answer.text);
      assert.equal(answer.json.data.id, id);
    }
  });
}

const refused: Readonly<Record<string, string>> = {
  'the UUID alone': uuid,
  'the UUID alone in Base64': base64(uuid),
  '"session:" and the Base64 of the UUID alone': `session:${base64(uuid)}`,
  "the session's id": id,
  'the session\'s id behind "session:"': `session:${id}`,
  'upper case hex': `session:${uuid.toUpperCase()}`,
  'an upper case prefix': `Session:${uuid}`,
  'another prefix': `sessions:${uuid}`,
  'the prefix twice': `session:${token}`,
  'the prefix alone': 'session:',
  'a UUID without hyphens': `session:${uuid.replaceAll('-', '')}`,
  'a UUID in braces': `session:{${uuid}}`,
  'one digit too many': `${token}0`,
  'one digit too few': token.slice(0, -1),
  'Base64 of Base64': base64(base64(token)),
  'Base64 with a sign too many': `${base64(token)}=`,
  'Base64 with garbage behind its padding': `${base64(token)}QUJD`,
  // The last digit before the padding carries two bits that must be zero: "A" to "B" changes only
  // those.
  'Base64 that is not canonical': base64(token).replace(
    /(.)=$/,
    (_, last: string) => `${String.fromCharCode(last.charCodeAt(0) + 1)}=`,
  ),
  'Base64 of the token and a newline': base64(`${token}\n`),
  'hex of the token': Buffer.from(token).toString('hex'),
  'two tokens': `${token},${token}`,
  'a token as a percent escape would have it': encodeURIComponent(token),
  'a very long text': 'A'.repeat(4_000),
  'a token that nobody has': `session:00000000-0000-4000-8000-000000000000`,
};

for (const [what, form] of Object.entries(refused)) {
  test(`a token is not taken as ${what}`, async () => {
    assert.notEqual(form, token);
    assertError(await asBearer(form), 401, 'unauthorized');
    assertError(await asQuery(form), 400, 'invalid_session_token');
    assertError(await asBody(form), 401, 'invalid_session');
  });
}

test('white space is not part of a token', async () => {
  for (const form of [
    '',
    ` ${token}`,
    `${token} `,
    `${token}\n`,
    `${base64(token).slice(0, 20)}\n${base64(token).slice(20)}`,
    `${token}\0`,
  ]) {
    assertError(await asQuery(form), 400, 'invalid_session_token');
    assertError(await asBody(form), 401, 'invalid_session');
  }
});

test('Base64 padding need not be escaped in a query', async () => {
  const answer = await ask('GET', `${identity}/api/session/info?session=${base64(token)}`, {
    bearer,
  });
  assert.equal(answer.json.data.id, id);
});

test('the name of the scheme may be in any case', async () => {
  for (const scheme of ['bearer', 'BEARER']) {
    assertStatus(
      await ask('GET', `${identity}/api/test/`, {
        headers: { authorization: `${scheme} ${token}` },
      }),
      200,
    );
  }
});
