/** Where the services listen, which database each has, and what an operator is warned of. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { Server } from 'node:net';
import { networkInterfaces } from 'node:os';
import { test } from 'node:test';
import type { ServiceName } from '../../src/serve.ts';
import { ask, startGatehouse } from '../support/gatehouse.ts';
import { freePorts } from '../support/ports.ts';
import { type Given, LONG, problems, readGiven, SERVICES } from '../support/settings.ts';

const ONE = { HOST: '192.0.2.1', PORT: '9' };
const OWN = { PORT: '9', SECRETS_PORT: '10', HOST: '192.0.2.1', SECRETS_HOST: '192.0.2.2' };
const BOTH = ['0.0.0.0:3000', '0.0.0.0:8080'];
const LISTENERS: ReadonlyArray<
  readonly [what: string, services: readonly ServiceName[], given: Given, at: readonly string[]]
> = [
  ['HOST and PORT name webhook', SERVICES, ONE, [...BOTH, '192.0.2.1:9']],
  ['HOST and PORT name identity alone', ['identity'], ONE, ['192.0.2.1:9']],
  ['HOST and PORT name secrets alone', ['secrets'], ONE, ['192.0.2.1:9']],
  ['PORT is of neither of two without webhook', ['identity', 'secrets'], { PORT: '9' }, BOTH],
  ['a service that is named twice runs alone', ['identity', 'identity'], ONE, ['192.0.2.1:9']],
  ['the prefixed name overrides HOST and PORT', ['secrets'], OWN, ['192.0.2.2:10']],
  ['without any, each has a port', SERVICES, {}, [...BOTH, '0.0.0.0:8000']],
];

for (const [what, services, given, expected] of LISTENERS) {
  test(what, () => {
    const config = readGiven(given, services);
    const read = [config.identity, config.secrets, config.webhook].flatMap((one) => one ?? []);
    assert.deepEqual(
      read.map(({ host, port }) => `${host}:${port}`),
      expected,
    );
  });
}

test('a listener that is taken, or of another machine, is rejected by name and variable', async (t) => {
  const [port = ''] = await freePorts(1);
  const taken = (name: string) =>
    `${name} cannot listen on .*:${port} \\(EADDRINUSE\\): the port is in use; set ${name.toUpperCase()}_PORT to another one\\.$`;
  const away = (host: string, code: string) =>
    `identity cannot listen on ${host}:0 \\(${code}\\): set IDENTITY_HOST to an address `;
  const cases: ReadonlyArray<readonly [said: string, given: Given, ...services: ServiceName[]]> = [
    [taken('secrets'), { IDENTITY_PORT: port, SECRETS_PORT: port }, 'identity', 'secrets'],
    [
      taken('webhook'),
      { IDENTITY_PORT: port, PORT: port, WEBHOOK_PORT: '' },
      'identity',
      'webhook',
    ],
    [taken('metrics'), { SECRETS_PORT: port, METRICS_PORT: port }, 'secrets'],
    // 192.0.2.0/24 is for documentation (RFC 5737): no machine has it.
    [away('192.0.2.1', 'EADDRNOTAVAIL'), { IDENTITY_HOST: '192.0.2.1' }, 'identity'],
    [away('no address', 'ENOTFOUND'), { IDENTITY_HOST: 'no address' }, 'identity'],
  ];
  for (const [said, given, ...services] of cases) {
    const started = startGatehouse(t, services, 'postgres://u@127.0.0.1:9/none', given);
    await assert.rejects(started, new RegExp(said));
  }
});

test('a port that needs a right of the system is rejected by its variable', async (t) => {
  // Which ports these are, and who may use them, differs between machines.
  t.mock.method(Server.prototype, 'listen', function (this: Server) {
    const denied = Object.assign(new Error('permission denied'), { code: 'EACCES' });
    process.nextTick(() => this.emit('error', denied));
    return this;
  });
  const given = { WEBHOOK_PORT: '443' };
  await assert.rejects(startGatehouse(t, ['webhook'], 'postgres://u@127.0.0.1:9/none', given), {
    message:
      'webhook cannot listen on 127.0.0.1:443 (EACCES): set WEBHOOK_PORT to a port above 1023.',
  });
});

const hasIpv6 = Object.values(networkInterfaces())
  .flatMap((all = []) => all)
  .some(({ address }) => address === '::1');
test(
  'a service that listens on :: serves IPv4 and IPv6',
  hasIpv6 ? {} : { skip: 'this machine has no ::1' },
  async (t) => {
    const given = { WEBHOOK_VARIANT: 'plain', WEBHOOK_HOST: '::' };
    const { url } = await startGatehouse(t, ['webhook'], undefined, given);
    const { port } = new URL(url.webhook);
    for (const host of ['127.0.0.1', '[::1]'])
      assert.equal((await ask('GET', `http://${host}:${port}/livez`)).status, 200, host);
  },
);

test('the metrics listener is local if it has no host', () => {
  const { metrics } = readGiven({ METRICS_PORT: '9100' });
  assert.deepEqual(metrics, { host: '127.0.0.1', port: 9100 });
});

test('the database URL of a service overrides DATABASE_URL', () => {
  for (const name of SERVICES) {
    const own = { [`${name.toUpperCase()}_DATABASE_URL`]: 'postgres://u@elsewhere.example/own' };
    const config = readGiven(own);
    for (const one of SERVICES) {
      const expected = one === name ? 'elsewhere.example' : 'localhost';
      assert.equal(config[one]?.database?.hosts[0]?.name, expected);
    }
    assert.deepEqual(problems({ DATABASE_URL: undefined, ...own }, [name]), []);
  }
});

test('the limits of database connections have defaults, and bounds', () => {
  const given = {
    DATABASE_STATEMENT_TIMEOUT: 60,
    DATABASE_LOCK_TIMEOUT: 3,
    DATABASE_DEAD_AFTER: 61,
  };
  const texts = Object.entries(given).map(([name, value]) => [name, String(value)]);
  const { secrets } = readGiven(Object.fromEntries(texts), ['secrets']);
  assert.deepEqual(secrets?.database.limits, given);
  assert.deepEqual(problems({ DATABASE_STATEMENT_TIMEOUT: '15' }), [
    'DATABASE_DEAD_AFTER must be more than DATABASE_STATEMENT_TIMEOUT.',
  ]);
  assert.deepEqual(problems({ DATABASE_LOCK_TIMEOUT: '0' }), [
    'DATABASE_LOCK_TIMEOUT must be a whole number from 1 to 300.',
  ]);
});

test('a service that does not run needs no settings, and a command only those of the database', () => {
  const unset = { SERVER_SECRET: undefined, AUTH_TOKEN: undefined };
  const plain = { DATABASE_URL: undefined, WEBHOOK_VARIANT: 'plain' };
  assert.deepEqual(problems(unset, ['identity', 'webhook']), []);
  assert.deepEqual(problems(plain, ['webhook']), []);
  const given = { ...unset, METRICS_PORT: '8080' };
  assert.deepEqual(problems(given, SERVICES, 'administer'), []);
  assert.equal(problems({ DATABASE_URL: undefined }, ['identity'], 'administer').length, 1);
  // A token is made in the database also where this environment serves the plain variant.
  const { webhook } = readGiven({ WEBHOOK_VARIANT: 'plain' }, ['webhook'], 'administer');
  assert.equal(webhook?.database?.database, 'gatehouse');
});

test('a secret of fewer than 16 characters is an error unless ALLOW_WEAK_SECRETS is on', () => {
  const weak = {
    SERVER_SECRET: 'b',
    AUTH_TOKEN: 'a',
    AUTH_TOKEN_PREVIOUS: `${LONG},${'a'.repeat(15)}`,
    WEBHOOK_SECRET: 'c'.repeat(15),
    WEBHOOK_TOKEN: 'd',
  };
  const command = 'openssl rand -hex 32';
  const advice = `make a long random one with: ${command}. Only for tests, ALLOW_WEAK_SECRETS=on accepts it.`;
  const names = Object.keys(weak);
  const expected = names.map((name) => `${name} has fewer than 16 characters; ${advice}`);
  assert.deepEqual([...problems(weak)].sort(), expected.sort());
  assert.deepEqual(problems({ ...weak, ALLOW_WEAK_SECRETS: 'on' }), []);
  const advised = execFileSync('sh', ['-c', command], { encoding: 'utf8' }).trim();
  for (const name of [...names, 'IDENTITY_SECRET'])
    for (const secret of ['a'.repeat(16), advised])
      assert.deepEqual(problems({ [name]: secret }), [], name);
});

const SEALING = ['SERVER_SECRET', 'WEBHOOK_SECRET', 'IDENTITY_SECRET'];
const remote = 'postgres://u@db.example/d';
const WARNED: ReadonlyArray<readonly [given: Given, ...warnings: RegExp[]]> = [
  ...[...SEALING, 'AUTH_TOKEN', 'WEBHOOK_TOKEN'].flatMap((name) => [
    [{ [name]: 'a'.repeat(31) }, new RegExp(`^${name} has fewer than 32 characters`)] as const,
    [{ [name]: 'a'.repeat(32) }] as const,
  ]),
  ...SEALING.map((name) => {
    const previous = `${name}_PREVIOUS`;
    const said = new RegExp(`^${previous} has fewer than 32 characters`);
    return [{ [name]: LONG, [previous]: `${LONG},b` }, said] as const;
  }),
  [
    { ALLOW_WEAK_SECRETS: 'on', AUTH_TOKEN: 'a' },
    /^ALLOW_WEAK_SECRETS is/,
    /^AUTH_TOKEN has fewer/,
  ],
  // Once for all services.
  [{ DATABASE_URL: remote }, /database at db\.example:5432 may be unencrypted/],
  [{ DATABASE_URL: `${remote}?sslmode=disable` }, /database at db\.example:5432 is not encrypted/],
  [{ DATABASE_URL: 'postgres://u@localhost,db.example/d' }, /database at db\.example:5432 may/],
  [{ DATABASE_URL: `${remote}?sslmode=require` }],
  [{ WEBHOOK_DATABASE_URL: remote }, /may be unencrypted/],
  [{ WEBHOOK_VARIANT: 'plain' }, /accepts events from anyone/],
  [{ WEBHOOK_VARIANT: 'plain', WEBHOOK_TOKEN: LONG }],
];

test('an operator is warned of short secrets, and of a connection that others can read', () => {
  for (const [given, ...expected] of WARNED) {
    const { warnings } = readGiven(given);
    assert.equal(warnings.length, expected.length, warnings.join('\n'));
    for (const [index, said] of expected.entries()) assert.match(warnings[index] ?? '', said);
  }
});

test('the earlier values of a secret that seals require the present one', () => {
  for (const name of ['WEBHOOK_SECRET', 'IDENTITY_SECRET'])
    assert.deepEqual(problems({ [`${name}_PREVIOUS`]: LONG }), [
      `${name}_PREVIOUS requires ${name}.`,
    ]);
});
