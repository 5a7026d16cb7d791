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

/** The files of a service. */
export interface PageFiles {
  readonly names: readonly string[];
  /** A file as the service sends it: a page in the frame of the site. */
  read(name: string): string;
}

export function pagesOf(service: 'secrets' | 'webhook'): PageFiles {
  const source = new URL(`../../src/${service}/pages/`, import.meta.url);
  return {
    names: readdirSync(source),
    read(name) {
      const text = readFileSync(new URL(name, SHARED.includes(name) ? shared : source), 'utf8');
      if (!name.endsWith('.html')) return text;
      return createFrame(SITE)(text.replaceAll('{{site}}', SITE.SITE_NAME));
    },
  };
}

const raw = (url: string, line: string) =>
  exchange(url, [`${line} HTTP/1.1`, 'Host: x', 'Connection: close']);

/** Tests of the headers: for each path that is a file, and for each that is none. */
export function testServed(
  url: string,
  { read }: PageFiles,
  files: ReadonlyArray<readonly [path: string, file: string]>,
  notFound: readonly string[],
): void {
  test('the Content-Security-Policy allows nothing inline, evaluated or of another origin', () => {
    const policy = PAGE_SECURITY['content-security-policy'];
    assert.doesNotMatch(policy, /unsafe|eval|nonce|sha\d|https?:|data:|blob:|\*|\./);
    for (const directive of policy.split('; ').slice(0, -1))
      assert.match(directive, /^[a-z-]+ '(none|self)'$/);
  });

  for (const [path, file] of files) {
    test(`${path.replace(/[0-9a-f-]{36}/, '{id}')} is the file ${file}, with these headers`, async () => {
      for (const method of ['GET', 'HEAD']) {
        const { status, headers, body } = await raw(url, `${method} ${path}`);
        assert.deepEqual([status, body], [200, method === 'GET' ? read(file) : '']);
        const { date, 'x-request-id': requestId, ...rest } = Object.fromEntries(headers);
        assert.ok(date !== undefined && requestId !== undefined);
        assert.deepEqual(rest, {
          ...PAGE_SECURITY,
          'content-type': TYPES[file.replace(/^.*\./, '')],
          'content-length': String(Buffer.byteLength(read(file))),
          connection: 'close',
        });
      }
    });
  }
  for (const path of notFound) {
    test(`${path} is 404`, async () => {
      const { status, headers, json } = await raw(url, `GET ${path}`);
      assert.equal(status, 404);
      assert.match(json.error.code, /^(not_found|no_such_path)$/);
      const policy = headers.get('content-security-policy');
      assert.equal(policy, "default-src 'none'; frame-ancestors 'none'");
    });
  }
}

const matches = (text: string, pattern: RegExp): string[] =>
  [...text.matchAll(pattern)].map(([, found = '']) => found);

/** The scripts of a page, and what they import. */
export function scriptsOf({ read }: PageFiles, page: string): string[] {
  const names = matches(read(page), /<script [^>]*src="\/pages\/([^"]+)"/g);
  for (const name of names) {
    const found = matches(read(name), /from '(?:\.|\/pages)\/([^']+)'/g);
    names.push(...new Set(found.filter((one) => !names.includes(one))));
  }
  return names;
}

/** Every file is a page or loaded by one, and is there. @returns what the pages load */
export function assertAllLoaded(files: PageFiles, pages: readonly string[]): string[] {
  const loaded = pages.flatMap((page) => [
    ...scriptsOf(files, page),
    ...matches(files.read(page), /(?:href|src)="\/pages\/([^"]+)"/g),
  ]);
  const foreign = loaded.filter((name) => SHARED.includes(name) && name.endsWith('.js'));
  const expected = new Set([...files.names, ...foreign, ...FRAME_FILES]);
  assert.deepEqual([...new Set([...loaded, ...pages])].sort(), [...expected].sort());
  return loaded;
}

