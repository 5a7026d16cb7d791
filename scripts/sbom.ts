/**
 * `make sbom`: prints what a production installation contains, as CycloneDX. The same files give
 * the same bytes.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { runMain, SetupError } from './setup-error.ts';

const root = dirname(import.meta.dirname);

interface Document {
  serialNumber?: string;
  metadata: { timestamp?: string; component: { name: string; type: string } };
}

/** npm names the product after the directory, and gives each document another number and time. */
export function createSbom(): string {
  const words = [
    'sbom',
    '--sbom-format=cyclonedx',
    '--omit=dev',
    '--omit=optional',
    '--package-lock-only',
    '--loglevel=error',
  ];
  const { status, stdout, stderr } = spawnSync('npm', words, { cwd: root, encoding: 'utf8' });
  if (status !== 0)
    throw new SetupError(`npm sbom failed, which needs npm 9.5 or newer: ${stderr}`);
  const document: Document = JSON.parse(stdout);
  const { name }: { name: string } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  Object.assign(document.metadata.component, { name, type: 'application' });
  delete document.serialNumber;
  delete document.metadata.timestamp;
  const hex = createHash('sha256').update(JSON.stringify(document)).digest('hex');
  // A UUID of version 8, RFC 9562: its bits are the maker's.
  const uuid = `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
  return `${JSON.stringify({ ...document, serialNumber: `urn:uuid:${uuid}` }, null, 2)}\n`;
}

if (process.argv[1] === import.meta.filename) {
  await runMain(async () => {
    process.stdout.write(createSbom());
    return 0;
  });
}
