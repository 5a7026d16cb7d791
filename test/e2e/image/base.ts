/**
 * A base image without a registry: the programs of this machine that the first stage of the
 * Dockerfiles calls, Node and npm, and their libraries, at the places where node:22-slim has them.
 */
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, realpathSync, symlinkSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { findProgram } from '../programs.ts';
import { createImageFiles } from './files.ts';
import { wordsOf } from '../../support/words.ts';

const PROGRAMS = wordsOf('chmod cp env find grep ldd ln mkdir rm sort touch');

const output = (program: string, ...words: string[]) =>
  spawnSync(program, words, { encoding: 'utf8' }).stdout.trim();

/** Writes a build context with its Dockerfile. */
export function createBase(directory: string): void {
  const files = createImageFiles(join(directory, 'root'));
  files.placeShell();
  for (const name of PROGRAMS) files.placeProgram(name);
  files.placeProgram(process.execPath, '/usr/local/bin/node');

  const npm = dirname(dirname(realpathSync(findProgram('npm') ?? '/npm')));
  cpSync(npm, files.at('usr/local/lib/node_modules/npm'), { recursive: true });
  symlinkSync('../lib/node_modules/npm/bin/npm-cli.js', files.at('usr/local/bin/npm'));
  mkdirSync(files.at('usr/local/etc'));
  const registry = output('npm', 'config', 'get', 'registry', '--loglevel=silent');
  writeFileSync(files.at('usr/local/etc/npmrc'), `registry=${registry}\n`);

  // Node's own license is in its archive, which the image unpacks here.
  writeFileSync(files.at('usr/local/LICENSE'), 'Node.js is licensed for use as follows\n');
  mkdirSync(files.at('etc'));
  mkdirSync(files.at('tmp'));
  mkdirSync(files.at('root'));
  writeFileSync(
    files.at('etc/passwd'),
    'root:x:0:0::/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\n',
  );
  writeFileSync(files.at('etc/group'), 'root:x:0:\nnode:x:1000:\n');
  const lines = ['FROM scratch', 'COPY root /', 'ENV PATH=/usr/local/bin:/usr/bin:/bin'];
  // This machine may need an authority of its own to reach the registry of npm.
  const authority = process.env.NODE_EXTRA_CA_CERTS;
  if (authority) {
    files.place(authority, `/usr/local/etc/${basename(authority)}`);
    lines.push(`ENV NODE_EXTRA_CA_CERTS=/usr/local/etc/${basename(authority)}`);
  }
  writeFileSync(join(directory, 'Dockerfile'), `${lines.join('\n')}\n`);
}
