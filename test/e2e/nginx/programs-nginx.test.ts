/** deploy/nginx/programs.conf and program.conf with twenty programs, on a real nginx. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after } from 'node:test';
import { start } from '../programs.ts';
import { fileFor, fileOf, startPrograms, testPrograms } from './programs.ts';
import { completeNginx, nginxCommand } from './setup.ts';

const programs = await startPrograms();

const proxy = await start(
  { after },
  {
    name: 'nginx',
    unprivileged: true,
    prepare(directory, free) {
      const at = (name: string) => join(directory, name);
      writeFileSync(at('certificate.pem'), programs.certificate.certificate);
      writeFileSync(at('key.pem'), programs.certificate.key);
      const placed = (text: string) =>
        text
          .replaceAll('listen 443 ssl', `listen 127.0.0.1:${free} ssl`)
          .replaceAll('/etc/ssl/example.org.pem', at('certificate.pem'))
          .replaceAll('/etc/ssl/example.org.key', at('key.pem'))
          .replaceAll('/etc/nginx/gatehouse/program.conf', at('program.conf'));
      writeFileSync(at('program.conf'), placed(fileOf('nginx/program.conf', programs)));
      writeFileSync(
        at('nginx.conf'),
        completeNginx(placed(fileFor('nginx/programs.conf', programs))),
      );
      return { command: nginxCommand(directory, at('nginx.conf')) };
    },
  },
);
await testPrograms(programs, proxy);
