/**
 * Texts and their QR codes, which have been read by zbar and by a reader that was written from
 * ISO/IEC 18004.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';

/** A browser script: `tsconfig.pages.json` checks its types. */
interface Qr {
  correctionOf(data: readonly number[], count: number): number[];
  qrCode(text: string): boolean[][] | null;
}
export const { correctionOf, qrCode }: Qr = await import(
  new URL('../../../src/platform/http/site/pages/qr.js', import.meta.url).href
);

export const drawn = (text: string): boolean[][] =>
  qrCode(text) ?? assert.fail(`no code for ${text.length} characters`);

/** Of the modules, a row a line. */
export const digestOf = (...texts: readonly string[]): string => {
  const hash = createHash('sha256');
  for (const text of texts)
    for (const row of drawn(text)) hash.update(`${row.map(Number).join('')}\n`);
  return hash.digest('hex').slice(0, 16);
};

/** Varied, and the same in every run. */
export const letters = (length: number, seed = length): string =>
  Array.from({ length }, (_, i) =>
    String.fromCharCode(33 + ((i * 31 + seed * 17 + ((i * i) % 29)) % 94)),
  ).join('');

/** Table 7: bytes at level M, by version, and the code of a text that fills it. */
export const VERSIONS: ReadonlyArray<readonly [capacity: number, digest: string]> = [
  [14, 'b39d46d2ed427229'],
  [26, 'ce453f49591a41e5'],
  [42, '48c2897d0eec81f5'],
  [62, '1c47659b20f5ff65'],
  [84, '23b7fab29c016818'],
  [106, '0aac8ef9e26addb4'],
  [122, '9712cb924907f912'],
  [152, '0c18641d5f0cdb68'],
  [180, 'da0fc2e5f6fe4daf'],
  [213, '8b560f76261d33f3'],
  [251, '3f0c3bb6bb5741e2'],
  [287, '399516c102e3ba9f'],
  [331, 'ecdac0350d6dddb0'],
  [362, '20431a191783c6eb'],
  [412, 'a15ec4a8079bdb80'],
];

/** By mask: a seed of 20 letters for which it is the best, and their code. */
export const MASKS: ReadonlyArray<readonly [seed: number, digest: string]> = [
  [4, '1efab0fe82a28dd1'],
  [2, 'bf59d6260d2dff46'],
  [0, 'b8d87ae74abe93df'],
  [6, 'a5b65eb606ef45e9'],
  [5, 'ba5c07c9a74c9852'],
  [40, '2fd697cc4805e94d'],
  [7, '868d65837dc5b832'],
  [58, 'edbfb39189e773e4'],
];

export const OTHERS: ReadonlyArray<readonly [text: string, digest: string]> = [
  ['ß', '0aa88e69d3204d2d'],
  ['秘密🔑'.repeat(30), '351d54b52ab0c61f'],
  ['🔑'.repeat(103), '3deceef6c69d626b'],
];

/** Short texts for which each rule of 7.8.3 chose the mask at least once. */
export const SHORT = Array.from({ length: 120 }, (_, turn) =>
  letters(turn % 2 === 0 ? 12 : 14, 10 + (turn >> 1)),
);
export const SHORT_DIGEST = '56753746049f0a3f';
/** Of every sixth length. */
export const LENGTHS = Array.from({ length: 69 }, (_, i) => letters(6 * i + 1));
export const LENGTHS_DIGEST = '2a66d47d3ae6a93d';
