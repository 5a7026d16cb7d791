/** The share pages over HTTP. `make e2e NAME=browser` tests them in a browser. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { ask, AUTH_TOKEN, launch, startGatehouse } from '../../support/gatehouse.ts';
import { FRAME_FILES, framed, PAGE_SECURITY, SCRIPT } from '../../support/page-assertions.ts';
import { secretsClient } from '../../support/secrets.ts';
import { exchange } from '../../support/socket.ts';

const gatehouse = await launch(['secrets'], {
  SHARE_PAGES: 'on',
  LOG_LEVEL: 'debug',
  TRUSTED_PROXIES: '127.0.0.1',
});
const { sql, databaseUrl } = gatehouse;
const base = gatehouse.url.secrets;
const source = new URL('../../../src/secrets/pages/', import.meta.url);
/** The files that all pages share. */
const shared = new URL('../../../src/platform/http/site/pages/', import.meta.url);
const read = (name: string) =>
  framed(
    name,
    readFileSync(new URL(name, readdirSync(shared).includes(name) ? shared : source), 'utf8'),
  );

const raw = (line: string) => exchange(base, [`${line} HTTP/1.1`, 'Host: x', 'Connection: close']);
const readsOf = async (id: string) => {
  const [row] =
    await sql`select reads::int, failed_reads::int as failed, ending from secrets.secrets where id = ${id}`;
  return { ...row };
};

const HTML = 'text/html; charset=utf-8';
const SCRIPTS = [
  ...['make', 'reveal', 'receipt', 'request', 'kept-request', 'answer'],
  ...['access', 'confirm', 'envelope', 'form', 'opening', 'request-keys', 'page', 'qr'],
];
const FILES: ReadonlyArray<readonly [path: string, file: string, type: string]> = [
  ['/', 'make.html', HTML],
  [`/s/${randomUUID()}`, 'reveal.html', HTML],
  ['/s/not-an-id', 'reveal.html', HTML],
  ['/pages/style.css', 'style.css', 'text/css; charset=utf-8'],
  [`/r/${randomUUID()}`, 'receipt.html', HTML],
  ['/request', 'request.html', HTML],
  [`/request/${randomUUID()}`, 'kept-request.html', HTML],
  [`/answer/${randomUUID()}`, 'answer.html', HTML],
  ...SCRIPTS.map((name) => [`/pages/${name}.js`, `${name}.js`, SCRIPT] as const),
];

test('without SHARE_PAGES: every page is 404 and absent from the OpenAPI document', async (t) => {
  const { url } = await startGatehouse(t, ['secrets'], databaseUrl);
  const { id, secret } = await secretsClient(url.secrets).keep('without share pages');
  for (const [method, path] of [
    ...FILES.map(([path]) => ['GET', path] as const),
    ['HEAD', '/'],
    ['GET', `/s/${id}`],
    ['POST', `/s/${id}`],
  ] as const) {
    // The page at / for browsers has a style sheet and scripts as well.
    if (/^\/pages\/(style\.css|page\.js)$/.test(path)) continue;
    const answer = await ask(
      method,
      url.secrets + path,
      method === 'POST' ? { body: { secret } } : {},
    );
    assert.equal(answer.status, 404, path);
    if (method !== 'HEAD') assert.equal(answer.json.error.code, 'no_such_path', path);
  }
  const paths = Object.keys((await ask('GET', `${url.secrets}/openapi.json`)).json.paths);
  assert.deepEqual(
    paths.filter(
      (path) => !/^\/(api\/store|livez|readyz|openapi\.json|$|pages\/\{file\}$)/.test(path),
    ),
    [],
  );
  const options = () => ask('GET', `${url.secrets}/api/store/options`, { bearer: AUTH_TOKEN });
  assert.equal((await options()).json.share_pages, false);
  assert.deepEqual(await readsOf(id), { reads: 0, failed: 0, ending: null });
});

