/** What is tested of the pages of secrets and webhook, which are files. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { createFrame } from '../../src/platform/http/site/pages.ts';
import { SITE } from './service-context.ts';
import { exchange } from './socket.ts';

/** What every answer that is a page, or a part of one, carries. */
export const PAGE_SECURITY = {
  'cache-control': 'no-store',
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
};
const TYPES: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
};

/** The files that all pages share. */
const shared = new URL('../../src/platform/http/site/pages/', import.meta.url);
const SHARED = readdirSync(shared);
/** What a page loads in addition to its own scripts. */
const FRAME_FILES = ['logo', 'site.css', 'style.css'];

/**
 * The names of the files of a service, and a file as it is sent: a page in the frame of the site.
 */
export function pagesOf(service: 'secrets' | 'webhook') {
  const source = new URL(`../../src/${service}/pages/`, import.meta.url);
  return {
    names: readdirSync(source),
    read(name: string): string {
      const text = readFileSync(new URL(name, SHARED.includes(name) ? shared : source), 'utf8');
      if (!name.endsWith('.html')) return text;
      return createFrame(SITE)(text.replaceAll('{{site}}', SITE.SITE_NAME));
    },
  };
}
type PageFiles = ReturnType<typeof pagesOf>;

const INLINE =
  /<style|\sstyle=|\son[a-z]+\s*=|javascript:|<base|<iframe|<object|<embed|http-equiv|srcdoc|action=|\/\//i;
const FORBIDDEN = [
  /innerHTML|outerHTML|insertAdjacent|document\.write|setHTML|\beval\b|new Function/,
  /localStorage|sessionStorage|indexedDB|\.cookie|\bcaches\b|serviceWorker/,
  /sendBeacon|EventSource|WebSocket|import\(|[?&]token=|[a-z]+:\/\//,
];

const raw = (url: string, line: string) =>
  exchange(url, [`${line} HTTP/1.1`, 'Host: x', 'Connection: close']);
const matches = (text: string, pattern: RegExp): string[] =>
  [...text.matchAll(pattern)].map(([, found = '']) => found);

/** The scripts of a page, and what they import. */
function scriptsOf({ read }: PageFiles, page: string): string[] {
  const names = matches(read(page), /<script [^>]*src="\/pages\/([^"]+)"/g);
  for (const name of names) {
    const found = matches(read(name), /from '(?:\.|\/pages)\/([^']+)'/g);
    names.push(...new Set(found.filter((one) => !names.includes(one))));
  }
  return names;
}

/** What is tested of a service with pages. */
interface Expected {
  /** By its path, each file that is served besides those that pages load. */
  readonly files: ReadonlyArray<readonly [path: string, file: string]>;
  readonly notFound: readonly string[];
  /** The paths outside `/pages/` to which a page may lead. */
  readonly links: RegExp;
  /** Scripts that use no element. */
  readonly without: RegExp;
  /** A script that has parts for other pages. */
  readonly unchecked?: string;
}

export function testPages(url: string, pages: PageFiles, expected: Expected): void {
  testServed(url, pages, expected);
  testContent(url, pages, expected);
}

function testServed(url: string, { names, read }: PageFiles, { files, notFound }: Expected): void {
  test('each file is served with these headers', async () => {
    const scripts = names.filter((name) => name.endsWith('.js'));
    const all = [...files, ...scripts.map((name) => [`/pages/${name}`, name] as const)];
    for (const [path, file] of all) {
      for (const method of ['GET', 'HEAD']) {
        const { status, headers, body } = await raw(url, `${method} ${path}`);
        assert.deepEqual([status, body], [200, method === 'GET' ? read(file) : ''], path);
        const { date, 'x-request-id': requestId, ...rest } = Object.fromEntries(headers);
        assert.ok(date !== undefined && requestId !== undefined);
        assert.deepEqual(rest, {
          ...PAGE_SECURITY,
          'content-type': TYPES[file.replace(/^.*\./, '')],
          'content-length': String(Buffer.byteLength(read(file))),
          connection: 'close',
        });
      }
    }
  });

  test('any other path is 404', async () => {
    for (const path of notFound) {
      const { status, headers, json } = await raw(url, `GET ${path}`);
      assert.equal(status, 404, path);
      assert.match(json.error.code, /^(not_found|no_such_path)$/);
      const policy = headers.get('content-security-policy');
      assert.equal(policy, "default-src 'none'; frame-ancestors 'none'");
    }
  });
}

