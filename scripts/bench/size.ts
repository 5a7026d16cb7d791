/** What is installed in production: `dist/` and the one package. */
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { Report } from './compare.ts';
import { root } from './service.ts';

function measure(folder: string): { files: number; bytes: number } {
  const all = readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' }).map((name) => statSync(join(root, folder, name))).filter((file) => file.isFile());
  return { files: all.length, bytes: all.reduce((sum, { size }) => sum + size, 0) };
}

export async function size(): Promise<Report> {
  const parts = ['dist', 'node_modules/postgres'].map((folder) => ({ folder, ...measure(folder) }));
  const whole = { folder: 'together', files: parts.reduce((sum, { files }) => sum + files, 0), bytes: parts.reduce((sum, { bytes }) => sum + bytes, 0) };
  return { findings: [], figures: [], remarks: [...parts, whole].map(({ folder, files, bytes }) => `size, ${folder}: ${(bytes / 1024).toFixed(0)} KiB in ${files} files`) };
}
