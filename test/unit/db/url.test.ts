/** Database URLs: what is accepted, as in libpq, and what an operator is told of the rest. */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { parseUrl } from '../../../src/platform/db/url.ts';
import { Expected } from '../../../src/platform/runtime/env.ts';
import { variables } from '../../support/gatehouse.ts';
import { buildProgram, runProgram } from '../../support/process.ts';

const host = (name: string, port = 5432) => ({ name, port });
const usual = {
  hosts: [host('db.example')],
  database: 'd',
  user: 'u',
  password: '',
  applicationName: 'gatehouse',
  sslmode: 'prefer',
  certificates: null,
  target: 'any',
  connectSeconds: 5,
};
const here = { hosts: [host('localhost')], sslmode: 'disable' };

const urls: ReadonlyArray<readonly [url: string, expected: Readonly<Record<string, unknown>>]> = [
  ['postgres://u@db.example/d', {}],
  ['postgresql://u@db.example/d', {}],
  ['postgres://u:p@db.example:6543/d', { password: 'p', hosts: [host('db.example', 6543)] }],
  ['postgres://u:p:q@db.example/d', { password: 'p:q' }],
  [
    'postgres://a%40b:p%2Fq%3A%25%E2%82%AC@db.example/d%20e',
    { user: 'a@b', password: 'p/q:%€', database: 'd e' },
  ],
  ['postgres://u@[2001:db8::5]:6543/d', { hosts: [host('2001:db8::5', 6543)] }],
  ['postgres://u@[::1]/d', { hosts: [host('::1')], sslmode: 'disable' }],
  ['postgres://u@127.0.0.1/d', { hosts: [host('127.0.0.1')], sslmode: 'disable' }],
  ['postgres:///d', { ...here, user: userInfo().username }],
  ['postgres://localhost/d', { ...here, user: userInfo().username }],
  ['postgres://u@/d', here],
  ['postgres://u@db.example/d?', {}],
  // Unix sockets
  [
    'postgres://u@%2Fvar%2Frun%2Fpostgresql/d',
    { hosts: [host('/var/run/postgresql')], sslmode: 'disable' },
  ],
  ['postgres://u@%2Ftmp:6543/d', { hosts: [host('/tmp', 6543)], sslmode: 'disable' }],
  [
    'postgres://u:p@/d?host=/cloudsql/project:region:name',
    { hosts: [host('/cloudsql/project:region:name')], password: 'p', sslmode: 'disable' },
  ],
  ['postgres://u@:6543/d?host=%2Ftmp', { hosts: [host('/tmp', 6543)], sslmode: 'disable' }],
  // several hosts
  [
    'postgres://u@a.example,b.example:6543,[::1]/d',
    { hosts: [host('a.example'), host('b.example', 6543), host('::1')], target: 'read-write' },
  ],
  [
    'postgres://u@/d?host=a.example,::1',
    { hosts: [host('a.example'), host('::1')], target: 'read-write' },
  ],
  [
    'postgres://u@a.example,b.example/d?target_session_attrs=primary',
    { hosts: [host('a.example'), host('b.example')], target: 'primary' },
  ],
  [
    'postgres://u@a.example,b.example/d?target_session_attrs=any',
    { hosts: [host('a.example'), host('b.example')], target: 'any' },
  ],
  ['postgres://u@db.example/d?target_session_attrs=read-write', { target: 'read-write' }],
  // other parameters
  ...['disable', 'prefer', 'require', 'verify-ca', 'verify-full'].map(
    (sslmode) => [`postgres://u@db.example/d?sslmode=${sslmode}`, { sslmode }] as const,
  ),
  ['postgres://u@db.example/d?sslmode=verify-full&sslrootcert=system', { sslmode: 'verify-full' }],
  [
    'postgres://u@db.example/d?connect_timeout=2&application_name=my%20app',
    { connectSeconds: 2, applicationName: 'my app' },
  ],
  ['postgres://u@db.example/d?channel_binding=prefer', {}],
  ['postgres://u@db.example/d?channel_binding=disable', {}],
];

for (const [url, expected] of urls) {
  test(`${url} is accepted`, () => assert.deepEqual(parseUrl(url), { ...usual, ...expected }));
}

