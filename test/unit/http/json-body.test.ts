import assert from 'node:assert/strict';
import type { IncomingHttpHeaders } from 'node:http';
import { test } from 'node:test';
import {
  invalidBody,
  json,
  noBody,
  problemOf,
} from '../../../src/platform/http/route/json-body.ts';
import { Failure } from '../../../src/platform/http/route/errors.ts';
import {
  list,
  object,
  optional,
  pointer,
  type Schema,
  text,
} from '../../../src/platform/http/route/schema.ts';
import { seeded } from '../../support/random.ts';

const schema = object({ name: text() });
const lax = json(schema);
const strict = json(schema, 'required');
const outcome = (rule: typeof lax, headers: IncomingHttpHeaders) =>
  rule.accepts(headers)?.code ?? 'accepted';

const TYPES: ReadonlyArray<readonly [contentType: string | undefined, isAccepted: boolean]> = [
  ['application/json', true],
  ['APPLICATION/JSON', true],
  ['Application/Json; Charset=UTF-8', true],
  ['application/json;charset=utf-8', true],
  ['application/json ; charset="utf-8"', true],
  [' application/json', true],
  ['application/json;', true],
  ['application/cloudevents+json', true],
  ['application/vnd.api+json; charset=utf-8', true],
  ['application/LD+JSON', true],
  // RFC 8259, section 11: no charset parameter is defined for JSON, so it changes nothing.
  ['application/json; charset=iso-8859-1', true],
  [undefined, false],
  ['', false],
  ['json', false],
  ['text/plain', false],
  ['text/json', false],
  ['application/jsonp', false],
  ['application/json-seq', false],
  ['application/x-www-form-urlencoded', false],
  ['multipart/form-data; boundary=application/json', false],
  ['text/plain; a=application/json', false],
  ['application/+json', false],
  ['+json', false],
  ['application/json, text/plain', false],
  ['application/json text/plain', false],
  ['application/xml+jsonx', false],
];

test('required JSON: application/json and …+json, in any case and with parameters', () => {
  for (const [contentType, isAccepted] of TYPES) {
    const headers = contentType === undefined ? {} : { 'content-type': contentType };
    assert.equal(
      outcome(strict, headers),
      isAccepted ? 'accepted' : 'unsupported_media_type',
      String(contentType),
    );
  }
});

test('optional JSON: any content type or none', () => {
  for (const [contentType] of TYPES) {
    assert.equal(
      outcome(lax, contentType === undefined ? {} : { 'content-type': contentType }),
      'accepted',
    );
  }
});

test('a compressed body is rejected', () => {
  for (const encoding of [
    'gzip',
    'GZIP',
    'br',
    'deflate',
    'gzip, identity',
    'identity, gzip',
    'x-unknown',
  ]) {
    for (const rule of [lax, strict]) {
      assert.equal(
        outcome(rule, { 'content-type': 'application/json', 'content-encoding': encoding }),
        'unsupported_media_type',
        encoding,
      );
    }
  }
  // Some clients name the encoding of the text.
  for (const encoding of ['identity', 'Identity', '', 'utf-8', 'UTF-8', 'utf8']) {
    assert.equal(
      outcome(strict, { 'content-type': 'application/json', 'content-encoding': encoding }),
      'accepted',
    );
  }
});

test('the error for a wrong content type names the right one', () => {
  assert.match(strict.accepts({})?.details.message ?? '', /Content-Type: application\/json/);
});

const bytes = (...parts: ReadonlyArray<string | number[]>) =>
  Buffer.concat(
    parts.map((part) => (typeof part === 'string' ? Buffer.from(part) : Buffer.from(part))),
  );
const REQUIRED = 'a JSON body is required';
const UTF8 = 'the body must be encoded in UTF-8';
const JSON_TEXT = 'the body must be valid JSON';
const OBJECT = 'must be a JSON object';
const LEVELS = 'has more than 32 levels';

