/** compose.yaml, started as docs/deployment-files.md says. */
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { untilSql } from '../../support/connections.ts';
import { tree } from '../image/build.ts';
import { askProxy, type ProxyRequest } from '../nginx/setup.ts';
import type { Docker } from './docker.ts';

/** Names below it lead to this machine, and Caddy signs their certificates itself. */
export const DOMAIN = 'gatehouse.localhost';
const HTTPS = { port: 443 };

/** Copies what an image is built from, and deploy/. @returns where they are */
export function copyTree({ directory }: Docker): string {
  const place = join(directory, 'tree');
  const names = readFileSync(join(tree, '.dockerignore'), 'utf8').match(/(?<=^!).+/gm) ?? [];
  for (const name of [...names, '.dockerignore', 'Dockerfile', 'deploy'])
    cpSync(join(tree, name), join(place, name), { recursive: true });
  // The images of `images.ts` have the names, but not the digests.
  for (const name of ['deploy/compose.yaml', 'Dockerfile']) {
    const file = join(place, name);
    writeFileSync(file, readFileSync(file, 'utf8').replace(/@sha256:[0-9a-f]{64}/g, ''));
  }
  return place;
}

/** Sends a request through Caddy. */
const visit = (name: string, sent: ProxyRequest) =>
  askProxy(HTTPS, { host: `${name}.${DOMAIN}`, ...sent });

export function createStack(docker: Docker) {
  const place = copyTree(docker);
  const file = join(place, 'deploy/compose.yaml');
  docker.run(join(place, 'deploy/compose/new-secrets'), []);

  const compose = (...words: string[]) =>
    docker.run('docker-compose', ['--file', file, ...words], { DOMAIN });
  const containerOf = (service: string) => compose('ps', '--quiet', service).stdout.trim();
  const inspect = (service: string, format: string) => docker.inspect(containerOf(service), format);

  return {
    place,
    file,
    compose,
    containerOf,
    inspect,
    /** As a service reads it: without one newline at the end. */
    secret: (name: string) =>
      readFileSync(join(place, 'deploy/compose/secrets', name), 'utf8').replace(/\n$/, ''),
    visit,
    /** Waits until a request through Caddy is answered by the service. */
    untilServed: (name: string): Promise<void> =>
      untilSql(async () => {
        const answer = await visit(name, { path: '/readyz' }).catch(() => null);
        return answer?.status === 200;
      }, `${name} is served`),
  };
}
