/**
 * What documents refer to: files, messages, commands, headings, other documents and pictures; and
 * docs/asvs.md, where every requirement has a verdict and evidence.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { readGuarantees } from '../../scripts/guarantees.ts';
import { COMMANDS } from '../support/commands.ts';
import { DOCUMENTS, PAGES, readDocument as read, SOURCES } from '../support/documents.ts';
import { root } from '../support/process.ts';

const run = promisify(execFile);

/** What a document shows as code. */
function codeOf(document: string): string[] {
  const found = read(document).matchAll(/```[a-z]*\n([\s\S]*?)```|`([^`\n]+)`/g);
  return [...found].map(([, block, word]) => block ?? word ?? '');
}

test('every file that a document names exists', () => {
  const entries = readdirSync(root, { recursive: true, encoding: 'utf8' });
  const all = entries.filter((name) => !/^(node_modules|dist|\.git|\.data)\b/.test(name));
  const isName = /^(src|test|scripts|docs)\/[A-Za-z0-9_.*/-]+$|^[A-Z][A-Za-z]+\.md$/;
  for (const document of DOCUMENTS) {
    for (const name of codeOf(document).filter((word) => isName.test(word))) {
      const path = name.replace(/\/$/, '').replaceAll('.', '\\.').replaceAll('*', '[^/]*');
      const pattern = new RegExp(`^${path}$`);
      assert.ok(
        all.some((file) => pattern.test(file)),
        `${document} names ${name}`,
      );
    }
  }
});

/** The anchors of a document's headings, as the usual viewers make them. */
function anchorsOf(document: string): string[] {
  const text = read(document).replaceAll(/```[\s\S]*?```/g, '');
  const headings = text.match(/(?<=^#+ ).*$/gm) ?? [];
  return headings.map((heading) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-'),
  );
}

/** Messages of other programs. */
const FOREIGN = ['canceling statement due to lock timeout', 'worker process is shutting down'];

test('every message that a document quotes is one of the program', () => {
  const source = SOURCES.map(read)
    .join('')
    .replaceAll(/'\s*\+\s*'/g, '')
    .replaceAll(/\s+/g, ' ');
  const isMessage = /^(?!gatehouse |docker |make |npm |for )[a-z…]+( [a-z,…]+){3,}( \([A-Z]+\))?$/;
  const pages = PAGES.filter((page) => !/commands|oidc|identity|postgresql/.test(page));
  const quoted = pages.flatMap((page) =>
    [...read(page).matchAll(/`([^`\n]+)`/g)].map(([, text = '']) => text),
  );
  const messages = quoted.filter((text) => isMessage.test(text) && !FOREIGN.includes(text));
  assert.ok(messages.length > 20);
  for (const message of messages) {
    // Of a factor, the log says which in one template.
    const parts = message.replace('second factor', '').split(/…|\([A-Z]+\)/);
    for (const part of parts.map((one) => one.trim()).filter((one) => one.includes(' ')))
      assert.ok(source.includes(part), message);
  }
});

test('every command that a document names exists', () => {
  const known = ['serve', 'help', 'COMMAND', ...COMMANDS.map(({ name }) => name)];
  const code = DOCUMENTS.flatMap(codeOf).join('\n');
  const called = /^(?:.*\| |.* exec .* )?(?:gatehouse|node dist\/cli\.js) ([a-z][a-z -]*)/gm;
  const named = [...code.matchAll(called)];
  assert.ok(named.length > 50);
  for (const [, words = ''] of named)
    assert.ok(
      known.some((name) => `${words.trim()} `.startsWith(`${name} `)),
      words,
    );
});

test('a configuration that a page prints is that of deploy/', () => {
  const files = ['caddy/programs.caddyfile', 'nginx/programs.conf'];
  const texts = files.map((name) => read(join('deploy', name)));
  const page = read('docs/many-programs.md');
  const blocks = [...page.matchAll(/^```\w*\n([^]*?)^```$/gm)].map(([, block = '']) => block);
  const printed = blocks.filter((block) => /\{\n/.test(block));
  assert.equal(printed.length, 3);
  for (const block of printed) assert.ok(texts.join('\n').includes(block), block);
});

test('SECURITY.md names a change of the code that breaks each guarantee', () => {
  const guarantees = readGuarantees(read('SECURITY.md'));
  assert.ok(guarantees.length >= 50);
  for (const { promise, file, from, tests } of guarantees) {
    assert.equal(read(file).split(from).length, 2, `${file} has ${from} once`);
    assert.ok(tests.length > 0, promise);
  }
});

test('every link between documents leads to a file, and to a heading of it', () => {
  for (const document of DOCUMENTS) {
    for (const [, link = ''] of read(document).matchAll(/\]\((?!https?:)([^)]+)\)/g)) {
      const [path = '', anchor] = link.split('#');
      const target = path === '' ? document : normalize(join(dirname(document), path));
      assert.ok(existsSync(join(root, target)), `${document} links to ${link}`);
      const isThere = anchor === undefined || anchorsOf(target).includes(anchor);
      assert.ok(isThere, `${document} links to ${link}, and there is no such heading`);
    }
  }
});

/** In Markdown and in HTML, which alone can name a picture for dark mode. */
const PICTURE = /!\[([^\]]*)\]\(([^)]+)\)|<img src="([^"]+)"[^>]* alt="([^"]*)"|srcset="([^"]+)"/g;