const INLINE =
  /<style|\sstyle=|\son[a-z]+\s*=|javascript:|<base|<iframe|<object|<embed|http-equiv|srcdoc|action=|\/\//i;
const FORBIDDEN = [
  /innerHTML|outerHTML|insertAdjacent|document\.write|setHTML|\beval\b|new Function/,
  /localStorage|sessionStorage|indexedDB|\.cookie|\bcaches\b|serviceWorker/,
  /sendBeacon|WebSocket|import\(|[a-z]+:\/\//,
];

/** @param links the paths outside `/pages/` to which a page may lead */
export function assertNothingForeign(files: PageFiles, page: string, links: RegExp): void {
  const html = files.read(page);
  assert.doesNotMatch(html, INLINE, page);
  for (const [, attributes = '', content] of html.matchAll(
    /<script([^>]*)>([\s\S]*?)<\/script>/g,
  )) {
    assert.match(attributes, /^ type="module" src="\/pages\/[a-z-]+\.js"$/, page);
    assert.equal(content, '', page);
  }
  for (const address of matches(html, /\s(?:src|href|srcset|data|poster)="([^"]*)"/g)) {
    const isFile = /^\/pages\/([a-z-]+\.(js|css)|logo)$/.test(address);
    assert.ok(isFile || links.test(address), `${page}: ${address}`);
  }
  for (const script of scriptsOf(files, page)) {
    // The namespace of SVG is a name, and no address.
    const text = files.read(script).replaceAll("'http://www.w3.org/2000/svg'", '');
    for (const forbidden of FORBIDDEN) assert.doesNotMatch(text, forbidden, script);
  }
}

/** The tag of each element type. */
const TAGS: Readonly<Record<string, RegExp>> = {
  HTMLElement: /^[a-z0-9]+$/,
  HTMLDetailsElement: /^details$/,
  HTMLFormElement: /^form$/,
  HTMLInputElement: /^input$/,
  HTMLTextAreaElement: /^textarea$/,
  HTMLSelectElement: /^select$/,
  HTMLButtonElement: /^button$/,
  HTMLTableElement: /^table$/,
  HTMLTableSectionElement: /^tbody$/,
  HTMLTemplateElement: /^template$/,
  HTMLAnchorElement: /^a$/,
};

/**
 * Every element that a script uses exists in its page with the expected type.
 * @param without scripts that use no element
 */
export function assertElements(
  files: PageFiles,
  page: string,
  scripts: readonly string[],
  without: RegExp,
): void {
  const html = files.read(page);
  const found = html.matchAll(/<([a-z0-9]+)[^>]*\sid="([^"]+)"/g);
  const elements = new Map([...found].map(([, tag = '', id = '']) => [id, tag]));
  assert.equal(elements.size, matches(html, /\s(id)="/g).length, `${page}: every id is unique`);
  for (const script of scripts) {
    const text = files.read(script);
    const used = [...text.matchAll(/element\('([^']+)', (\w+)\)/g)].map(
      ([, id = '', type = '']) => [id, type] as const,
    );
    const switched = [...text.matchAll(/switchSection\('([^']+)', '([^']+)'\)/g)].flatMap(
      ([, from = '', to = '']) =>
        [from, to, `${to}-heading`].map((id) => [id, 'HTMLElement'] as const),
    );
    if (!without.test(script)) assert.ok(used.length > 0, script);
    for (const [id, type] of [...used, ...switched]) {
      const what = `${script} uses ${id} of ${page}`;
      assert.match(elements.get(id) ?? '', TAGS[type] ?? assert.fail(type), what);
    }
  }
  const references = /\s(?:for|aria-describedby|aria-labelledby|aria-controls)="([^"]+)"/g;
  for (const id of matches(html, references).flatMap((ids) => ids.split(' ')))
    assert.ok(elements.has(id), `${page} refers to ${id}`);
}