test('with SHARE_PAGES: described in the OpenAPI document, without a bearer token', async () => {
  const { paths } = (await ask('GET', `${base}/openapi.json`)).json;
  for (const [path, method] of [
    ['/', 'get'],
    ['/s/{id}', 'get'],
    ['/s/{id}', 'post'],
    ['/pages/{file}', 'get'],
    ['/s/{id}/status', 'post'],
    ['/s/{id}/delete', 'post'],
    ['/r/{id}', 'get'],
    ['/r/{id}', 'post'],
    ['/request', 'get'],
    ['/request/{id}', 'get'],
    ['/request/{id}', 'post'],
    ['/answer/{id}', 'get'],
  ] as const) {
    assert.deepEqual(paths[path]?.[method]?.security ?? [], [], `${method} ${path}`);
    assert.ok(paths[path]?.[method]?.summary, `${method} ${path}`);
  }
  // Its body may be large, so the key of the link is in the head.
  assert.deepEqual(paths['/answer/{id}'].post.security, [{ link_key: [] }]);
  assert.equal(
    (await ask('GET', `${base}/api/store/options`, { bearer: AUTH_TOKEN })).json.share_pages,
    true,
  );
});

for (const [path, file, type] of FILES) {
  test(`${path.replace(/[0-9a-f-]{36}/, '{id}')} is the file ${file} with these headers`, async () => {
    for (const method of ['GET', 'HEAD']) {
      const { status, headers, body } = await raw(`${method} ${path}`);
      assert.equal(status, 200);
      assert.equal(body, method === 'GET' ? read(file) : '');
      const {
        date,
        'x-request-id': requestId,
        connection,
        'content-length': length,
        ...rest
      } = Object.fromEntries(headers);
      assert.ok(date !== undefined && requestId !== undefined && connection === 'close');
      assert.equal(Number(length), Buffer.byteLength(read(file)));
      assert.deepEqual(rest, { 'content-type': type, ...PAGE_SECURITY });
    }
  });
}

test('the Content-Security-Policy allows nothing inline, evaluated or of another origin', () => {
  const policy = PAGE_SECURITY['content-security-policy'];
  assert.doesNotMatch(policy, /unsafe|eval|nonce|sha\d|https?:|data:|blob:|\*|\./);
  for (const directive of policy.split('; ').slice(0, -1))
    assert.match(directive, /^[a-z-]+ '(none|self)'$/);
});

const NOT_FOUND = [
  '/pages/',
  '/pages',
  '/pages/x.js',
  '/pages/STYLE.css',
  '/pages/style.css.map',
  '/pages/make.html',
  '/pages/reveal.html',
  '/pages/style.css%00',
  '/pages/%00',
  '/pages/..%2f..%2fpackage.json',
  '/pages/..%2fpages.ts',
  '/pages/%2e%2e%2froutes.ts',
  '/pages/..%5croutes.ts',
  '/pages/../../package.json',
  '/pages/..',
  '/pages/%2e%2e',
  '/pages/./style.css',
  '/pages//style.css',
  '/pages/style.css/x',
  '/pages/constructor',
  '/pages/__proto__',
  '/pages/toString',
  '/pages/%2fetc%2fpasswd',
  '/s',
  '/s/',
  '/s/a/b',
];
for (const path of NOT_FOUND) {
  test(`${path} is 404`, async () => {
    const { status, headers, json } = await raw(`GET ${path}`);
    assert.equal(status, 404);
    assert.match(json.error.code, /^(not_found|no_such_path)$/);
    assert.equal(
      headers.get('content-security-policy'),
      "default-src 'none'; frame-ancestors 'none'",
    );
  });
}

/** Every page with its scripts and what they import. */
const NAMES = [
  ...['make.html', 'reveal.html', 'receipt.html'],
  ...['request.html', 'kept-request.html', 'answer.html'],
];
const PAGES = NAMES.map((name) => ({ name, html: read(name), scripts: scriptsOf(read(name)) }));

function scriptsOf(html: string): string[] {
  const names = [...html.matchAll(/<script [^>]*src="\/pages\/([^"]+)"/g)].map(
    ([, name = '']) => name,
  );
  for (const name of names) {
    names.push(
      ...[...read(name).matchAll(/from '(?:\.|\/pages)\/([^']+)'/g)]
        .map(([, found = '']) => found)
        .filter((found) => !names.includes(found)),
    );
  }
  return names;
}

