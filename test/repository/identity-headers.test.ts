/**
 * Each configuration of a proxy, and each page about one, names every header that `verify` sends. A
 * client could send one that is missing, and the program would believe it.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { callerHeaders } from '../../src/identity/verify.ts';
import { readDocument, rowsUnder } from '../support/documents.ts';
import { root } from '../support/process.ts';

const NAMES = Object.keys(callerHeaders({ session: null, key: null, user: null }));

/** Files of a folder of `deploy/` that ask `verify`, with their texts. */
function configurations(folder: string): ReadonlyArray<readonly [file: string, text: string]> {
  const directory = join(root, 'deploy', folder);
  const files = readdirSync(directory).map((name) => `${folder}/${name}`);
  const texts = files.map(
    (file) => [file, readFileSync(join(root, 'deploy', file), 'utf8')] as const,
  );
  return texts.filter(([, text]) => text.includes('/api/auth/verify'));
}

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
    const own = server.split(/^ *location /m)[0] ?? '';
    const missing = NAMES.filter(
      (name) => !new RegExp(`^ *proxy_set_header ${name} `, 'm').test(own),
    );
    const locations = blocks(server, /location/);
    const overriding = locations.filter(
      (location) => !location.includes('internal;') && location.includes('proxy_set_header'),
    );
    return [...missing, ...overriding];
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
    const copied = [...route.matchAll(/copy_headers (.+)/g)].flatMap(([, names = '']) =>
      names.split(' '),
    );
    // The services of Gatehouse read two headers. A program may read every one.
    const isProgram = /:5000$|\{args\.0\}$/m.test(route);
    const wanted = isProgram ? NAMES : ['X-Auth-Username', 'X-Auth-Groups'];
    const missing = wanted.filter((name) => !copied.includes(name));
    return isRemovedFirst && isRemoteRemoved ? missing : ['not removed first', ...missing];
  });
}

function problemsOfTraefik(text: string): string[] {
  const removed = [...text.matchAll(/^ {10}(X-Auth-[A-Za-z-]+): ""$/gm)].map(([, name]) => name);
  const lists = [...text.matchAll(/authResponseHeaders: (?:&reply )?\[(.+)\]/g)];
  assert.ok(lists.length > 0);
  const copied = lists.map(([, names = '']) => names.split(', '));
  const routers = [...text.matchAll(/service: app$/gm)].length;
  const cleared = [...text.matchAll(/middlewares: \[(?:https-only, )?without-identity[,\]]/g)]
    .length;
  return [
    ...[removed, ...copied].flatMap((given) => NAMES.filter((name) => !given.includes(name))),
    ...(routers === cleared ? [] : ['a router that does not remove the headers']),
  ];
}

/** By the folder of the configurations. */
const PROXIES = {
  nginx: problemsOfNginx,
  caddy: problemsOfCaddy,
  compose: problemsOfCaddy,
  traefik: problemsOfTraefik,
} as const;

for (const [folder, problemsOf] of Object.entries(PROXIES)) {
  for (const [file, text] of configurations(folder)) {
    test(`deploy/${file} removes and sets every header that names the caller`, () => {
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
