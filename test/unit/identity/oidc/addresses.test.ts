/** Which addresses a program may register, and which count as registered. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isRegistered, redirectProblem } from '../../../../src/identity/oidc/addresses.ts';
import { hostileAddresses } from '../../../support/hostile-addresses.ts';
import { wordsOf } from '../../../support/words.ts';

const CALLBACK = 'https://app.example.net/callback';
const NATIVE = ['http://127.0.0.1/cb', 'http://localhost:8000', 'app.example:/cb'];

test('an address must be the registered one, character by character', () => {
  assert.equal(isRegistered(CALLBACK, ['https://app.example.net/other', CALLBACK]), true);
  const similar = wordsOf(`
    ${CALLBACK}/ ${CALLBACK}?a=b ${CALLBACK}#a ${CALLBACK}%20 https://app.example.net/Callback
    https://APP.example.net/callback https://app.example.net:443/callback
    http://app.example.net/callback https://app.example.net.evil.example/callback
    https://app.example.net@evil.example/callback https://app.example.net/callback/../evil
    https://evil.example/?https://app.example.net/callback //app.example.net/callback
    javascript:alert(1)
  `);
  for (const address of ['', ...similar, ...hostileAddresses('app.example.net')])
    assert.equal(isRegistered(address, [CALLBACK]), false, address);
});

test('on the machine of the person, only the port is free', () => {
  for (const address of ['http://127.0.0.1:49152/cb', 'http://localhost:18000', ...NATIVE])
    assert.equal(isRegistered(address, NATIVE), true, address);
  const refused = wordsOf(`
    http://127.0.0.1:99999/cb http://127.0.0.1:80@evil.example/cb
    http://127.0.0.1.evil.example/cb http://127.0.0.1:1/other https://127.0.0.1:1/cb
    http://localhost:80@evil.example http://localhost.evil.example:1 http://[::1]:1/cb
    app.example:/other other.example:/cb
  `);
  for (const address of [...refused, ...hostileAddresses('127.0.0.1:80')])
    assert.equal(isRegistered(address, NATIVE), false, address);
});

test('an address is registered only if nobody else can take it', () => {
  for (const address of [CALLBACK, ...NATIVE, 'http://[::1]:8000/cb'])
    assert.equal(redirectProblem(address), null, address);
  for (const address of [
    ...wordsOf('http://app.example.net/callback https://*.example.net/ https://app.example.net/#a'),
    ...wordsOf('https://ada@app.example.net/ javascript:alert(1) data:text/html,x nonsense'),
    ...wordsOf('http://127.0.0.1.evil.example/ http://localhost@evil.example/ app:/cb'),
    ...[
      'https://app.example.net/a b',
      'https://ä.example/',
      `https://a.example/${'a'.repeat(2_048)}`,
    ],
  ])
    assert.notEqual(redirectProblem(address), null, address);
});