const WRONG: ReadonlyArray<readonly [what: string, raw: Buffer, message: string]> = [
  ['nothing', Buffer.alloc(0), REQUIRED],
  ['white space', bytes(' \r\n'), JSON_TEXT],
  ['a truncated object', bytes('{"name":"marked'), JSON_TEXT],
  ['a trailing comma', bytes('{"name":"marked",}'), JSON_TEXT],
  ['two values', bytes('{"name":"marked"}{}'), JSON_TEXT],
  ['single quotes', bytes("{'name':'marked'}"), JSON_TEXT],
  ['a comment', bytes('{"name":"marked"/**/}'), JSON_TEXT],
  ['NaN', bytes('NaN'), JSON_TEXT],
  ['a form', bytes('name=marked'), JSON_TEXT],
  ['a byte order mark', bytes([0xef, 0xbb, 0xbf], '{"name":"marked"}'), JSON_TEXT],
  ['a NUL behind', bytes('{"name":"marked"}\0'), JSON_TEXT],
  ['a NUL in a string', bytes('{"name":"mar\0ked"}'), JSON_TEXT],
  ['a line break in a string', bytes('{"name":"mar\nked"}'), JSON_TEXT],
  ['UTF-16', Buffer.from('{"name":"marked"}', 'utf16le'), JSON_TEXT],
  ['UTF-16 with its mark', Buffer.from('\ufeff{"name":"marked"}', 'utf16le'), UTF8],
  ['Latin-1', Buffer.from('{"name":"markéd"}', 'latin1'), UTF8],
  ['an overlong form', bytes('{"name":"', [0xc0, 0xaf], '"}'), UTF8],
  ['a surrogate in UTF-8', bytes('{"name":"', [0xed, 0xa0, 0x80], '"}'), UTF8],
  ['a truncated character', bytes('{"name":"', [0xe2, 0x82], '"}'), UTF8],
  ['null', bytes('null'), OBJECT],
  ['an array', bytes('[{"name":"marked"}]'), OBJECT],
  ['a string', bytes('"marked"'), OBJECT],
  ['a number', bytes('1'), OBJECT],
  ['30,000 arrays in one another', bytes('['.repeat(30_000), ']'.repeat(30_000)), LEVELS],
];

test('a body that is not a JSON object in UTF-8 is rejected without quoting it', () => {
  for (const [what, raw, message] of WRONG) {
    assert.deepEqual(lax.parse(raw), invalidBody(message), what);
  }
});

test('a JSON object is read, with or without white space around it', () => {
  for (const raw of [
    '{"name":"a"}',
    ' \t\r\n{"name":"a"}\n',
    '{"name":"\\u0061"}',
    `{"x":${'['.repeat(31)}${']'.repeat(31)},"name":"a"}`,
  ]) {
    assert.deepEqual(lax.parse(Buffer.from(raw)), { name: 'a' }, raw.slice(0, 40));
  }
});

test('text is read unchanged, with supplementary characters and byte order marks', () => {
  for (const name of ['€', '𝄞', '\ufeffx', '\0', 'e\u0301']) {
    assert.deepEqual(lax.parse(Buffer.from(JSON.stringify({ name }))), { name });
  }
});

test('a route without a body accepts any headers and reads nothing', () => {
  assert.equal(noBody.accepts({ 'content-encoding': 'gzip', 'content-type': 'text/plain' }), null);
  assert.equal(noBody.parse(Buffer.from('not JSON')), null);
});

const DUPLICATES: ReadonlyArray<readonly [json: string, path: string | null]> = [
  ['{"a":1,"a":1}', '/a'],
  ['{"a":1,"b":{"a":1},"a":2}', '/a'],
  ['{"a":1,"\\u0061":2}', '/a'],
  ['{"\\"":1,"\\u0022":2}', '/"'],
  ['{"\\\\":1,"\\u005c":2}', '/\\'],
  ['{"a" \r\n\t: 1, "a"   : 2}', '/a'],
  ['{"":1,"":2}', '/'],
  ['{"a/b~":1,"a/b~":2}', '/a~1b~0'],
  ['{"__proto__":1,"__proto__":2}', '/__proto__'],
  ['{"data":{"page_id":"1","page_id":"2"}}', '/data/page_id'],
  ['{"data":[],"data":{}}', '/data'],
  ['{"x":[{"a":1}],"data":{"page_id":"1","page_id":"2"}}', '/data/page_id'],
  ['{"\\ud83d\\ude00":1,"😀":2}', '/😀'],
  ['{"a":"a","b":"a","c":["a","a"]}', null],
  ['{"a":"\\"a\\":1","b":"{\\"b\\":1,"}', null],
  ['{"a":"\\\\","b":"\\\\\\"a\\":"}', null],
  ['{"a":{"x":1},"b":{"x":1},"x":1}', null],
  ['{"a":1,"A":2,"a ":3}', null],
  ['{"a":{"b":{"c":1,"c":2}}}', null],
  ['"a"', null],
  ['[]', null],
];

