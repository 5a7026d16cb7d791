/** Size of a production installation: `dist/` and its only package. */
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { Report } from './compare.ts';
import { root } from './builds.ts';

interface Size {
  readonly files: number;
  readonly bytes: number;
}

function sizeOf(folder: string): Size {
  const names = readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' });
  const files = names
    .map((name) => statSync(join(root, folder, name)))
    .filter((file) => file.isFile());
  return { files: files.length, bytes: files.reduce((sum, { size }) => sum + size, 0) };
}

export async function size(): Promise<Report> {
  const remark = (name: string, { files, bytes }: Size) =>
    `size, ${name}: ${(bytes / 1024).toFixed(0)} KiB in ${files} files`;
  const dist = sizeOf('dist');
  const driver = sizeOf('node_modules/postgres');
  const total = { files: dist.files + driver.files, bytes: dist.bytes + driver.bytes };
  const remarks = [
    remark('dist', dist),
    remark('node_modules/postgres', driver),
    remark('total', total),
  ];
  return { comparisons: [], tables: [], remarks };
}
