import assert from 'node:assert/strict';
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

const JSON_TYPES = [
  ...['application/json', 'Application/Json; Charset=UTF-8', 'application/json ; charset="utf-8"'],
  ...[' application/json', 'application/json;', 'application/vnd.api+json; charset=utf-8'],
  // RFC 8259, section 11: no charset parameter is defined for JSON, so it changes nothing.
  ...['application/LD+JSON', 'application/json; charset=iso-8859-1'],
];
const OTHER_TYPES = [
  ...[undefined, '', 'json', 'text/json', 'application/jsonp', 'application/json-seq', '+json'],
  ...['multipart/form-data; boundary=application/json', 'text/plain; a=application/json'],
  ...['application/+json', 'application/json, text/plain', 'application/json text/plain'],
];

test('required JSON: application/json and …+json, in any case and with parameters', () => {
  const isAccepted = (rule: typeof lax, type?: string) =>
    rule.accepts(type === undefined ? {} : { 'content-type': type }) === null;
  for (const type of JSON_TYPES) assert.ok(isAccepted(strict, type), type);
  for (const type of OTHER_TYPES) assert.ok(!isAccepted(strict, type), type);
  assert.ok([...JSON_TYPES, ...OTHER_TYPES].every((type) => isAccepted(lax, type)));
  assert.match(strict.accepts({})?.details.message ?? '', /Content-Type: application\/json/);
});

test('a compressed body is rejected', () => {
  const codeOf = (rule: typeof lax, encoding: string) =>
    rule.accepts({ 'content-type': 'application/json', 'content-encoding': encoding })?.code;
  for (const rule of [lax, strict]) {
    for (const encoding of ['gzip', 'GZIP', 'gzip, identity', 'identity, gzip', 'x-unknown'])
      assert.equal(codeOf(rule, encoding), 'unsupported_media_type', encoding);
    // Some clients name the encoding of the text.
    for (const encoding of ['Identity', '', 'UTF-8', 'utf8'])
      assert.equal(codeOf(rule, encoding), undefined, encoding);
  }
});

const bytes = (...parts: ReadonlyArray<string | number[]>) =>
  Buffer.concat(
    parts.map((part) => (typeof part === 'string' ? Buffer.from(part) : Buffer.from(part))),
  );
/** Each body has `marked`, which no message may quote. */
const WRONG: Readonly<Record<string, readonly Buffer[]>> = {
  'a JSON body is required': [Buffer.alloc(0)],
  'the body must be valid JSON': [
    ...[' \r\n', '{"name":"marked', '{"name":"marked",}', '{"name":"marked"}{}'].map(Buffer.from),
    ...["{'name':'marked'}", '{"name":"marked"/**/}', 'NaN', 'name=marked'].map(Buffer.from),
    ...['{"name":"marked"}\0', '{"name":"mar\0ked"}', '{"name":"mar\nked"}'].map(Buffer.from),
    bytes([0xef, 0xbb, 0xbf], '{"name":"marked"}'),
    Buffer.from('{"name":"marked"}', 'utf16le'),
  ],
  'the body must be encoded in UTF-8': [
    Buffer.from('\ufeff{"name":"marked"}', 'utf16le'),
    Buffer.from('{"name":"markéd"}', 'latin1'),
    // An overlong form, a surrogate and half a character.
    ...[
      [0xc0, 0xaf],
      [0xed, 0xa0, 0x80],
      [0xe2, 0x82],
    ].map((part) => bytes('{"name":"', part, '"}')),
  ],
  'must be a JSON object': ['null', '[{"name":"marked"}]', '"marked"', '1'].map(Buffer.from),
  'has more than 32 levels': [bytes('['.repeat(30_000), ']'.repeat(30_000))],
};

test('a body that is not a JSON object in UTF-8 is rejected without quoting it', () => {
  for (const [message, bodies] of Object.entries(WRONG)) {
    for (const raw of bodies) assert.deepEqual(lax.parse(raw), invalidBody(message), String(raw));
  }
});

test('text is read unchanged, with or without white space around the object', () => {
  for (const name of ['a', '€', '𝄞', '\ufeffx', '\0', 'e\u0301'])
    assert.deepEqual(lax.parse(Buffer.from(` \t\r\n${JSON.stringify({ name })}\n`)), { name });
  const deep = `{"x":${'['.repeat(31)}${']'.repeat(31)},"name":"\\u0061"}`;
  assert.deepEqual(lax.parse(Buffer.from(deep)), { name: 'a' });
});

test('a route without a body accepts any headers and reads nothing', () => {
  assert.equal(noBody.accepts({ 'content-encoding': 'gzip', 'content-type': 'text/plain' }), null);
  assert.equal(noBody.parse(Buffer.from('not JSON')), null);
});

const DUPLICATES: ReadonlyArray<readonly [json: string, path: string | null]> = [
  ['{"a":1,"b":{"a":1},"a":2}', '/a'],
  ['{"a":1,"\\u0061":2}', '/a'],
  ['{"\\"":1,"\\u0022":2}', '/"'],
  ['{"\\\\":1,"\\u005c":2}', '/\\'],
  ['{"a" \r\n\t: 1, "a"   : 2}', '/a'],
  ['{"":1,"":2}', '/'],
  ['{"a/b~":1,"a/b~":2}', '/a~1b~0'],
  ['{"__proto__":1,"__proto__":2}', '/__proto__'],
  ['{"x":[{"a":1}],"data":{"page_id":"1","page_id":"2"}}', '/data/page_id'],
  ['{"data":[],"data":{}}', '/data'],
  ['{"\\ud83d\\ude00":1,"😀":2}', '/😀'],
  ['{"a":"a","b":"a","c":["a","a"]}', null],
  ['{"a":"\\"a\\":1","b":"{\\"b\\":1,"}', null],
  ['{"a":"\\\\","b":"\\\\\\"a\\":"}', null],
  ['{"a":{"x":1},"b":{"x":1},"x":1}', null],
  ['{"a":1,"A":2,"a ":3}', null],
  ['{"a":{"b":{"c":1,"c":2}}}', null],
  ['"a"', null],
];

const ANY = { parts: 1_000_000, depth: Infinity };
const duplicateMember = (text: string) => problemOf(text, ANY)?.details.fields?.[0]?.path ?? null;

test('a duplicate member is found, however it is spelled, and named', () => {
  for (const [text, path] of DUPLICATES) {
    JSON.parse(text);
    assert.equal(duplicateMember(text), path, text);
  }
  const parsed = lax.parse(Buffer.from('{"name":"a","n\\u0061me":"b"}'));
  assert.deepEqual(parsed, invalidBody('must be given only once', '/name'));
  assert.equal(duplicateMember(`{"${'x'.repeat(99)}":1,"${'x'.repeat(99)}":1}`)?.length, 65);
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
  for (let count = 0; count < 5_000; count += 1) {
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
  assert.ok(duplicates > 100, String(duplicates));
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

test('a body with more strings, brackets and commas than allowed is rejected', () => {
  const tooMany = invalidBody('has more than 1000000 strings, brackets and commas');
  const judge = (part: string, count: number) =>
    problemOf(`{"a":[${`${part},`.repeat(count)}0]}`, ANY);
  for (const [part, allowed, rejected] of [
    ['{}', 333_331, 333_333],
    ['""', 499_997, 500_000],
    ['1', 999_995, 1_000_000],
  ] as const)
    assert.deepEqual([judge(part, allowed), judge(part, rejected)], [null, tooMany], part);
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
