/**
 * Two linters read the documents of the services. Their configurations say what is off, and why.
 */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { root } from '../../support/process.ts';
import { installPackages, runTool } from '../tools.ts';

const directory = installPackages('@redocly/cli@2.77.0', '@stoplight/spectral-cli@6.16.3');
const configuration = (name: string) => join(import.meta.dirname, name);
const LINTERS = {
  redocly: ['lint', '--config', configuration('redocly.yaml')],
  spectral: ['lint', '--fail-severity=hint', '--ruleset', configuration('spectral.yaml')],
};
/** Nothing is sent to the vendor of a linter. */
const QUIET = { REDOCLY_TELEMETRY: 'off', REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true' };

/** The files that the services serve. */
const files = [
  ...['identity', 'secrets', 'webhook'].flatMap((name) => [
    join(root, 'src', name, 'openapi/with-pages.json'),
    join(root, 'src', name, 'openapi/without-pages.json'),
  ]),
  join(root, 'src/webhook/openapi/plain.json'),
];

for (const [linter, words] of Object.entries(LINTERS)) {
  test(`${linter} accepts the documents that are served`, () => {
    const program = join(directory, 'node_modules/.bin', linter);
    const { code, output } = runTool(program, [...words, ...files], QUIET);
    assert.equal(code, 0, output);
  });
}
