/** Where the services listen, which database each has, and what an operator is warned of. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { networkInterfaces } from 'node:os';
import { test } from 'node:test';
import type { ServiceName } from '../../src/serve.ts';
import { ask, startGatehouse } from '../support/gatehouse.ts';
import { freePorts } from '../support/ports.ts';
import { type Given, LONG, NEEDED, problems, readGiven, SERVICES } from '../support/settings.ts';

const listeners: ReadonlyArray<
  readonly [what: string, services: readonly ServiceName[], given: Given, expected: Given]
> = [
  [
    'HOST and PORT name the webhook listener',
    SERVICES,
    { HOST: '192.0.2.1', PORT: '9' },
    { identity: '0.0.0.0:3000', secrets: '0.0.0.0:8080', webhook: '192.0.2.1:9' },
  ],
  [
    'HOST and PORT name the listener of identity alone',
    ['identity'],
    { HOST: '192.0.2.1', PORT: '9' },
    { identity: '192.0.2.1:9' },
  ],
  [
    'HOST and PORT name the listener of secrets alone',
    ['secrets'],
    { HOST: '192.0.2.1', PORT: '9' },
    { secrets: '192.0.2.1:9' },
  ],
  [
    'PORT applies to neither of two services without the webhook receiver',
    ['identity', 'secrets'],
    { PORT: '9' },
    { identity: '0.0.0.0:3000', secrets: '0.0.0.0:8080' },
  ],
  [
    'a service that is named twice runs alone',
    ['identity', 'identity'],
    { HOST: '192.0.2.1', PORT: '9' },
    { identity: '192.0.2.1:9' },
  ],
  [
    'the prefixed name overrides HOST and PORT',
    ['secrets'],
    { PORT: '9', SECRETS_PORT: '10', HOST: '192.0.2.1', SECRETS_HOST: '192.0.2.2' },
    { secrets: '192.0.2.2:10' },
  ],
  [
    'WEBHOOK_PORT overrides PORT',
    SERVICES,
    { PORT: '9', WEBHOOK_PORT: '10' },
    { identity: '0.0.0.0:3000', secrets: '0.0.0.0:8080', webhook: '0.0.0.0:10' },
  ],
];

for (const [what, services, given, expected] of listeners) {
  test(what, () => {
    const config = readGiven(given, services);
    const found = SERVICES.flatMap((name) =>
      config[name] ? [[name, `${config[name].host}:${config[name].port}`]] : [],
    );
    assert.deepEqual(Object.fromEntries(found), expected);
  });
}

test('of two listeners on one port, the second one is rejected by name', async (t) => {
  const [port = ''] = await freePorts(1);
  for (const [names, variables, said] of [
    [['identity', 'secrets'], { IDENTITY_PORT: port, SECRETS_PORT: port }, 'secrets'],
    [['identity', 'webhook'], { IDENTITY_PORT: port, PORT: port, WEBHOOK_PORT: '' }, 'webhook'],
    [['secrets'], { SECRETS_PORT: port, METRICS_PORT: port }, 'metrics'],
  ] as const) {
    await assert.rejects(
      startGatehouse(t, names, 'postgres://u@127.0.0.1:9/none', variables),
      new RegExp(
        `${said} cannot listen on .*:${port} \\(EADDRINUSE\\): the port is in use; set ${said.toUpperCase()}_PORT to another one\\.$`,
      ),
    );
  }
});

test('an address of another machine, or none at all, is rejected with the variable', async (t) => {
  for (const [host, code] of [
    // 192.0.2.0/24 is for documentation (RFC 5737): no machine has it.
    ['192.0.2.1', 'EADDRNOTAVAIL'],
    ['no address', 'ENOTFOUND'],
  ] as const)
    await assert.rejects(
      startGatehouse(t, ['identity'], NEEDED.DATABASE_URL, { IDENTITY_HOST: host }),
      new RegExp(
        `identity cannot listen on ${host}:0 \\(${code}\\): set IDENTITY_HOST to an address `,
      ),
    );
});

const hasIpv6 = Object.values(networkInterfaces())
  .flatMap((all = []) => all)
  .some(({ address }) => address === '::1');
test(
  'a service that listens on :: serves IPv4 and IPv6',
  hasIpv6 ? {} : { skip: 'this machine has no ::1' },
  async (t) => {
    const [port = ''] = await freePorts(1);
    await startGatehouse(t, ['webhook'], undefined, {
      WEBHOOK_VARIANT: 'plain',
      WEBHOOK_HOST: '::',
      WEBHOOK_PORT: port,
    });
    for (const host of ['127.0.0.1', '[::1]'])
      assert.equal((await ask('GET', `http://${host}:${port}/livez`)).status, 200, host);
  },
);

test('the metrics listener is off by default, and local if it has no host', () => {
  assert.equal(readGiven({}).metrics, null);
  assert.deepEqual(readGiven({ METRICS_PORT: '9100' }).metrics, {
    host: '127.0.0.1',
    port: 9100,
  });
});

test('the database URL of a service overrides DATABASE_URL', () => {
  for (const name of SERVICES) {
    const own = { [`${name.toUpperCase()}_DATABASE_URL`]: 'postgres://u@elsewhere.example/own' };
    const config = readGiven(own);
    const hosts = SERVICES.map((one) => config[one]?.database?.hosts[0]?.name);
    assert.deepEqual(
      hosts,
      SERVICES.map((one) => (one === name ? 'elsewhere.example' : 'localhost')),
    );
    assert.deepEqual(problems({ DATABASE_URL: undefined, ...own }, [name]), []);
  }
});

test('the limits of database connections have defaults, and bounds', () => {
  const limits = (given: Given) => readGiven(given, ['secrets']).secrets?.database.limits;
  assert.deepEqual(limits({}), {
    DATABASE_STATEMENT_TIMEOUT: 10,
    DATABASE_LOCK_TIMEOUT: 10,
    DATABASE_DEAD_AFTER: 15,
  });
  const given = {
    DATABASE_STATEMENT_TIMEOUT: '60',
    DATABASE_LOCK_TIMEOUT: '3',
    DATABASE_DEAD_AFTER: '61',
  };
  assert.deepEqual(limits(given), {
    DATABASE_STATEMENT_TIMEOUT: 60,
    DATABASE_LOCK_TIMEOUT: 3,
    DATABASE_DEAD_AFTER: 61,
  });
  assert.deepEqual(problems({ DATABASE_STATEMENT_TIMEOUT: '15' }), [
    'DATABASE_DEAD_AFTER must be more than DATABASE_STATEMENT_TIMEOUT.',
  ]);
  assert.deepEqual(problems({ DATABASE_LOCK_TIMEOUT: '0' }), [
    'DATABASE_LOCK_TIMEOUT must be a whole number from 1 to 300.',
  ]);
});

test('a service that does not run needs no settings', () => {
  assert.deepEqual(
    problems({ SERVER_SECRET: undefined, AUTH_TOKEN: undefined }, ['identity', 'webhook']),
    [],
  );
  assert.deepEqual(
    problems({ DATABASE_URL: undefined, WEBHOOK_VARIANT: 'plain' }, ['webhook']),
    [],
  );
});

test('a command needs only the database settings', () => {
  assert.deepEqual(
    problems(
      { SERVER_SECRET: undefined, AUTH_TOKEN: undefined, METRICS_PORT: '8080' },
      SERVICES,
      'administer',
    ),
    [],
  );
  assert.equal(problems({ DATABASE_URL: undefined }, ['identity'], 'administer').length, 1);
  // A token is made in the database also where this environment serves the plain variant.
  assert.equal(
    readGiven({ WEBHOOK_VARIANT: 'plain' }, ['webhook'], 'administer').webhook?.database?.database,
    'gatehouse',
  );
});

test('a secret of fewer than 16 characters is an error unless ALLOW_WEAK_SECRETS is on', () => {
  const weak = {
    SERVER_SECRET: 'b',
    AUTH_TOKEN: 'a',
    AUTH_TOKEN_PREVIOUS: `${LONG},${'a'.repeat(15)}`,
    WEBHOOK_SECRET: 'c'.repeat(15),
    WEBHOOK_TOKEN: 'd',
  };
  const advice =
    'make a long random one with: openssl rand -hex 32. Only for tests, ALLOW_WEAK_SECRETS=on accepts it.';
  const expected = Object.keys(weak).map(
    (name) => `${name} has fewer than 16 characters; ${advice}`,
  );
  assert.deepEqual([...problems(weak)].sort(), expected.sort());
  assert.deepEqual(problems({ ...weak, ALLOW_WEAK_SECRETS: 'on' }), []);
  for (const name of Object.keys(weak)) {
    assert.deepEqual(problems({ [name]: 'a'.repeat(16) }), [], name);
  }
});

test('what the advice about short secrets prints is accepted for every secret', () => {
  const [advice = ''] = problems({ SERVER_SECRET: 'b' });
  const command = /openssl [a-z0-9 -]+[a-z0-9]/.exec(advice)?.[0] ?? '';
  const secret = execFileSync('sh', ['-c', command], { encoding: 'utf8' }).trim();
  for (const name of ['SERVER_SECRET', 'AUTH_TOKEN', 'WEBHOOK_SECRET', 'WEBHOOK_TOKEN']) {
    assert.deepEqual(problems({ [name]: secret }), [], name);
  }
  assert.deepEqual(problems({ IDENTITY_SECRET: secret }), []);
});

test('the earlier values of a secret that seals require the present one', () => {
  assert.deepEqual(problems({ WEBHOOK_SECRET_PREVIOUS: LONG }), [
    'WEBHOOK_SECRET_PREVIOUS requires WEBHOOK_SECRET.',
  ]);
  assert.deepEqual(problems({ IDENTITY_SECRET_PREVIOUS: LONG }), [
    'IDENTITY_SECRET_PREVIOUS requires IDENTITY_SECRET.',
  ]);
});

const SEALING = [
  'SERVER_SECRET',
  'WEBHOOK_SECRET',
  'IDENTITY_SECRET',
  'AUTH_TOKEN',
  'WEBHOOK_TOKEN',
] as const;
const tooShort = (name: string) => new RegExp(`^${name} has fewer than 32 characters`);
const remote = 'postgres://u@db.example/d';
const warned: ReadonlyArray<readonly [what: string, given: Given, warnings: readonly RegExp[]]> = [
  ...SEALING.map(
    (name) => [`a short ${name}`, { [name]: 'a'.repeat(31) }, [tooShort(name)]] as const,
  ),
  ...SEALING.slice(0, 3).map((name) => {
    const given = { [name]: LONG, [`${name}_PREVIOUS`]: `${LONG},b` };
    return [`a short ${name}_PREVIOUS`, given, [tooShort(`${name}_PREVIOUS`)]] as const;
  }),
  [
    'weak secrets that are allowed',
    { ALLOW_WEAK_SECRETS: 'on', AUTH_TOKEN: 'a' },
    [/^ALLOW_WEAK_SECRETS is on/, /^AUTH_TOKEN has fewer/],
  ],
  ['nothing at 32 characters', { SERVER_SECRET: 'a'.repeat(32), AUTH_TOKEN: 'b'.repeat(32) }, []],
  [
    'a remote database without TLS, once for all services',
    { DATABASE_URL: remote },
    [/database at db\.example:5432 may be unencrypted/],
  ],
  [
    'a remote database with sslmode=disable',
    { DATABASE_URL: `${remote}?sslmode=disable` },
    [/database at db\.example:5432 is not encrypted/],
  ],
  [
    'one remote host among several',
    { DATABASE_URL: 'postgres://u@localhost,db.example/d' },
    [/database at db\.example:5432 may/],
  ],
  ['nothing if a remote database uses TLS', { DATABASE_URL: `${remote}?sslmode=require` }, []],
  [
    'an unencrypted database of one service',
    { WEBHOOK_DATABASE_URL: remote },
    [/may be unencrypted/],
  ],
  [
    'a plain webhook receiver without a token',
    { WEBHOOK_VARIANT: 'plain' },
    [/accepts events from anyone/],
  ],
  [
    'nothing if a plain webhook receiver has a token',
    { WEBHOOK_VARIANT: 'plain', WEBHOOK_TOKEN: LONG },
    [],
  ],
];

for (const [what, given, expected] of warned) {
  test(`a warning is logged for ${what}`, () => {
    const { warnings } = readGiven(given);
    assert.equal(warnings.length, expected.length, warnings.join('\n'));
    expected.forEach((pattern, index) => assert.match(warnings[index] ?? '', pattern));
  });
}
