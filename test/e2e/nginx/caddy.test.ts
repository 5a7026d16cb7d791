/** The documented Caddy configuration on a real Caddy, if one is installed. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { bearer, NAMES } from './access.ts';
import { testFailingClosed, testForwardAuth, testPreflights } from './cases.ts';
import {
  documented,
  documentedBlock,
  identityOf,
  type ProxySetup,
  request,
  startProxySetup,
} from './setup.ts';
import { findProgram, start } from '../programs.ts';

const caddy = findProgram('caddy');

async function startCaddy(
  program: string,
  setup: ProxySetup,
  change: (configuration: string) => string = (same) => same,
): Promise<number> {
  const { port } = await start(
    { after },
    {
      name: 'caddy',
      unprivileged: true,
      prepare(directory, free) {
        const configuration = documented('caddy', {
          'app.example.org': 'http://app.example.org',
          'id.example.org': 'http://id.example.org',
          '127.0.0.1:3000': `127.0.0.1:${setup.gatehouse.port}`,
          '127.0.0.1:5000': `127.0.0.1:${setup.upstream.port}`,
        });
        const file = join(directory, 'Caddyfile');
        const options = `{\n\tadmin off\n\thttp_port ${free}\n\tdefault_bind 127.0.0.1\n}\n\n`;
        writeFileSync(file, options + change(configuration));
        return { command: [program, 'run', '--config', file, '--adapter', 'caddyfile'] };
      },
    },
  );
  return port;
}

const STRIPPING = '\t\trequest_header -X-Auth*\n';

/**
 * What `forward_auth` expanded to before Caddy 2.11.2 (CVE-2026-30851): empty reply headers are not
 * copied.
 */
function asBefore2112(configuration: string): string {
  const copy = (name: string) => {
    const value = `{http.reverse_proxy.header.${name}}`;
    return `				@has-${name} not vars ${value} ""\n				request_header @has-${name} ${name} ${value}`;
  };
  const expanded = configuration.replace(
    /forward_auth @guarded (\S+) \{[^}]*\}/,
    (_, gatehouse: string) => `
		reverse_proxy @guarded ${gatehouse} {
			method GET
			rewrite /api/auth/verify?
			@good status 2xx
			handle_response @good {
${NAMES.map(copy).join('\n')}
			}
		}`,
  );
  assert.notEqual(expanded, configuration);
  return expanded;
}

if (caddy === undefined) {
  const reason = 'Caddy is not installed and the package manager could not install it';
  test('Caddy guards a program', { skip: reason }, () => {});
} else {
  const setup = await startProxySetup();
  const proxy = { port: await startCaddy(caddy, setup), statusWithoutGatehouse: 502 };
  await testForwardAuth(setup, proxy);

  test('removing client headers blocks forged ones on a Caddy that skips empty headers', async () => {
    const { key, id } = await setup.addKey(setup.admin, { user_id: null });
    const headers = [['X-Auth-User-Id', 'forged'], ...bearer(key)] as const;
    const identity = async (change: (configuration: string) => string) => {
      const answer = await request(await startCaddy(caddy, setup, change), { headers });
      assert.equal(answer.status, 200, answer.text);
      return identityOf(answer.json);
    };
    const expected = { 'x-auth-super-admin': 'false', 'x-auth-key-id': id };
    assert.deepEqual(await identity(asBefore2112), expected);
    const without = (configuration: string) => asBefore2112(configuration).replace(STRIPPING, '');
    assert.deepEqual(await identity(without), { ...expected, 'x-auth-user-id': 'forged' });
  });

  test('headers that some languages normalize to ours never reach the program', async () => {
    const { port } = proxy;
    const spellings = [
      (name: string) => name.replaceAll('-', '_'),
      (name: string) => name.replaceAll('-', '_').toLowerCase(),
      (name: string) => name.replaceAll('-', '_').toUpperCase(),
      (name: string) => name.replaceAll('-', '.'),
      (name: string) => name.replace('Auth-', 'Auth_'),
      (name: string) => name.replace('X-', 'X_'),
      (name: string) => name.replace('X-', 'x.'),
    ];
    for (const path of ['/', '/login']) {
      for (const spell of spellings) {
        const forged = NAMES.map((name) => [spell(name), 'true'] as const);
        const headers = [...forged, ...bearer(setup.admin)];
        const answer = await request(port, { path, headers });
        assert.equal(answer.status, 200);
        const own = Object.keys(identityOf(answer.json));
        const expected = NAMES.map((name) => name.toLowerCase());
        assert.deepEqual(
          own.filter((name) => !expected.includes(name)),
          [],
          spell('X-Auth-Email'),
        );
        assert.equal(
          identityOf(answer.json)['x-auth-username'],
          path === '/' ? 'admin' : undefined,
        );
      }
    }
  });

  test('with the documented exception, a preflight reaches the program and nothing else', async () => {
    const block = documentedBlock('docs/proxy-caddy.md', 'reverse_proxy @preflight');
    const [matcher = '', pass = ''] = block.split('# in "route", before "forward_auth"\n');
    const port = await startCaddy(caddy, setup, (configuration) =>
      configuration
        .replace('\troute {\n', `${matcher}\troute {\n`)
        .replace('\t\tforward_auth @admin', `${pass}\t\tforward_auth @admin`)
        .replaceAll('127.0.0.1:5000', `127.0.0.1:${setup.upstream.port}`),
    );
    await testPreflights(setup, port);
  });

  testFailingClosed(setup, proxy);
}
