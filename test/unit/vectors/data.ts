/** Vectors in this folder, one a line. */
import { readFileSync } from 'node:fs';

export const readVectors = <T>(name: string): T[] =>
  readFileSync(new URL(name, import.meta.url), 'utf8')
    .trim()
    .split('\n')
    .map((line): T => JSON.parse(line));

export const hex = (text: string): Buffer<ArrayBuffer> => Buffer.from(text, 'hex');
