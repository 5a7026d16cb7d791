/** deploy/caddy/groups.caddyfile on a real Caddy. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from '../../support/process.ts';
import { findProgram, freePort, start } from '../programs.ts';
import { type Proxy, testGroups } from './cases.ts';

const FILE = readFileSync(join(root, 'deploy/caddy/groups.caddyfile'), 'utf8');
const MAP = /(\t*\/from\/\w+\/webhook 127[.\d:]+\n)+/;
const caddy = findProgram('caddy') ?? assert.fail('Caddy is not installed');

testGroups('Caddy', async (t, ports) => {
  const admin = await freePort();
  let route: Proxy['route'] = async () => {};
  const { port } = await start(
    { after: (stop) => t.after(stop) },
    {
      name: 'caddy',
      unprivileged: true,
      prepare(directory, free) {
        assert.match(FILE, MAP);
        const text = FILE.replace(/^([\w.]+\.org)/gm, `http://$1:${free}`)
          .replaceAll('127.0.0.1:8000', `127.0.0.1:${ports.a}`)
          .replaceAll('127.0.0.1:8010', `127.0.0.1:${ports.b}`);
        const file = join(directory, 'Caddyfile');
        const global = `{\n\tadmin 127.0.0.1:${admin}\n}\n`;
        const write = (lines: readonly string[]) =>
          writeFileSync(
            file,
            global + text.replace(/(\t*\/from\/\w+\/webhook .*\n)+/, lines.join('')),
          );
        write([]);
        const words = ['--adapter', 'caddyfile', '--config', file];
        route = async (groups) => {
          const line = ([name, group]: readonly [string, 'a' | 'b' | 'moving']) =>
            `/from/${name}/webhook ${group === 'moving' ? group : `127.0.0.1:${ports[group]}`}\n`;
          write(Object.entries(groups).map(line));
          const address = ['--address', `127.0.0.1:${admin}`];
          const { status, stderr } = spawnSync(caddy, ['reload', ...words, ...address], {
            env: { HOME: directory },
          });
          assert.equal(status, 0, String(stderr));
        };
        return { command: [caddy, 'run', ...words], env: { HOME: directory } };
      },
    },
  );
  return { port, route };
});
