import { readdirSync, readFileSync } from 'node:fs';
import type { Site } from '../../runtime/context.ts';
import { Expected } from '../../runtime/env.ts';
import {
  escapeHtml,
  HTML,
  Html,
  NOTHING,
  PAGE_HEADERS,
  readTemplates,
  type Values,
} from './html.ts';
import { publicRead, route, type TextReply } from '../route/route.ts';
import { noInput, object, text } from '../route/schema.ts';

/** By the first bytes, not by the name of the file. */
const IMAGES = [
  ['image/png', /^\x89PNG\r\n/],
  ['image/jpeg', /^\xff\xd8\xff/],
  ['image/webp', /^RIFF.{4}WEBP/s],
  ['image/svg+xml', /^(\xef\xbb\xbf)?\s*<(\?xml|!--|svg)/],
] as const;
const MAX_LOGO_BYTES = 100 * 1024;

/**
 * An SVG may contain scripts. As a picture it runs none. These headers block them if its address is
 * opened.
 */
const LOGO_HEADERS = {
  ...PAGE_HEADERS,
  'Content-Security-Policy':
    "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'none'",
};

/** A picture of the operator, from its path. @throws Expected */
export function readLogo(path: string) {
  const bytes = readPicture(path);
  const head = bytes.toString('latin1', 0, 256);
  const contentType = IMAGES.find(([, start]) => start.test(head))?.[0];
  if (contentType && bytes.length <= MAX_LOGO_BYTES) return { text: bytes, contentType };
  throw new Expected('the path of a PNG, JPEG, WebP or SVG picture of at most 100 KiB');
}

function readPicture(path: string) {
  try {
    return readFileSync(path);
  } catch {
    throw new Expected('the path of a picture that this user can read');
  }
}

const OWN_COLOR = '#4f46e5';

/** @returns the files that pages load, by name: those of every page, and those in a folder */
export function filesOf({ SITE_LOGO_FILE: given, SITE_COLOR: color }: Site, folder: URL | null) {
  const css =
    color === null ? '' : `:root { --accent: ${color}; --on-accent: ${textColorOn(color)}; }\n`;
  const logo = given ?? ownLogo(color ?? OWN_COLOR);
  return new Map<string, TextReply<string | Uint8Array>>([
    ['logo', { ...logo, headers: LOGO_HEADERS }],
    [
      'site.css',
      {
        text: css,
        contentType: 'text/css; charset=utf-8',
        headers: PAGE_HEADERS,
      },
    ],
    ...readScripts(sharedFolder()),
    ...(folder ? readScripts(folder) : []),
  ]);
}

/** The scripts and style sheets of a folder. */
const readScripts = (folder: URL) =>
  readdirSync(folder)
    .filter((name) => /\.(js|css)$/.test(name))
    .map((name) => [name, readPageFile(folder, name)] as const);

const sharedFolder = () => new URL('pages/', import.meta.url);

function ownLogo(color: string) {
  const svg = readFileSync(new URL('logo.svg', sharedFolder()), 'utf8');
  return {
    text: Buffer.from(svg.replace(OWN_COLOR, color)),
    contentType: 'image/svg+xml',
  };
}

/**
 * On any color, one of black and white has a contrast of at least 4.5 (WCAG 2.2, 1.4.3), also with
 * the luminance by this approximation of sRGB.
 */
export function textColorOn(color: string) {
  const parts = [...Buffer.from(color.slice(1), 'hex')];
  const [red = 0, green = 0, blue = 0] = parts.map((part) => (part / 255) ** 2.2);
  const luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return luminance > 0.179 ? '#000' : '#fff';
}

export const render = readTemplates(import.meta.url, 'pages/frame.html');

/** Where the navigation of a page has the links of the site. */
const LINKS = '<!-- links -->';

/**
 * @returns puts the frame of the site around a page: what its head holds, then perhaps a `<nav>`,
 * which takes the links of the site in, then its `<main>`
 */
export function createFrame({ SITE_NAME: name, SITE_FOOTER: text, SITE_LINKS }: Site) {
  const links = SITE_LINKS.map((link) => {
    const [label = '', address = ''] = link.split(/=(.*)/);
    return render('header-link', { label, address });
  });
  const footer = text === null ? NOTHING : render('footer', { words: withLinks(text) });
  return (page: string) => {
    const [, head = '', nav = '', main = ''] = /^(.*?)(<nav.*?)?(<main.*)$/s.exec(page) ?? [];
    const all = links.map(({ text }) => text).join(' ');
    return render('frame', {
      name,
      skip: nav === '' ? NOTHING : render('skip'),
      nav: nav === '' ? render('site-links', { links }) : new Html(nav.replace(LINKS, () => all)),
      footer,
      head: new Html(head.replace('</title>', () => ` · ${escapeHtml(name)}</title>`)),
      main: new Html(main.replace('<main', '<main id="main" tabindex="-1"')),
    }).text;
  };
}

/** A page of `frame.html`, without scripts. */
export const sitePage = (site: Site, name: string, values: Values = {}) =>
  framedPage(site, render(name, values).text);

export const framedPage = (site: Site, page: string): TextReply => ({
  text: createFrame(site)(page),
  contentType: HTML,
  headers: PAGE_HEADERS,
});

/** Addresses become links, to an imprint for example. */
const withLinks = (text: string) =>
  text
    .split(/(https:\/\/[^\s"<>]+)/)
    .map((part, at) =>
      at % 2 === 1 ? render('link', { address: part }) : new Html(escapeHtml(part)),
    );

/** A file, read once. Nothing of a request gets into a page. */
function readPageFile(directory: URL, name: string): TextReply {
  const extension = name.split('.').at(-1);
  return {
    text: readFileSync(new URL(name, directory), 'utf8'),
    contentType: `text/${extension === 'js' ? 'javascript' : extension}; charset=utf-8`,
    headers: PAGE_HEADERS,
  };
}

const anyId = object({ id: text() });

/**
 * The routes of pages.
 * @param pages loading one changes nothing
 */
export function pageRows(
  site: Site,
  folder: URL,
  pages: ReadonlyArray<Readonly<Record<'pattern' | 'summary' | 'name', string>>>,
) {
  const frame = createFrame(site);
  // Those who open a link with an id are strangers, for whom the other pages are not.
  const strangersFrame = createFrame({ ...site, SITE_LINKS: [] });
  const name = escapeHtml(site.SITE_NAME);
  return pages.map(({ pattern, summary, name: fileName }) => {
    const page = readPageFile(folder, fileName);
    const isForStrangers = pattern.endsWith('/{id}');
    const around = isForStrangers ? strangersFrame : frame;
    const html = { ...page, text: around(page.text.replaceAll('{{site}}', name)) };
    return route({
      ...publicRead,
      pattern,
      summary,
      replyType: 'text/html',
      path: isForStrangers ? anyId : noInput,
      handle: async () => html,
    });
  });
}
