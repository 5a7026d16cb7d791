/** deploy/caddy/programs.caddyfile with twenty programs, on a real Caddy, if one is installed. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { findProgram, start } from '../programs.ts';
import { fileFor, type Programs, startPrograms, testPrograms } from './programs.ts';

async function startCaddy(program: string, programs: Programs): Promise<{ port: number }> {
  const { certificate, key } = programs.certificate;
  return start(
    { after },
    {
      name: 'caddy',
      unprivileged: true,
      prepare(directory, free) {
        const pem = join(directory, 'certificate.pem');
        const keyFile = join(directory, 'key.pem');
        writeFileSync(pem, certificate);
        writeFileSync(keyFile, key);
        const options = `{\n\tadmin off\n\tauto_https disable_redirects\n\thttps_port ${free}\n\tdefault_bind 127.0.0.1\n}\n\n`;
        const sites = fileFor('caddy/programs.caddyfile', programs).replaceAll(
          /^.*\.example\.org \{\n/gm,
          (line) => `${line}\ttls ${pem} ${keyFile}\n`,
        );
        const file = join(directory, 'Caddyfile');
        writeFileSync(file, options + sites);
        return { command: [program, 'run', '--config', file, '--adapter', 'caddyfile'] };
      },
    },
  );
}

const caddy = findProgram('caddy');
if (caddy === undefined) {
  const reason = 'Caddy is not installed and the package manager could not install it';
  test('Caddy guards twenty programs', { skip: reason }, () => {});
} else {
  const programs = await startPrograms();
  await testPrograms(programs, await startCaddy(caddy, programs));
}