const ANY = { parts: 1_000_000, depth: Infinity };
const duplicateMember = (text: string) => problemOf(text, ANY)?.details.fields?.[0]?.path ?? null;

test('a duplicate member is found, however it is spelled', () => {
  for (const [text, path] of DUPLICATES) {
    JSON.parse(text);
    assert.equal(duplicateMember(text), path, text);
  }
});

test('no duplicate is found in what JSON.stringify writes', () => {
  const strange = [
    '"',
    '\\',
    '\\"',
    '{',
    '}',
    '[',
    ']',
    ':',
    ',',
    '\u2028',
    '\ud800',
    '\0',
    'a":1,"a',
  ];
  const object = Object.fromEntries(
    strange.map((name, index) => [name, { [name]: strange, value: strange[index] }]),
  );
  for (const space of [undefined, 2, '\t'])
    assert.equal(duplicateMember(JSON.stringify(object, null, space)), null);
  for (const name of strange) {
    const member = `${JSON.stringify(name)}:1`;
    assert.notEqual(duplicateMember(`{${member},"other":{},${member}}`), null, name);
  }
});

/** A slow search for the same: reads the document token by token, as its grammar says. */
function referenceOf(json: string): string | null {
  const tokens = json.match(/"(\\.|[^"\\])*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  let duplicate: string | null = null;
  const readValue = (path: string, depth: number) => {
    const first = tokens.shift();
    if (first === '[') {
      while (tokens[0] !== ']') {
        readValue(path, depth + 1);
        if (tokens[0] === ',') tokens.shift();
      }
      tokens.shift();
    }
    if (first !== '{') return;
    const names: string[] = [];
    while (tokens[0] !== '}') {
      const name = String(JSON.parse(tokens.shift() ?? ''));
      if (names.includes(name) && depth < 2) duplicate ??= pointer(path, name);
      names.push(name);
      assert.equal(tokens.shift(), ':');
      readValue(depth === 0 ? pointer('', name) : '', depth + 1);
      if (tokens[0] === ',') tokens.shift();
    }
    tokens.shift();
  };
  readValue('', 0);
  return duplicate;
}

test('random documents get the verdict of a slow search', () => {
  const int = seeded(31);
  const pick = (texts: readonly string[]) => texts[int(texts.length)] ?? '';
  const space = () => pick(['', '', '', ' ', '\n', '\t \r\n']);
  const escaped = (text: string) =>
    [...text].map((unit) => {
      const code = unit.charCodeAt(0).toString(16).padStart(4, '0');
      return int(4) === 0 ? `\\u${code}` : JSON.stringify(unit).slice(1, -1);
    });
  const written = () => {
    const text = pick(['a', 'b', 'c', '"', '\\', 'a"', 'é', '€', '', 'a":', '{"a', '}', '\\"']);
    return `"${escaped(text).join('')}"`;
  };
  const valueOf = (depth: number): string => {
    const kind = depth < 5 ? int(6) : 2 + int(4);
    const many = (one: () => string) => Array.from({ length: int(4) }, one).join(`${space()},`);
    const member = () => `${space()}${written()}${space()}:${valueOf(depth + 1)}`;
    if (kind < 2 && int(3) > 0) return `${space()}{${many(member)}${space()}}${space()}`;
    if (kind < 2) return `${space()}[${many(() => valueOf(depth + 1))}${space()}]${space()}`;
    return `${space()}${kind === 2 ? written() : pick(['1', '-0.5e3', 'true', 'null'])}${space()}`;
  };
  let duplicates = 0;
  for (let count = 0; count < 20_000; count += 1) {
    const text = `{"data":${valueOf(1)},${written()}:${valueOf(1)}}`;
    JSON.parse(text);
    const expected = referenceOf(text);
    assert.equal(duplicateMember(text), expected, text);
    // A native search for few names may not change the verdict. A limited depth prevents it.
    for (const names of [
      ['a', 'b'],
      ['a', 'a"', 'é'],
    ]) {
      const unique = { names: new Set(names), depth: 3 };
      const found = problemOf(text, { ...ANY, unique });
      assert.deepEqual(found, problemOf(text, { ...ANY, depth: 100, unique }), text);
    }
    duplicates += expected === null ? 0 : 1;
  }
  assert.ok(duplicates > 500, String(duplicates));
});

