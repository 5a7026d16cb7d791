/** How an operator's name, logo, color and footer get into the pages. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import {
  createFrame,
  filesOf,
  readLogo,
  textColorOn,
} from '../../../src/platform/http/site/pages.ts';
import { configure } from '../../../src/serve.ts';
import { ConfigurationError } from '../../../src/platform/process/settings.ts';
import { SITE } from '../../support/service-context.ts';

const place = mkdtempSync(join(tmpdir(), 'gatehouse-site-'));
after(() => rmSync(place, { recursive: true, force: true }));

function file(name: string, content: string | Buffer): string {
  const path = join(place, name);
  writeFileSync(path, content);
  return path;
}

const PNG = Buffer.from('89504e470d0a1a0a0000000d49484452', 'hex');
const WEBP = Buffer.concat([
  Buffer.from('RIFF'),
  Buffer.from([1, 2, 3, 4]),
  Buffer.from('WEBPVP8 '),
]);
const LOGOS: ReadonlyArray<readonly [type: string, content: string | Buffer]> = [
  ['image/png', PNG],
  ['image/jpeg', Buffer.from('ffd8ffe000104a46', 'hex')],
  ['image/webp', WEBP],
  ['image/svg+xml', '<svg xmlns="http://www.w3.org/2000/svg"/>'],
  ['image/svg+xml', '\ufeff<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>'],
];

for (const [type, content] of LOGOS) {
  test(`a logo is recognized by its content: ${type} ${content.slice(0, 5)}`, () => {
    const path = file('logo.bin', content);
    const logo = filesOf({ ...SITE, SITE_LOGO_FILE: readLogo(path) }, null).get('logo');
    assert.equal(logo?.contentType, type);
    assert.deepEqual(Buffer.from(logo?.text ?? ''), Buffer.from(content));
  });
}

test('a file that is no picture, is too large or cannot be read is no logo', () => {
  const picture = /^the path of a PNG, JPEG, WebP or SVG picture of at most 100 KiB$/;
  const large = Buffer.concat([PNG, Buffer.alloc(100 * 1024)]);
  const contents = ['<!doctype html><svg></svg>', '', large];
  for (const content of contents)
    assert.throws(() => readLogo(file('other', content)), { message: picture });
  const unreadable = /^the path of a picture that this user can read$/;
  for (const path of [join(place, 'missing.png'), place])
    assert.throws(() => readLogo(path), { message: unreadable });
});

test('an SVG logo runs no script, even if it is opened by its own address', () => {
  const headers = filesOf(SITE, null).get('logo')?.headers;
  assert.match(String(headers?.['Content-Security-Policy']), /^default-src 'none'; .*sandbox/);
});

test('the text on any color has a contrast of at least 4.5', () => {
  const linear = (value: number) =>
    value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const luminance = (color: string) => {
    const parts = [...Buffer.from(color.slice(1), 'hex')];
    const [red = 0, green = 0, blue = 0] = parts.map((part) => linear(part / 255));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  for (let value = 0; value <= 0xffffff; value += 0x000511) {
    const color = `#${value.toString(16).padStart(6, '0')}`;
    const text =
      textColorOn(color) === '#fff'
        ? 1.05 / (luminance(color) + 0.05)
        : (luminance(color) + 0.05) / 0.05;
    assert.ok(text >= 4.5, `${color}: ${text}`);
  }
});

test('a color becomes a style sheet, and no color an empty one', () => {
  assert.equal(filesOf(SITE, null).get('site.css')?.text, '');
  const { text } = filesOf({ ...SITE, SITE_COLOR: '#FFD400' }, null).get('site.css') ?? {};
  assert.equal(text, ':root { --accent: #FFD400; --on-accent: #000; }\n');
  assert.match(
    String(filesOf({ ...SITE, SITE_COLOR: '#0a7d4b' }, null).get('logo')?.text),
    /fill="#0a7d4b"/,
  );
});

test('name and footer are text, and only https addresses become links', () => {
  const footer =
    'Imprint: https://example.org/?a=1&b=2 <b>"x" javascript:alert(1) http://plain.example';
  const frame = createFrame({ ...SITE, SITE_NAME: 'A & <i>B</i>', SITE_FOOTER: footer });
  const page = frame('<title>x</title>\n<main>{{name}}</main>\n');
  assert.match(page, /alt=""><a href="\/">A &#38; &#60;i&#62;B&#60;\/i&#62;<\/a><\/p>/);
  assert.match(page, /<a href="https:\/\/example\.org\/\?a=1&#38;b=2" rel="noreferrer">/);
  assert.equal([...page.matchAll(/<a /g)].length, 2, 'the start page, and the imprint');
  assert.doesNotMatch(page, /<[bi]>/);
  assert.match(
    page,
    /<head>[\s\S]*<title>x · A &#38; &#60;i&#62;B&#60;\/i&#62;<\/title>[\s\S]*<\/head>/,
  );
  assert.match(
    page,
    /<main id="main" tabindex="-1">\{\{name\}\}<\/main>/,
    'what a page holds is not filled in again',
  );
  assert.doesNotMatch(createFrame(SITE)('<main></main>'), /<footer/);
});

const GOOD = {
  DATABASE_URL: 'postgres://user:word@localhost:5432/gatehouse',
  SERVER_SECRET: 'a-long-random-text-0123456789-abcdefgh',
  AUTH_TOKEN: 'a-long-random-text-0123456789-abcdefgh',
};
const WRONG: ReadonlyArray<readonly [name: string, value: string, message: RegExp]> = [
  ['SITE_COLOR', 'red; } body { display: none', /^SITE_COLOR must be a color such as #0a7d4b\.$/],
  ['SITE_COLOR', '#fff', /^SITE_COLOR must be a color/],
  ['SITE_NAME', 'two\nlines', /^SITE_NAME must be one line of at most 300 characters\.$/],
  ['SITE_FOOTER', 'x'.repeat(301), /^SITE_FOOTER must be one line/],
  [
    'SITE_LOGO_FILE',
    '/does/not/exist.png',
    /^SITE_LOGO_FILE must be the path of a picture that this user can read\.$/,
  ],
];
for (const [name, value, message] of WRONG) {
  test(`${name}=${JSON.stringify(value.slice(0, 30))} stops the start`, async () => {
    await assert.rejects(configure(['secrets'], 'serve', { ...GOOD, [name]: value }), (error) => {
      assert.ok(error instanceof ConfigurationError);
      assert.equal(error.problems.length, 1);
      assert.match(error.problems[0] ?? '', message);
      return true;
    });
  });
}
