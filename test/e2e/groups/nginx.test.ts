/** deploy/nginx/groups.conf on a real nginx. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from '../../support/process.ts';
import { completeNginx, nginxCommand } from '../nginx/setup.ts';
import { start } from '../programs.ts';
import { type Proxy, testGroups } from './cases.ts';

const FILE = readFileSync(join(root, 'deploy/nginx/groups.conf'), 'utf8');
const MAP = /( *\/from\/\w+\/webhook group_[ab];\n)+/;

testGroups('nginx', async (t, ports) => {
  let route: Proxy['route'] = async () => {};
  const { port } = await start(
    { after: (stop) => t.after(stop) },
    {
      name: 'nginx',
      unprivileged: true,
      prepare(directory, free) {
        assert.match(FILE, MAP);
        const text = FILE.replaceAll('listen 80;', `listen 127.0.0.1:${free};`)
          .replace('127.0.0.1:8000', `127.0.0.1:${ports.a}`)
          .replace('127.0.0.1:8010', `127.0.0.1:${ports.b}`);
        const file = join(directory, 'nginx.conf');
        const [program, ...words] = nginxCommand(directory, file);
        const write = (lines: readonly string[]) =>
          writeFileSync(file, completeNginx(text.replace(MAP, lines.join(''))));
        write([]);
        route = async (groups) => {
          const line = ([name, group]: readonly [string, string]) =>
            `/from/${name}/webhook ${group === 'moving' ? group : `group_${group}`};\n`;
          write(Object.entries(groups).map(line));
          const { status, stderr } = spawnSync(program, [...words, '-s', 'reload']);
          assert.equal(status, 0, String(stderr));
        };
        return { command: [program, ...words] };
      },
    },
  );
  return { port, route };
});