const FORM = 'postgres://user:password@host:5432/database';
const HINT = `${FORM}; in the user and the password, write @ as %40, / as %2F, ? as %3F, # as %23 and % as %25`;
const PORT = `${FORM}, with a port up to 65535`;
const ONE = 'a URL that names its hosts either before the database or in "host"';
const PARAMETERS =
  'sslmode, sslrootcert, sslcert, sslkey, host, target_session_attrs, connect_timeout, application_name, channel_binding';
const unknown = (name: string) =>
  `a URL without the parameter "${name}"; the parameters are ${PARAMETERS}`;
const SSLMODE = 'a URL whose sslmode is one of disable, prefer, require, verify-ca, verify-full';
const ROOT = 'a URL with sslmode=verify-full beside its sslrootcert or sslcert';
const FILES = 'a URL whose sslrootcert, sslcert and sslkey are PEM files that fit';
const tls = join(import.meta.dirname, '../vectors/tls');

const wrong: ReadonlyArray<readonly [url: string, form: string]> = [
  ['localhost:5432/d', FORM],
  ['/d', FORM],
  ['mysql://u@localhost/d', FORM],
  ['http://u@localhost/d', FORM],
  ['postgres://u@localhost', FORM],
  ['postgres://u@localhost/', FORM],
  ['postgres://u@localhost/d#x', FORM],
  ['postgres://u@localhost/d/e', FORM],
  ['postgres://u@localhost:0/d', PORT],
  ['postgres://u@localhost:70000/d', PORT],
  ['postgres://u@localhost:1e3/d', PORT],
  ['postgres://u@::1/d', PORT],
  // U+0000 ends a string in PostgreSQL's protocol.
  ['postgres://u%00x@localhost/d', FORM],
  ['postgres://u:p%00x@localhost/d', FORM],
  ['postgres://u@localhost/d%00x', FORM],
  ['postgres://u@localhost/d?application_name=a%00b', FORM],
  // characters of a password that must be encoded
  ['postgres://u:p@ss@localhost/d', HINT],
  ['postgres://u:pa/ss@localhost/d', HINT],
  ['postgres://u:pa?ss@localhost/d', HINT],
  ['postgres://u:pa#ss@localhost/d', HINT],
  ['postgres://u:1/a?ss=1@localhost/d', HINT],
  ['postgres://u:p/a@s#s?@localhost/d', HINT],
  ['postgres://u:100%@localhost/d', HINT],
  ['postgres://u:%E0%A4@localhost/d', HINT],
  ['postgres://u@localhost/d?sslmode=%', HINT],
  // hosts
  ['postgres://u@a.example/d?host=/tmp', ONE],
  ['postgres://u@a.example:5432/d?host=b.example', ONE],
  // parameters
  ['postgres://u@localhost/d?sslmode=require&schema=public', unknown('schema')],
  ['postgres://u@localhost/d?SSLMODE=require', unknown('SSLMODE')],
  ['postgres://u@localhost/d?sslmode_FILE=/etc/passwd', unknown('sslmode_FILE')],
  ['postgres://u@localhost/d?__proto__=x', unknown('__proto__')],
  ['postgres://u@localhost/d?sslmode=allow', SSLMODE],
  ['postgres://u@localhost/d?sslmode=REQUIRE', SSLMODE],
  ['postgres://u@localhost/d?sslmode=', 'a URL in which sslmode has one value'],
  ['postgres://u@localhost/d?sslmode', 'a URL in which sslmode has one value'],
  [
    'postgres://u@localhost/d?sslmode=disable&sslmode=verify-full',
    'a URL in which sslmode has one value',
  ],
  [
    'postgres://u@localhost/d?target_session_attrs=standby',
    'a URL whose target_session_attrs is one of any, read-write, primary',
  ],
  [
    'postgres://u@localhost/d?connect_timeout=0',
    'a URL whose connect_timeout is a whole number from 1 to 99',
  ],
  [
    'postgres://u@localhost/d?connect_timeout=-1',
    'a URL whose connect_timeout is a whole number from 1 to 99',
  ],
  [
    'postgres://u@localhost/d?application_name=caf%C3%A9',
    'a URL whose application_name is at most 40 ASCII characters',
  ],
  [
    `postgres://u@localhost/d?application_name=${'a'.repeat(41)}`,
    'a URL whose application_name is at most 40 ASCII characters',
  ],
  [
    'postgres://u@localhost/d?channel_binding=require',
    'a URL whose channel_binding is "prefer" or "disable": the database client has no channel binding. sslmode=verify-full prevents such attacks',
  ],
  [
    'postgres://u@localhost/d?options=-c%20search_path%3Dx',
    'a URL whose options is absent, because poolers drop it; set what you need for the role: ALTER ROLE … SET …',
  ],
  // certificates
  [`postgres://u@db.example/d?sslrootcert=${tls}/ca.crt`, ROOT],
  [
    `postgres://u@db.example/d?sslmode=prefer&sslcert=${tls}/client.crt&sslkey=${tls}/client.key`,
    ROOT,
  ],
  ['postgres://u@db.example/d?sslmode=require&sslrootcert=system', ROOT],
  [
    `postgres://u@db.example/d?sslmode=verify-full&sslcert=${tls}/client.crt`,
    'a URL with both sslcert and sslkey, or neither',
  ],
  [
    `postgres://u@db.example/d?sslmode=verify-full&sslrootcert=${tls}/absent.crt`,
    `${FILES} (ENOENT)`,
  ],
  [
    `postgres://u@db.example/d?sslmode=verify-full&sslrootcert=${tls}/ca.crt&sslcert=${tls}/client.crt&sslkey=${tls}/server.key`,
    `${FILES} (ERR_OSSL_X509_KEY_VALUES_MISMATCH)`,
  ],
  [
    `postgres://u@db.example/d?sslmode=verify-full&sslcert=${tls}/client.crt&sslkey=${tls}/ca.crt`,
    `${FILES} (ERR_OSSL_UNSUPPORTED)`,
  ],
];