test('every picture of a document exists and has a text alternative', () => {
  const shown = DOCUMENTS.flatMap((page) =>
    [...read(page).matchAll(PICTURE)].map((found) => ({ page, found })),
  );
  assert.ok(shown.length > 0);
  for (const { page, found } of shown) {
    const [whole, text, file, source, alternative, dark] = found;
    const name = join(dirname(page), file ?? source ?? dark ?? '');
    assert.ok(existsSync(join(root, name)), `${page}: ${name}`);
    if (dark === undefined) assert.ok((text ?? alternative ?? '').length > 20, `${page}: ${whole}`);
  }
});

test('every make target that a document names is listed by make help', async () => {
  const { stdout } = await run('make', ['-s', 'help'], { cwd: root });
  const code = DOCUMENTS.flatMap(codeOf).join('\n');
  const named = code.match(/(?<=(?:^|[\s;&])make )[a-z0-9-]+/g) ?? [];
  assert.ok(new Set(named).size >= 5, 'the documents name targets');
  for (const target of named) assert.match(stdout, new RegExp(`^ +make ${target} +\\S`, 'm'));
  const suites = code.match(/(?<=make e2e NAME=)[a-z]+/g) ?? [];
  for (const name of suites) assert.ok(existsSync(join(root, 'test/e2e', name)), name);
});

/**
 * The requirements of Level 1 and 2 that apply. One that disappears from the document would be
 * missed otherwise.
 */
const EXPECTED: Readonly<Record<string, string>> = {
  1: `
    1.2.4 2.2.1 3.3.1 3.5.1 4.1.1 6.1.1 6.2.1 6.2.2 6.2.3 6.2.4 6.2.5 6.2.8 6.3.1 6.3.2 6.4.1
    7.2.2 7.2.3 7.2.4 7.4.1 7.4.2 8.1.1 8.2.1 8.2.2 8.3.1 10.4.1 10.4.2 10.4.3 10.4.4 10.4.5 11.3.2
    11.4.1 14.2.1 15.3.1`,
  2: `
    1.3.6 2.3.3 2.4.1 3.3.3 4.1.3 4.2.1 6.1.2 6.2.9 6.2.11 6.2.12 6.3.3 6.5.1 6.5.2 6.5.5 7.1.1
    7.1.2 7.3.1 7.3.2 7.4.3 7.4.5 7.5.1 7.5.2 8.2.3 10.3.1 10.4.6 10.4.8 10.4.9 10.4.10 10.4.11
    10.6.1 10.6.2 10.7.1 10.7.2 10.7.3 11.1.2 11.2.2 11.3.3 11.4.2 11.5.1 12.3.1
    13.2.1 13.2.2 13.3.1 13.4.4 13.4.5 14.3.2 15.1.3 15.2.2 15.3.3 15.3.4 15.3.5 15.3.6 16.2.1
    16.2.5 16.3.1 16.3.2 16.3.3 16.4.1 16.4.2 16.5.1 16.5.2 16.5.3`,
};

const rows = read('docs/asvs.md')
  .split('\n')
  .filter((line) => /^\| \d/.test(line))
  .map((line) => {
    const cells = line.slice(1, -1).split('|');
    assert.equal(cells.length, 5, line);
    const [id = '', level = '', requirement = '', verdict = '', evidence = ''] = cells.map((cell) =>
      cell.trim(),
    );
    return { id, level, requirement, verdict, evidence };
  });

test('every requirement is listed once, with a sentence, and none is missing', () => {
  const ids = rows.map(({ id }) => id);
  assert.equal(new Set(ids).size, ids.length, 'a requirement is listed twice');
  for (const { level, requirement, id } of rows)
    assert.match(`${level} ${requirement}`, /^[123] [A-Z].*\.$/, id);
  for (const [level, expected] of Object.entries(EXPECTED)) {
    const listed = rows.filter((row) => row.level === level).map(({ id }) => id);
    assert.deepEqual(listed.sort(), expected.trim().split(/\s+/).sort(), level);
  }
});

test('every verdict is one of three, and has its evidence or its reason', () => {
  for (const { id, verdict, evidence } of rows) {
    assert.ok(['met', 'not met', 'not applicable'].includes(verdict), `${id}: "${verdict}"`);
    const words = evidence.replaceAll(/`[^`]*`/g, '').split(/\s+/).length;
    if (verdict !== 'met') {
      assert.ok(words >= 4, `${id} has no reason`);
      continue;
    }
    const files = evidence.match(/`((src|test|scripts|docs)\/[^`]+|[A-Z]+\.md)`/g) ?? [];
    const tests = files.filter((name) => name.endsWith('.test.ts`'));
    assert.ok(files.length > tests.length, `${id} names neither a source file nor a document`);
    assert.ok(tests.length > 0, `${id} names no test`);
  }
});

test('the requirements that are not met come first, together, and SECURITY.md leads there', () => {
  const verdicts = rows.map(({ verdict }) => verdict === 'not met');
  assert.ok(verdicts.lastIndexOf(true) < verdicts.indexOf(false));
  assert.match(read('SECURITY.md'), /\]\(docs\/asvs\.md#not-met\)/);
});
