/** Two linters read the documents of the services. Their configurations say what is off, and why. */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { root } from '../../support/process.ts';
import { installPackages, runHere } from './tools.ts';

const directory = installPackages('@redocly/cli@2.77.0', '@stoplight/spectral-cli@6.16.3');
const configuration = (name: string) => join(import.meta.dirname, name);
const LINTERS = {
  redocly: ['lint', '--config', configuration('redocly.yaml')],
  spectral: ['lint', '--fail-severity=hint', '--ruleset', configuration('spectral.yaml')],
};
const lint = (linter: keyof typeof LINTERS, ...files: readonly string[]) =>
  runHere(directory, join(directory, 'node_modules/.bin', linter), [...LINTERS[linter], ...files]);

/** The files that the services serve. */
const files = [
  ...['identity', 'secrets', 'webhook'].flatMap((name) => [
    join(root, 'src', name, 'openapi/with-pages.json'),
    join(root, 'src', name, 'openapi/without-pages.json'),
  ]),
  join(root, 'src/webhook/openapi/plain.json'),
];
const [identity = ''] = files;

for (const linter of ['redocly', 'spectral'] as const) {
  test(`${linter} accepts the documents that are served`, () => {
    const { code, output } = lint(linter, ...files);
    assert.equal(code, 0, output);
  });
}

for (const [linter, rule, from, to] of [
  ['redocly', 'security-defined', /"bearer": \[\]/, '"other": []'],
  ['redocly', 'no-unused-components', /"portal_cookie": \{/, '"other": {}, "portal_cookie": {'],
  ['spectral', 'oas3-valid-schema-example', /"default": ""/, '"default": []'],
] as const) {
  test(`${linter} notices a violation of ${rule}`, () => {
    const text = readFileSync(identity, 'utf8');
    assert.match(text, from);
    const file = join(directory, `altered-${rule}.json`);
    writeFileSync(file, text.replace(from, to));
    const { code, output } = lint(linter, file);
    assert.ok(code !== 0 && output.includes(rule), output);
  });
}
