/** Database URLs: what is accepted, as in libpq, and what an operator is told of the rest. */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import os, { userInfo } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { parseUrl } from '../../../src/platform/db/url.ts';
import { Expected } from '../../../src/platform/runtime/env.ts';
import { makeDirectory } from '../../support/directories.ts';

const hosts = (...names: readonly string[]) => names.map((name) => ({ name, port: 5432 }));
const USUAL = {
  hosts: hosts('db.example'),
  database: 'd',
  user: 'u',
  password: '',
  applicationName: 'gatehouse',
  sslmode: 'prefer',
  certificates: null,
  target: 'any',
  connectSeconds: 5,
};
const here = (name: string, port = 5432) => ({ hosts: [{ name, port }], sslmode: 'disable' });
const SEVERAL = { hosts: hosts('a.example', '::1'), target: 'read-write' };
const { username: user } = userInfo();
const ENCODED = 'postgres://a%40b:p%2Fq%3A%25%E2%82%AC@db.example/d%20e';

const accepted: ReadonlyArray<readonly [url: string, expected: Partial<typeof USUAL>]> = [
  ['postgres://u@db.example/d', {}],
  ['postgresql://u@db.example/d?', {}],
  ['postgres://u:p:q@db.example/d', { password: 'p:q' }],
  [ENCODED, { user: 'a@b', password: 'p/q:%€', database: 'd e' }],
  ['postgres://u@[2001:db8::5]:6543/d', { hosts: [{ name: '2001:db8::5', port: 6543 }] }],
  ['postgres://u@[::1]/d', here('::1')],
  ['postgres://u@127.0.0.1/d', here('127.0.0.1')],
  ['postgres:///d', { ...here('localhost'), user }],
  ['postgres://localhost/d', { ...here('localhost'), user }],
  ['postgres://u@/d', here('localhost')],
  // Unix sockets
  ['postgres://u@%2Fvar%2Frun%2Fpostgresql/d', here('/var/run/postgresql')],
  ['postgres://u@%2Ftmp:6543/d', here('/tmp', 6543)],
  ['postgres://u@/d?host=/cloudsql/project:region:name', here('/cloudsql/project:region:name')],
  ['postgres://u@:6543/d?host=%2Ftmp', here('/tmp', 6543)],
  // several hosts
  ['postgres://u@a.example,[::1]/d', SEVERAL],
  ['postgres://u@/d?host=a.example,::1', SEVERAL],
  ['postgres://u@a.example,[::1]/d?target_session_attrs=any', { ...SEVERAL, target: 'any' }],
  ['postgres://u@db.example/d?target_session_attrs=primary', { target: 'primary' }],
  // other parameters
  ...['disable', 'prefer', 'require', 'verify-ca', 'verify-full'].map(
    (sslmode) => [`postgres://u@db.example/d?sslmode=${sslmode}`, { sslmode }] as const,
  ),
  ['postgres://u@db.example/d?sslmode=verify-full&sslrootcert=system', { sslmode: 'verify-full' }],
  ['postgres://u@db.example/d?connect_timeout=2', { connectSeconds: 2 }],
  ['postgres://u@db.example/d?application_name=my%20app', { applicationName: 'my app' }],
  ['postgres://u@db.example/d?channel_binding=prefer', {}],
];

for (const [url, expected] of accepted) {
  test(`${url} is accepted`, () => assert.deepEqual(parseUrl(url), { ...USUAL, ...expected }));
}

const FORM = 'postgres://user:password@host:5432/database';
const LOCAL = 'postgres://u@localhost/d';
const tls = join(import.meta.dirname, '../vectors/tls');
const CA = `sslmode=verify-full&sslrootcert=${tls}/ca.crt`;
const CLIENT = `sslcert=${tls}/client.crt`;

