/**
 * Each configuration of a proxy, and each page about one, names every header that `verify` sends. A
 * client could send one that is missing, and the program would believe it.
 */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { callerHeaders } from '../../src/identity/verify.ts';
import { readDeployFile } from '../support/deploy.ts';
import { readDocument, rowsUnder } from '../support/documents.ts';
import { root } from '../support/process.ts';

const NAMES = Object.keys(callerHeaders({ session: null, key: null, user: null }));

/** The blocks of `text` that begin with `opening`, with the blocks inside them. */
function blocks(text: string, opening: RegExp): string[] {
  return [...text.matchAll(new RegExp(`^([ \\t]*)${opening.source}[^\\n]*\\{\\n`, 'gm'))].map(
    (start) => {
      const end = text.indexOf(`\n${start[1]}}`, start.index);
      return text.slice(start.index, end);
    },
  );
}

function problemsOfNginx(text: string): string[] {
  // A file that servers include has the lines of one, without its braces.
  const servers = text.includes('server {') ? blocks(text, /server/) : [text];
  const guarded = servers.filter((server) => server.includes('auth_request /'));
  assert.ok(guarded.length > 0);
  return guarded.flatMap((server) => {
    const [own = ''] = server.split(/^ *location /m);
    const set = new Set(own.match(/(?<=^ *proxy_set_header )\S+/gm));
    const overriding = blocks(server, /location/).filter(
      (location) => !location.includes('internal;') && location.includes('proxy_set_header'),
    );
    return [...NAMES.filter((name) => !set.has(name)), ...overriding];
  });
}

function problemsOfCaddy(text: string): string[] {
  const guarded = blocks(text, /route/).filter((route) => route.includes('forward_auth'));
  assert.ok(guarded.length > 0);
  return guarded.flatMap((route) => {
    const removed = route.indexOf('\t\trequest_header -X-Auth*\n');
    const isRemovedFirst = removed > 0 && removed < route.indexOf('forward_auth');
    const setsRemote = route.includes('request_header @named Remote-');
    const isRemoteRemoved = !setsRemote || route.includes('\t\trequest_header -Remote-*\n');
    const copied =
      route
        .match(/(?<=copy_headers ).+/g)
        ?.join(' ')
        .split(' ') ?? [];
    // The services of Gatehouse read two headers. A program may read every one.
    const isProgram = /:5000$|\{args\.0\}$/m.test(route);
    const wanted = isProgram ? NAMES : ['X-Auth-Username', 'X-Auth-Groups'];
    const missing = wanted.filter((name) => !copied.includes(name));
    return isRemovedFirst && isRemoteRemoved ? missing : ['not removed first', ...missing];
  });
}

function problemsOfTraefik(text: string): string[] {
  const removed = text.match(/(?<=^ {10})X-Auth-[A-Za-z-]+(?=: ""$)/gm) ?? [];
  const lists = text.match(/(?<=authResponseHeaders: (?:&reply )?\[).+(?=\])/g) ?? [];
  assert.ok(lists.length > 0);
  const routers = text.match(/service: app$/gm) ?? [];
  const cleared = text.match(/middlewares: \[(?:https-only, )?without-identity[,\]]/g) ?? [];
  return [
    ...[removed, ...lists.map((names) => names.split(', '))].flatMap((given) =>
      NAMES.filter((name) => !given.includes(name)),
    ),
    ...(routers.length === cleared.length ? [] : ['a router that does not remove the headers']),
  ];
}

/** By the folder of `deploy/` that has configurations. */
const PROXIES = {
  nginx: problemsOfNginx,
  caddy: problemsOfCaddy,
  compose: problemsOfCaddy,
  traefik: problemsOfTraefik,
};

for (const [folder, problemsOf] of Object.entries(PROXIES)) {
  for (const name of readdirSync(join(root, 'deploy', folder))) {
    const text = readDeployFile(join(folder, name));
    if (!text.includes('/api/auth/verify')) continue;
    test(`deploy/${folder}/${name} removes and sets every header that names the caller`, () => {
      assert.deepEqual(problemsOf(text), []);
    });
  }
}

test('forward-auth.md and the annotations for an Ingress list every header', () => {
  const rows = rowsUnder('docs/forward-auth.md', 'header | value');
  assert.deepEqual(
    rows.map(([name = '']) => name.replaceAll('`', '')),
    NAMES,
  );
  const [, annotated = ''] =
    /auth-response-headers: (.+)/.exec(readDocument('docs/proxy-nginx.md')) ?? [];
  assert.deepEqual(annotated.split(','), NAMES);
});
