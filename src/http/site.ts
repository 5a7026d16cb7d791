import { readFileSync } from 'node:fs';
import type { Site } from '../runtime/context.ts';
import type { TextReply } from './errors.ts';
import { Html, NOTHING, readTemplates } from './template.ts';

/** By the first bytes, not by the name of the file. */
const IMAGES: ReadonlyArray<readonly [type: string, start: RegExp]> = [
  ['image/png', /^\x89PNG\r\n/],
  ['image/jpeg', /^\xff\xd8\xff/],
  ['image/webp', /^RIFF.{4}WEBP/s],
  ['image/svg+xml', /^(\xef\xbb\xbf)?\s*<(\?xml|!--|svg)/],
];
const MAX_LOGO_BYTES = 100 * 1024;

/** An SVG may contain scripts. As a picture it runs none. These headers block them if its address is opened. */
const LOGO_HEADERS = {
  'Content-Security-Policy':
    "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'none'",
  'Cross-Origin-Resource-Policy': 'same-origin',
};

/** @returns null for a valid logo, otherwise what the file must be */
export function logoProblem(path: string): string | null {
  try {
    return imageType(readFileSync(path))
      ? null
      : 'the path of a PNG, JPEG, WebP or SVG picture of at most 100 KiB';
  } catch {
    return 'the path of a picture that this user can read';
  }
}

function imageType(bytes: Buffer): string | undefined {
  const head = bytes.toString('latin1', 0, 256);
  return bytes.length > MAX_LOGO_BYTES
    ? undefined
    : IMAGES.find(([, start]) => start.test(head))?.[0];
}

const OWN_LOGO = new URL('pages/logo.svg', import.meta.url);
const OWN_COLOR = '#4f46e5';

/** The files that depend on the site. They are read once. */
export function siteFiles({
  SITE_LOGO_FILE: path,
  SITE_COLOR: color,
}: Site): ReadonlyMap<string, TextReply<string | Uint8Array>> {
  const own = () =>
    Buffer.from(readFileSync(OWN_LOGO, 'utf8').replace(OWN_COLOR, color ?? OWN_COLOR));
  const logo = path === null ? own() : readFileSync(path);
  const css =
    color === null ? '' : `:root { --accent: ${color}; --on-accent: ${textColorOn(color)}; }\n`;
  return new Map([
    [
      'logo',
      {
        text: logo,
        contentType: imageType(logo) ?? 'application/octet-stream',
        headers: LOGO_HEADERS,
      },
    ],
    ['site.css', { text: css, contentType: 'text/css; charset=utf-8' }],
  ]);
}

/** On any color, one of black and white has a contrast of at least 4.58 (WCAG 2.2, 1.4.3 requires 4.5). */
export function textColorOn(color: string): '#000' | '#fff' {
  const linear = (value: number) =>
    value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const part = (at: number) => linear(Number.parseInt(color.slice(at, at + 2), 16) / 255);
  const luminance = 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5);
  return luminance > Math.sqrt(1.05 * 0.05) - 0.05 ? '#000' : '#fff';
}

export const render = readTemplates(new URL('pages/frame.html', import.meta.url));

/** The name as markup. */
export const siteName = ({ SITE_NAME: text }: Site): string => render('text', { text }).text;

/** @returns puts the frame of the site around a page: what its head holds, then its `<main>` */
export function createFrame({
  SITE_NAME: name,
  SITE_FOOTER: footer,
}: Site): (page: string) => string {
  // Addresses in the footer become links, to an imprint for example.
  const words = (footer ?? '')
    .split(/(https:\/\/[^\s"<>]+)/)
    .map((part, at) =>
      at % 2 === 1 ? render('link', { address: part }) : render('text', { text: part }),
    );
  const values = { name, footer: footer === null ? NOTHING : render('footer', { words }) };
  return (page) => {
    const at = page.indexOf('<main');
    const [head, main] = [new Html(page.slice(0, at)), new Html(page.slice(at))];
    return render('frame', { ...values, head, main }).text;
  };
}
