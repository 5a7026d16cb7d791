import { readFileSync } from 'node:fs';

/** Of this program, from its package. Strangers are not told: it says which faults it has. */
export function readVersion() {
  const text = readFileSync(new URL('../../../package.json', import.meta.url), 'utf8');
  const { version }: { version: string } = JSON.parse(text);
  return version;
}
