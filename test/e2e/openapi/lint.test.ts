/** Two linters read the documents of the services. Their configurations say what is off, and why. */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { makeTemporary, removeTemporary } from '../../../scripts/temporary.ts';
import { runHere } from './tools.ts';

const directory = makeTemporary(tmpdir(), 'gatehouse-openapi');
after(() => removeTemporary(directory));

const configuration = (name: string) => join(import.meta.dirname, name);
const LINTERS = {
  redocly: [
    ...['exec', '--yes', '--', '@redocly/cli@2.77.0', 'lint'],
    ...['--config', configuration('redocly.yaml')],
  ],
  spectral: [
    ...['exec', '--yes', '--', '@stoplight/spectral-cli@6.16.3', 'lint', '--fail-severity=hint'],
    ...['--ruleset', configuration('spectral.yaml')],
  ],
};
const lint = (linter: keyof typeof LINTERS, files: readonly string[]) =>
  runHere(directory, 'npm', [...LINTERS[linter], ...files]);

/** The files that the services serve. */
const source = join(import.meta.dirname, '../../../src');
const files = [
  ...['identity', 'secrets', 'webhook'].flatMap((name) => [
    join(source, name, 'openapi/with-pages.json'),
    join(source, name, 'openapi/without-pages.json'),
  ]),
  join(source, 'webhook/openapi/plain.json'),
];
const identity = readFileSync(join(source, 'identity/openapi/with-pages.json'), 'utf8');

for (const linter of ['redocly', 'spectral'] as const) {
  test(`${linter} accepts the documents that are served`, () => {
    const { code, output } = lint(linter, files);
    assert.equal(code, 0, output);
  });
}

/** @returns the document of identity with one change */
function altered(name: string, from: RegExp, to: string) {
  const text = identity.replace(from, to);
  assert.notEqual(text, identity);
  const file = join(directory, `altered-${name}.json`);
  writeFileSync(file, text);
  return [file];
}

for (const [linter, rule, from, to] of [
  ['redocly', 'nullable-type-sibling', /"type": "string",(\s+"nullable": true)/, '$1'],
  ['redocly', 'operation-operationId', /"operationId": .*/, ''],
  ['redocly', 'security-defined', /"bearer": \[\]/, '"other": []'],
  ['redocly', 'no-unused-components', /"portal_cookie": \{/, '"other": {}, "portal_cookie": {'],
  ['spectral', 'oas3-valid-schema-example', /"default": ""/, '"default": []'],
  ['spectral', 'operation-operationId', /"operationId": .*/, ''],
  ['spectral', 'oas3-schema', /"in": "query"/, '"in": "body"'],
] as const) {
  test(`${linter} notices a violation of ${rule}`, () => {
    const { code, output } = lint(linter, altered(`${linter}-${rule}`, from, to));
    assert.notEqual(code, 0);
    assert.ok(output.includes(rule), output);
  });
}
