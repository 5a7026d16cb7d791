/**
 * A base image without a registry: the programs of this machine that the first stage of the
 * Dockerfiles calls, Node and npm, and their libraries, at the places where node:22-slim has them.
 */
import { spawnSync } from 'node:child_process';
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  realpathSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { findProgram } from '../programs.ts';
import { SetupError } from '../../../scripts/setup-error.ts';

const PROGRAMS = [
  'bash',
  'chmod',
  'cp',
  'env',
  'find',
  'grep',
  'ldd',
  'ln',
  'mkdir',
  'rm',
  'sort',
  'touch',
];

const output = (program: string, ...words: string[]) =>
  spawnSync(program, words, { encoding: 'utf8' }).stdout.trim();

/** Writes a build context with its Dockerfile. */
export function createBase(directory: string): void {
  const files = join(directory, 'root');
  const place = (from: string, to: string) => {
    mkdirSync(dirname(join(files, to)), { recursive: true });
    if (!existsSync(join(files, to))) copyFileSync(realpathSync(from), join(files, to));
  };
  const programs = PROGRAMS.map((name) => {
    const found = findProgram(name);
    if (found === undefined) throw new SetupError(`make e2e NAME=image needs ${name}`);
    place(found, `/usr/bin/${name}`);
    return found;
  });
  place(process.execPath, '/usr/local/bin/node');
  const libraries = [process.execPath, ...programs].flatMap(
    (path) => output('ldd', path).match(/\/[^ :]*\.so[^ ]*/g) ?? [],
  );
  for (const path of new Set(libraries)) place(path, path);
  mkdirSync(join(files, 'bin'));
  symlinkSync('/usr/bin/bash', join(files, 'bin/sh'));
  symlinkSync('/usr/bin/bash', join(files, 'bin/bash'));

  const npm = dirname(dirname(realpathSync(findProgram('npm') ?? '/npm')));
  cpSync(npm, join(files, 'usr/local/lib/node_modules/npm'), { recursive: true });
  symlinkSync('../lib/node_modules/npm/bin/npm-cli.js', join(files, 'usr/local/bin/npm'));
  mkdirSync(join(files, 'usr/local/etc'));
  const registry = output('npm', 'config', 'get', 'registry', '--loglevel=silent');
  writeFileSync(join(files, 'usr/local/etc/npmrc'), `registry=${registry}\n`);

  // Node's own license is in its archive, which the image unpacks here.
  writeFileSync(join(files, 'usr/local/LICENSE'), 'Node.js is licensed for use as follows\n');
  mkdirSync(join(files, 'etc'));
  mkdirSync(join(files, 'tmp'));
  mkdirSync(join(files, 'root'));
  writeFileSync(
    join(files, 'etc/passwd'),
    'root:x:0:0::/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\n',
  );
  writeFileSync(join(files, 'etc/group'), 'root:x:0:\nnode:x:1000:\n');
  const lines = ['FROM scratch', 'COPY root /', 'ENV PATH=/usr/local/bin:/usr/bin:/bin'];
  // This machine may need an authority of its own to reach the registry of npm.
  const authority = process.env.NODE_EXTRA_CA_CERTS;
  if (authority) {
    place(authority, `/usr/local/etc/${basename(authority)}`);
    lines.push(`ENV NODE_EXTRA_CA_CERTS=/usr/local/etc/${basename(authority)}`);
  }
  writeFileSync(join(directory, 'Dockerfile'), `${lines.join('\n')}\n`);
}
