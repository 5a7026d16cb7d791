/** The configuration for Caddy in FORWARD-AUTH.md, tried on a real Caddy where there is one. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { bearer, NAMES, proveFailingClosed, proveForwardAuth } from './cases.ts';
import { documented, type House, identityOf, startHouse, visit } from './house.ts';
import { findProgram, start } from '../programs.ts';

const caddy = findProgram('caddy');

async function startCaddy(program: string, house: House, change: (configuration: string) => string = (same) => same): Promise<number> {
  const { port } = await start({ after }, {
    name: 'caddy',
    unprivileged: true,
    prepare(directory, free) {
      const configuration = documented('caddy', {
        'app.example.org': 'http://app.example.org',
        'id.example.org': 'http://id.example.org',
        '127.0.0.1:3000': `127.0.0.1:${house.gatehouse.port}`,
        '127.0.0.1:5000': `127.0.0.1:${house.program.port}`,
      });
      writeFileSync(join(directory, 'Caddyfile'), `{\n\tadmin off\n\thttp_port ${free}\n\tdefault_bind 127.0.0.1\n}\n\n${change(configuration)}`);
      return { command: [program, 'run', '--config', join(directory, 'Caddyfile'), '--adapter', 'caddyfile'] };
    },
  });
  return port;
}

const STRIPPING = '\t\trequest_header -X-Auth-*\n';

/** What `forward_auth` meant before Caddy 2.11.2 (CVE-2026-30851): an empty header of the answer is not copied. */
function asBefore2112(configuration: string): string {
  const expanded = configuration.replace(/forward_auth @guarded (\S+) \{[^}]*\}/, (_, gatehouse: string) => `
		reverse_proxy @guarded ${gatehouse} {
			method GET
			rewrite /api/auth/verify?
			@good status 2xx
			handle_response @good {
${NAMES.map((name) => `				@has-${name} not vars {http.reverse_proxy.header.${name}} ""\n				request_header @has-${name} ${name} {http.reverse_proxy.header.${name}}`).join('\n')}
			}
		}`);
  assert.notEqual(expanded, configuration);
  return expanded;
}

if (caddy === undefined) {
  test('Caddy guards a program', { skip: "there is no Caddy here, and it could not be had from the system's packages" }, () => {});
} else {
  const house = await startHouse();
  const proxy = { port: await startCaddy(caddy, house), withoutGatehouse: 502 };
  await proveForwardAuth(house, proxy);

  test('the line that removes the headers is what keeps forged ones away where Caddy does not copy an empty one', async () => {
    const { key, id } = await house.addKey(house.admin, { user_id: null });
    const headers = [['X-Auth-User-Id', 'forged'], ...bearer(key)] as const;
    const told = async (change: (configuration: string) => string) => {
      const answer = await visit(await startCaddy(caddy, house, change), { headers });
      assert.equal(answer.status, 200, answer.text);
      return identityOf(answer.json);
    };
    const truth = { 'x-auth-super-admin': 'false', 'x-auth-key-id': id };
    assert.deepEqual(await told(asBefore2112), truth);
    const without = (configuration: string) => asBefore2112(configuration).replace(STRIPPING, '');
    assert.deepEqual(await told(without), { ...truth, 'x-auth-user-id': 'forged' });
  });

  proveFailingClosed(house, proxy);
}