test('a large body with many escapes, members or levels is searched in time', () => {
  const texts = ['\\'.repeat(1_000_000), '"'.repeat(1_000_000)].map((text) =>
    JSON.stringify({ text }),
  );
  const members = JSON.stringify(
    Object.fromEntries(Array.from({ length: 100_000 }, (_, index) => [`name${index}`, 0])),
  );
  for (const text of [...texts, members, `${'['.repeat(100_000)}${']'.repeat(100_000)}`])
    assert.equal(duplicateMember(text), null);
  // Work for the long name at each of these would take minutes. The last two are not JSON.
  const name = `"${'n'.repeat(1_000_000)}\\u0061"`;
  duplicateMember(`{${name}:[${'{},'.repeat(200_000)}0]}`);
  duplicateMember(`{${name}:${'{:}'.repeat(200_000)}`);
  duplicateMember(`${name}${':'.repeat(1_000_000)}`);
});

test('a body with more strings, brackets and commas than allowed is rejected before it is parsed', () => {
  const many = (part: string, count: number) => `{"a":[${`${part},`.repeat(count)}0]}`;
  const message = 'has more than 1000000 strings, brackets and commas';
  for (const [text, isRejected] of [
    [many('{}', 333_331), false],
    [many('{}', 333_333), true],
    [many('[]', 333_333), true],
    [many('""', 500_000), true],
    [many('1', 999_995), false],
    [many('1', 1_000_000), true],
  ] as const) {
    const expected = isRejected ? invalidBody(message) : null;
    assert.deepEqual(problemOf(text, ANY), expected, text.slice(0, 20));
  }
});

test('a body is limited by its schema: what it describes, and a few unknown members', () => {
  const messageOf = (described: Schema<unknown>, body: unknown) => {
    const parsed = json(described).parse(Buffer.from(JSON.stringify(body)));
    return parsed instanceof Failure ? parsed.details.fields?.[0]?.message : null;
  };
  const flat = object({ name: text(), other: optional(text()) });
  const name = 'a';
  assert.equal(messageOf(flat, { name, ids: Array(200).fill(1) }), null);
  assert.equal(
    messageOf(flat, { name, ids: Array(300).fill(1) }),
    'has more than 266 strings, brackets and commas',
  );
  const nested = (levels: number): unknown => (levels === 0 ? 1 : [nested(levels - 1)]);
  assert.equal(messageOf(flat, { name, deep: nested(31) }), null);
  assert.equal(messageOf(flat, { name, deep: nested(32) }), 'has more than 32 levels');
  const listed = object({ ids: list(object({ id: text() })) });
  const ids = Array.from({ length: 1_000 }, (_, at) => ({ id: String(at) }));
  assert.equal(messageOf(listed, { ids }), null);
  assert.match(messageOf(listed, { ids: [...ids, ...ids] }) ?? '', /^has more than \d+ strings/);
});

test('a duplicate member gets an error that names it', () => {
  const parsed = lax.parse(Buffer.from('{"name":"a","n\\u0061me":"b"}'));
  assert.deepEqual(parsed, invalidBody('must be given only once', '/name'));
});
