import { readFileSync } from 'node:fs';

/** The version of the package. */
export function readVersion() {
  const text = readFileSync(new URL('../../../package.json', import.meta.url), 'utf8');
  const { version }: { version: string } = JSON.parse(text);
  return version;
}
