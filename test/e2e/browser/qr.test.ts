/** zbar, a reader of QR codes that many programs use, reads the codes of the pages. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import {
  drawn,
  LENGTHS,
  letters,
  MASKS,
  OTHERS,
  SHORT,
  VERSIONS,
} from '../../unit/vectors/qr-codes.ts';
import { findProgram } from '../programs.ts';

const directory = mkdtempSync(join(tmpdir(), 'gatehouse-qr-'));
after(() => rmSync(directory, { recursive: true }));

const BORDER = 4;
const SCALE = 4;

/** A portable bitmap of the code, with its border. */
function bitmapOf(modules: readonly boolean[][]): string {
  const size = (modules.length + 2 * BORDER) * SCALE;
  const pixel = (row: number, column: number) =>
    Number(
      modules[Math.floor(row / SCALE) - BORDER]?.[Math.floor(column / SCALE) - BORDER] ?? false,
    );
  const rows = Array.from({ length: size }, (_, row) =>
    Array.from({ length: size }, (__, column) => pixel(row, column)).join(''),
  );
  return `P1\n${size} ${size}\n${rows.join('\n')}\n`;
}

/** @returns what zbar reads in a code of each text */
function readAll(texts: readonly string[]): string[] {
  const files = texts.map((text, index) => {
    const file = join(directory, `${index}.pbm`);
    writeFileSync(file, bitmapOf(drawn(text)));
    return file;
  });
  const words = ['--quiet', '--raw', '-Sdisable', '-Sqrcode.enable', ...files];
  return execFileSync(findProgram('zbarimg') ?? 'zbarimg', words, {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  })
    .trimEnd()
    .split('\n');
}

const KNOWN = {
  'of every version, filled': VERSIONS.map(([capacity]) => letters(capacity)),
  'with every mask': [...MASKS.map(([seed]) => letters(20, seed)), ...SHORT],
  'of many lengths': LENGTHS,
  'outside ASCII': OTHERS.map(([text]) => text),
};

for (const [which, texts] of Object.entries(KNOWN)) {
  test(`zbar reads the codes ${which}`, () => assert.deepEqual(readAll(texts), texts));
}
