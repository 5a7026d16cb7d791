import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseTarget } from '../../../src/platform/http/route/router.ts';

const REFUSED = [
  ['', 'nothing'],
  ['*', 'the asterisk form'],
  ['livez', 'no slash'],
  ['?a=1', 'no path'],
  ['//', 'two slashes'],
  ['//evil.example/livez', 'a host where there is only a path'],
  ['http:///livez', 'the absolute form without a host'],
  ['http:/a/livez', 'one slash after the scheme'],
  ['ftp://a/livez', 'another scheme'],
  ['http://a//livez', 'two slashes after the host'],
  ['evil.example:443', 'the authority form'],
  ['\\\\evil.example/livez', 'backslashes'],
  ['/%', 'an unfinished escape'],
  ['/%4', 'an unfinished escape'],
  ['/%zz', 'an escape that is not hexadecimal'],
  ['/%ff', 'bytes that are not UTF-8'],
  ['/%c0%af', 'an overlong form'],
  ['/%ed%a0%80', 'a surrogate in UTF-8'],
  ['/a?b=%', 'an unfinished escape in a value'],
  ['/a?%=b', 'an unfinished escape in a name'],
  ['/a?b=%ff', 'a value that is not UTF-8'],
  ['/a?b=1&c=%e0%80', 'a later value that is not UTF-8'],
] as const;

test('a target that is not a path, or is wrongly encoded, is rejected', () => {
  for (const [target, what] of REFUSED)
    assert.equal(parseTarget(target), null, `${what}: ${target}`);
});

const PATHS: ReadonlyArray<readonly [target: string, segments: readonly string[]]> = [
  ['/', ['']],
  ['/livez', ['livez']],
  ['/livez/', ['livez']],
  ['/livez//', ['livez', '']],
  ['/a//b', ['a', '', 'b']],
  ['/a/b/?c', ['a', 'b']],
  // Splitting comes before decoding: an encoded slash separates nothing.
  ['/a%2Fb', ['a/b']],
  ['/%2e%2e/a', ['..', 'a']],
  ['/../a', ['..', 'a']],
  ['/a%3Fb', ['a?b']],
  ['/a+b', ['a+b']],
  ['/%25', ['%']],
  ['/%2525', ['%25']],
  ['/%E2%82%AC', ['€']],
  ['/a%00b', ['a\0b']],
  ['/a#b', ['a#b']],
];

test('a path is split, decoded once, and loses one trailing slash', () => {
  for (const [target, segments] of PATHS)
    assert.deepEqual(parseTarget(target)?.segments, segments, target);
});

const ABSOLUTE = [
  ['http://a.example/livez?b=1', 'a.example', '/livez'],
  ['HTTPS://a.example:8443/livez/', 'a.example:8443', '/livez/'],
  ['http://[::1]:80', '[::1]:80', '/'],
  ['http://a.example?b=1', 'a.example', '/'],
] as const;

test('the absolute form has a host and a path', () => {
  for (const [target, authority, path] of ABSOLUTE) {
    const parsed = parseTarget(target);
    assert.deepEqual([parsed?.authority, parsed?.path], [authority, path], target);
  }
  assert.equal(parseTarget('/livez')?.authority, null);
});

test('the path is also kept undecoded, without the query', () => {
  assert.equal(parseTarget('/a%2Fb/?c=d?e')?.path, '/a%2Fb/');
});

const QUERIES: ReadonlyArray<
  readonly [query: string, ...pairs: ReadonlyArray<readonly [name: string, value: string]>]
> = [
  [''],
  ['?'],
  ['?&&'],
  ['?a=1', ['a', '1']],
  ['?a', ['a', '']],
  ['?a=', ['a', '']],
  ['?=1', ['', '1']],
  ['?a=1=2', ['a', '1=2']],
  ['?a=1&a=2&a=1', ['a', '1'], ['a', '2'], ['a', '1']],
  ['?a=1&%61=2', ['a', '1'], ['a', '2']],
  ['?a=1?b=2', ['a', '1?b=2']],
  ['?a+b=c+d%2B', ['a b', 'c d+']],
  ['?a=%26b%3D1', ['a', '&b=1']],
  ['?a=%00', ['a', '\0']],
  ['?a;b=1', ['a;b', '1']],
  ['?a[]=1', ['a[]', '1']],
  ['?toString=1&constructor', ['toString', '1'], ['constructor', '']],
];

test('a query keeps every value of every name, decoded once', () => {
  for (const [query, ...pairs] of QUERIES) {
    assert.deepEqual([...(parseTarget(`/${query}`)?.query ?? [])], pairs, query);
  }
});

test('a query parameter named __proto__ is an ordinary entry', () => {
  const query = parseTarget('/?__proto__=1&__proto__=2')?.query;
  assert.deepEqual(query?.getAll('__proto__'), ['1', '2']);
  assert.equal(query?.get('toString'), null);
  assert.equal(Reflect.get({}, '1'), undefined);
});