test('every file that a page loads is served, and no other', async () => {
  const loaded = PAGES.flatMap(({ html, scripts }) => [
    ...scripts,
    ...[...html.matchAll(/(?:href|src)="\/pages\/([^"]+)"/g)].map(([, name = '']) => name),
  ]);
  assert.deepEqual(
    [...new Set([...loaded, ...NAMES])].sort(),
    [...readdirSync(source), 'page.js', 'qr.js', ...FRAME_FILES].sort(),
  );
  for (const name of loaded)
    assert.equal((await ask('GET', `${base}/pages/${name}`)).status, 200, name);
});

test('no page has inline or third-party content, or turns text into markup', () => {
  for (const { name, html, scripts } of PAGES) {
    assert.doesNotMatch(
      html,
      /<style|\sstyle=|\son[a-z]+\s*=|javascript:|<base|<iframe|<object|<embed|http-equiv|srcdoc|action=/i,
      name,
    );
    for (const [, attributes = '', content] of html.matchAll(
      /<script([^>]*)>([\s\S]*?)<\/script>/g,
    )) {
      assert.match(attributes, /^ type="module" src="\/pages\/[a-z-]+\.js"$/, name);
      assert.equal(content, '', name);
    }
    for (const [, address = ''] of html.matchAll(/\s(?:src|href|srcset|data|poster)="([^"]*)"/g)) {
      assert.match(address, /^\/(request)?$|^\/pages\/([a-z-]+\.(js|css)|logo)$/, name);
    }
    assert.doesNotMatch(html, /\/\//, name);
    for (const script of scripts) {
      const text = read(script);
      assert.doesNotMatch(
        text,
        /innerHTML|outerHTML|insertAdjacent|document\.write|setHTML/,
        script,
      );
      assert.doesNotMatch(
        text,
        /\beval\b|new Function|localStorage|sessionStorage|indexedDB|\.cookie/,
        script,
      );
      assert.doesNotMatch(text, /\bcaches\b|serviceWorker|sendBeacon|WebSocket|import\(/, script);
      const addresses = [...text.matchAll(/[a-z]+:\/\/[^'"`\s]*/g)].map(([address]) => address);
      assert.deepEqual(
        addresses.filter((address) => address !== 'http://www.w3.org/2000/svg'),
        [],
        `${script}: only the SVG namespace`,
      );
    }
  }
  assert.doesNotMatch(read('style.css'), /url\(|@import|@font-face|expression|\/\//);
});

/** The tag of each element type. */
const TAGS: Readonly<Record<string, RegExp>> = {
  HTMLElement: /^[a-z0-9]+$/,
  HTMLFormElement: /^form$/,
  HTMLInputElement: /^input$/,
  HTMLTextAreaElement: /^textarea$/,
  HTMLSelectElement: /^select$/,
  HTMLButtonElement: /^button$/,
  HTMLAnchorElement: /^a$/,
};

test('every element that a script uses exists in its pages with the expected type', () => {
  for (const { name, html, scripts } of PAGES) {
    const elements = new Map(
      [...html.matchAll(/<([a-z0-9]+)[^>]*\sid="([^"]+)"/g)].map(([, tag = '', id = '']) => [
        id,
        tag,
      ]),
    );
    assert.equal(
      elements.size,
      [...html.matchAll(/\sid="/g)].length,
      `${name}: every id is unique`,
    );
    for (const script of scripts) {
      const used = [...read(script).matchAll(/element\('([^']+)', (\w+)\)/g)].map(
        ([, id = '', type = '']) => [id, type] as const,
      );
      const switched = [...read(script).matchAll(/switchSection\('([^']+)', '([^']+)'\)/g)].flatMap(
        ([, from = '', to = '']) =>
          [from, to, `${to}-heading`].map((id) => [id, 'HTMLElement'] as const),
      );
      if (!/^(address|qr|envelope|form|link|request-keys|reveal)\.js$/.test(script))
        assert.ok(used.length > 0, script);
      for (const [id, type] of [...used, ...switched]) {
        assert.match(
          elements.get(id) ?? '',
          TAGS[type] ?? assert.fail(type),
          `${script} uses ${id} of ${name}`,
        );
      }
    }
    for (const [, ids = ''] of html.matchAll(
      /\s(?:for|aria-describedby|aria-labelledby|aria-controls)="([^"]+)"/g,
    )) {
      for (const id of ids.split(' ')) assert.ok(elements.has(id), `${name} refers to ${id}`);
    }
  }
});