function testContent(url: string, pages: PageFiles, { links, without, unchecked }: Expected): void {
  const { names, read } = pages;
  const own = names.filter((name) => name.endsWith('.html'));
  const loaded = own.flatMap((page) => [
    ...scriptsOf(pages, page),
    ...matches(read(page), /(?:href|src)="\/pages\/([^"]+)"/g),
  ]);

  test('every file is a page or loaded by one, and what pages load is served', async () => {
    const foreign = loaded.filter((name) => SHARED.includes(name) && name.endsWith('.js'));
    const expected = new Set([...names, ...foreign, ...FRAME_FILES]);
    assert.deepEqual([...new Set([...loaded, ...own])].sort(), [...expected].sort());
    for (const name of new Set(loaded))
      assert.equal((await raw(url, `GET /pages/${name}`)).status, 200, name);
  });

  test('no page has inline or third-party content, or turns text into markup', () => {
    for (const page of own) {
      const html = read(page);
      assert.doesNotMatch(html, INLINE, page);
      for (const script of html.match(/<script[^]*?<\/script>/g) ?? [])
        assert.match(script, /^<script type="module" src="\/pages\/[a-z-]+\.js"><\/script>$/, page);
      for (const address of matches(html, /\s(?:src|href|srcset|data|poster)="([^"]*)"/g)) {
        const isFile = /^\/pages\/([a-z-]+\.(js|css)|logo)$/.test(address);
        assert.ok(isFile || links.test(address), `${page}: ${address}`);
      }
    }
    for (const name of new Set(own.flatMap((page) => scriptsOf(pages, page)))) {
      // The namespace of SVG is a name, and no address.
      const text = read(name).replaceAll("'http://www.w3.org/2000/svg'", '');
      for (const forbidden of FORBIDDEN) assert.doesNotMatch(text, forbidden, name);
    }
    for (const name of loaded.filter((one) => one.endsWith('.css') && one !== 'site.css'))
      assert.doesNotMatch(read(name), /url\(|@import|@font-face|expression|\/\//, name);
  });

  test('every element that a script uses exists in its pages with the expected type', () => {
    for (const page of own) {
      const scripts = scriptsOf(pages, page).filter((name) => name !== unchecked);
      assertElements(pages, page, scripts, without);
    }
  });
}

/** The tags whose types are not called after them. Any element is an HTMLElement. */
const TAGS: Readonly<Record<string, RegExp>> = {
  HTMLElement: /./,
  HTMLAnchorElement: /^a$/,
  HTMLTableSectionElement: /^tbody$/,
};
const tagOf = (type: string) =>
  TAGS[type] ?? new RegExp(`^${type.slice('HTML'.length, -'Element'.length)}$`, 'i');

function assertElements(
  pages: PageFiles,
  page: string,
  scripts: readonly string[],
  without: RegExp,
): void {
  const html = pages.read(page);
  const found = html.matchAll(/<([a-z0-9]+)[^>]*\sid="([^"]+)"/g);
  const elements = new Map([...found].map(([, tag = '', id = '']) => [id, tag]));
  assert.equal(elements.size, matches(html, /\s(id)="/g).length, `${page}: every id is unique`);
  for (const script of scripts) {
    const text = pages.read(script);
    const used = [...text.matchAll(/element\('([^']+)', (\w+)\)/g)];
    const switched = [...text.matchAll(/switchSection\('([^']+)', '([^']+)'\)/g)].flatMap(
      ([, from = '', to = '']) => [from, to, `${to}-heading`].map((id) => ['', id, 'HTMLElement']),
    );
    if (!without.test(script)) assert.ok(used.length > 0, script);
    for (const [, id = '', type = ''] of [...used, ...switched])
      assert.match(elements.get(id) ?? '', tagOf(type), `${script} uses ${id} of ${page}`);
  }
  const references = /\s(?:for|aria-describedby|aria-labelledby|aria-controls)="([^"]+)"/g;
  for (const id of matches(html, references).flatMap((ids) => ids.split(' ')))
    assert.ok(elements.has(id), `${page} refers to ${id}`);
}
