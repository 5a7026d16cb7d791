/** How an operator's name, logo, color and footer get into the pages. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import {
  createFrame,
  filesOf,
  readLogo,
  textColorOn,
} from '../../../src/platform/http/site/pages.ts';
import { makeDirectory } from '../../support/directories.ts';
import { SITE } from '../../support/service-context.ts';

const place = makeDirectory({ after }, 'site');

function file(content: string | Buffer): string {
  const path = join(place, 'logo.bin');
  writeFileSync(path, content);
  return path;
}

const PNG = Buffer.from('89504e470d0a1a0a0000000d49484452', 'hex');
const LOGOS: ReadonlyArray<readonly [type: string, content: string | Buffer]> = [
  ['image/png', PNG],
  ['image/jpeg', Buffer.from('ffd8ffe000104a46', 'hex')],
  ['image/webp', Buffer.from('RIFF\u0001\u0002\u0003\u0004WEBPVP8 ')],
  ['image/svg+xml', '<svg xmlns="http://www.w3.org/2000/svg"/>'],
  ['image/svg+xml', '\ufeff<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>'],
];

test('a logo is recognized by its content, and anything else is refused', () => {
  for (const [type, content] of LOGOS) {
    const logo = filesOf({ ...SITE, SITE_LOGO_FILE: readLogo(file(content)) }, null).get('logo');
    assert.equal(logo?.contentType, type);
    assert.deepEqual(Buffer.from(logo?.text ?? ''), Buffer.from(content));
  }
  const picture = 'the path of a PNG, JPEG, WebP or SVG picture of at most 100 KiB';
  const large = Buffer.concat([PNG, Buffer.alloc(100 * 1024)]);
  for (const content of ['<!doctype html><svg></svg>', '', large])
    assert.throws(() => readLogo(file(content)), { message: picture });
  for (const path of [join(place, 'missing.png'), place])
    assert.throws(() => readLogo(path), {
      message: 'the path of a picture that this user can read',
    });
});

test('an SVG logo runs no script, even if it is opened by its own address', () => {
  const headers = filesOf(SITE, null).get('logo')?.headers;
  assert.match(String(headers?.['Content-Security-Policy']), /^default-src 'none'; .*sandbox/);
});

test('the text on any color has a contrast of at least 4.5', () => {
  const linear = (value: number) =>
    value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  for (let value = 0; value <= 0xffffff; value += 0x000511) {
    const color = `#${value.toString(16).padStart(6, '0')}`;
    const parts = Array.from(Buffer.from(color.slice(1), 'hex'), (part) => linear(part / 255));
    const [red = 0, green = 0, blue = 0] = parts;
    const light = 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
    assert.ok((textColorOn(color) === '#fff' ? 1.05 / light : light / 0.05) >= 4.5, color);
  }
});

test('a color becomes a style sheet, and no color an empty one', () => {
  assert.equal(filesOf(SITE, null).get('site.css')?.text, '');
  const files = filesOf({ ...SITE, SITE_COLOR: '#FFD400' }, null);
  const style = ':root { --accent: #FFD400; --on-accent: #000; }\n';
  assert.equal(files.get('site.css')?.text, style);
  assert.match(String(files.get('logo')?.text), /fill="#FFD400"/);
});

test('name and footer are text, and only https addresses become links', () => {
  const footer =
    'Imprint: https://example.org/?a=1&b=2 <b>"x" javascript:alert(1) http://plain.example';
  const frame = createFrame({ ...SITE, SITE_NAME: 'A & <i>B</i>', SITE_FOOTER: footer });
  const page = frame('<title>x</title>\n<main>{{name}}</main>\n');
  for (const part of [
    /alt=""><a href="\/">A &#38; &#60;i&#62;B&#60;\/i&#62;<\/a><\/p>/,
    /<a href="https:\/\/example\.org\/\?a=1&#38;b=2" rel="noreferrer">/,
    /<head>[\s\S]*<title>x · A &#38; &#60;i&#62;B&#60;\/i&#62;<\/title>[\s\S]*<\/head>/,
    /<main id="main" tabindex="-1">\{\{name\}\}<\/main>/, // What a page holds is not filled in again.
  ])
    assert.match(page, part);
  assert.equal([...page.matchAll(/<a /g)].length, 2, 'the start page, and the imprint');
  assert.doesNotMatch(page, /<[bi]>/);
  assert.doesNotMatch(createFrame(SITE)('<main></main>'), /<footer/);
});