/** How each message begins, and the URLs for which it is given. */
const WRONG: Readonly<Record<string, readonly string[]>> = {
  [FORM]: [
    'localhost:5432/d',
    'mysql://u@localhost/d',
    'postgres://u@localhost',
    'postgres://u@localhost/',
    `${LOCAL}#x`,
    `${LOCAL}/e`,
    // U+0000 ends a string in PostgreSQL's protocol.
    'postgres://u%00x@localhost/d',
    'postgres://u:p%00x@localhost/d',
    `${LOCAL}%00x`,
    `${LOCAL}?application_name=a%00b`,
  ],
  [`${FORM}, with a port up to 65535`]: [
    'postgres://u@localhost:0/d',
    'postgres://u@localhost:70000/d',
    'postgres://u@localhost:1e3/d',
    'postgres://u@::1/d',
  ],
  // Characters of a password that must be encoded. No part of it is shown.
  [`${FORM}; in the user and the password, write @ as %40, / as %2F, ? as %3F, # as %23 and % as %25`]:
    [
      'postgres://u:p@ss@localhost/d',
      'postgres://u:pa/ss@localhost/d',
      'postgres://u:pa?ss@localhost/d',
      'postgres://u:pa#ss@localhost/d',
      'postgres://u:1/a?ss=1@localhost/d',
      'postgres://u:100%@localhost/d',
      'postgres://u:%E0%A4@localhost/d',
      `${LOCAL}?sslmode=%`,
    ],
  'a URL that names its hosts either before the database or in "host"': [
    'postgres://u@a.example:5432/d?host=b.example',
  ],
  'a URL without the parameter "schema"; the parameters are sslmode, sslrootcert, sslcert, sslkey, host, target_session_attrs, connect_timeout, application_name, channel_binding':
    [`${LOCAL}?sslmode=require&schema=public`],
  'a URL without the parameter "SSLMODE"; ': [`${LOCAL}?SSLMODE=require`],
  'a URL without the parameter "__proto__"; ': [`${LOCAL}?__proto__=x`],
  'a URL whose sslmode is one of disable, prefer, require, verify-ca, verify-full': [
    `${LOCAL}?sslmode=allow`,
    `${LOCAL}?sslmode=REQUIRE`,
  ],
  'a URL in which sslmode has one value': [
    `${LOCAL}?sslmode=`,
    `${LOCAL}?sslmode`,
    `${LOCAL}?sslmode=disable&sslmode=verify-full`,
  ],
  'a URL whose target_session_attrs is one of any, read-write, primary': [
    `${LOCAL}?target_session_attrs=standby`,
  ],
  'a URL whose connect_timeout is a whole number from 1 to 99': [`${LOCAL}?connect_timeout=0`],
  'a URL whose application_name is at most 40 ASCII characters': [
    `${LOCAL}?application_name=caf%C3%A9`,
    `${LOCAL}?application_name=${'a'.repeat(41)}`,
  ],
  'a URL whose channel_binding is "prefer" or "disable": ': [`${LOCAL}?channel_binding=require`],
  'a URL whose options is absent, because poolers drop it; ': [`${LOCAL}?options=-c%20x%3Dy`],
  'a URL with sslmode=verify-full beside its sslrootcert or sslcert': [
    `postgres://u@db.example/d?sslrootcert=${tls}/ca.crt`,
    `${LOCAL}?sslmode=prefer&${CLIENT}&sslkey=${tls}/client.key`,
    `${LOCAL}?sslmode=require&sslrootcert=system`,
  ],
  'a URL with both sslcert and sslkey, or neither': [`${LOCAL}?${CA}&${CLIENT}`],
  'a URL whose sslrootcert, sslcert and sslkey are PEM files that fit (': [
    `${LOCAL}?${CA}.absent`,
    `${LOCAL}?sslmode=verify-full&sslrootcert=${tls}/client.key`,
    `${LOCAL}?${CA}&${CLIENT}&sslkey=${tls}/server.key`,
    `${LOCAL}?${CA}&${CLIENT}&sslkey=${tls}/ca.crt`,
  ],
};

for (const [message, urls] of Object.entries(WRONG)) {
  for (const url of urls)
    test(`${url.replaceAll(tls, '')} is rejected`, () => {
      const isExpected = (error: unknown) =>
        error instanceof Expected &&
        (/[ (]$/.test(message) ? error.message.startsWith(message) : error.message === message);
      assert.throws(() => parseUrl(url), isExpected);
    });
}

test('a key of another type than its certificate is rejected', (t) => {
  const directory = makeDirectory(t, 'key');
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const key = join(directory, 'rsa.key');
  writeFileSync(key, privateKey.export({ type: 'pkcs8', format: 'pem' }));
  assert.throws(() => parseUrl(`${LOCAL}?${CA}&${CLIENT}&sslkey=${key}`), /KEY_TYPE_MISMATCH/);
});

test('sslmode=require with sslrootcert checks the certificate, as in libpq', () => {
  const { sslmode, certificates } = parseUrl(`${LOCAL}?sslmode=require&sslrootcert=${tls}/ca.crt`);
  assert.deepEqual([sslmode, certificates === null], ['verify-ca', false]);
});

test('a user without a name in the system must be named in the URL', (t) => {
  // As with "docker run --user 12345".
  const { mock } = t.mock.method(os, 'userInfo', () => {
    throw new Error('ENOENT');
  });
  syncBuiltinESMExports();
  t.after(() => {
    mock.restore();
    syncBuiltinESMExports();
  });
  assert.throws(() => parseUrl('postgres://localhost/d'), new Expected(FORM));
  assert.equal(parseUrl(LOCAL).user, 'u');
});
