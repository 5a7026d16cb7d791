/** The list of what a production installation contains. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { root } from '../../support/process.ts';
import { createSbom } from '../../../scripts/sbom.ts';

test('the SBOM lists the one package with its digest, and is the same each time', () => {
  const text = createSbom();
  assert.equal(createSbom(), text);
  const { bomFormat, serialNumber, metadata, components } = JSON.parse(text);
  assert.equal(bomFormat, 'CycloneDX');
  assert.match(
    serialNumber,
    /^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$/,
  );
  assert.deepEqual(
    [metadata.component.name, metadata.component.type, metadata.timestamp],
    ['gatehouse', 'application', undefined],
  );
  const lock = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')).packages[
    'node_modules/postgres'
  ];
  assert.deepEqual(
    components.map(({ purl }: { purl: string }) => purl),
    [`pkg:npm/postgres@${lock.version}`],
  );
  const digest = Buffer.from(lock.integrity.replace('sha512-', ''), 'base64').toString('hex');
  assert.deepEqual(components[0].hashes, [{ alg: 'SHA-512', content: digest }]);
});