for (const [url, form] of wrong) {
  test(`${url.replace(tls, '')} is rejected`, () => {
    const escaped = form.replace(/[.*+?()$^|[\]\\]/g, '\\$&');
    const message = new RegExp(`^${escaped.replace(/ERR_OSSL\w+/, 'ERR_OSSL\\w+')}$`);
    assert.throws(
      () => parseUrl(url),
      (error) => error instanceof Expected && message.test(error.message),
    );
  });
}

test('a key of another type than its certificate is rejected', (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'gatehouse-key-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const key = join(directory, 'rsa.key');
  writeFileSync(key, privateKey.export({ type: 'pkcs8', format: 'pem' }));
  const url = `postgres://u@db.example/d?sslmode=verify-full&sslcert=${tls}/client.crt&sslkey=${key}`;
  const message = `${FILES} (ERR_OSSL_X509_KEY_TYPE_MISMATCH)`;
  assert.throws(() => parseUrl(url), { message });
});

test('a file without a certificate is no sslrootcert', () => {
  const url = `postgres://u@db.example/d?sslmode=verify-full&sslrootcert=${tls}/client.key`;
  assert.throws(() => parseUrl(url), Expected);
});

test('sslmode=require with sslrootcert checks the certificate, as in libpq', () => {
  const result = parseUrl(`postgres://u@db.example/d?sslmode=require&sslrootcert=${tls}/ca.crt`);
  assert.equal(result.sslmode, 'verify-ca');
  assert.ok(result.certificates);
});

test('a wrong URL ends the start with exit code 78, and no part of the password is shown', async (t) => {
  for (const words of [
    ['serve', 'webhook'],
    ['migrate', 'webhook'],
    ['token', 'list'],
  ]) {
    const { code, stdout, stderr } = await runProgram(
      t,
      buildProgram(),
      words,
      variables('postgres://u:123/ge?heim=1@localhost/d'),
    );
    assert.equal(code, 78);
    assert.equal(stderr, `gatehouse: DATABASE_URL must be ${HINT}.\n`);
    assert.doesNotMatch(stdout + stderr, /123|geheim|heim=/);
  }
});
