/** The list of what a production installation contains, and with it the images. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { root } from '../../support/process.ts';
import { findProgram } from '../programs.ts';
import { createSbom } from '../../../scripts/sbom.ts';

interface Component {
  readonly name: string;
  readonly purl: string;
  readonly cpe?: string;
  readonly hashes?: unknown;
  readonly licenses?: ReadonlyArray<{
    expression?: string;
    license?: { id?: string; name?: string };
  }>;
}

const text = createSbom();
const { bomFormat, serialNumber, metadata, ...rest } = JSON.parse(text);
const components: readonly Component[] = rest.components;
const isPackage = ({ purl }: Component) => purl.startsWith('pkg:npm/');

test('the SBOM lists the one package with its digest, and is the same each time', () => {
  assert.equal(createSbom(), text);
  assert.equal(bomFormat, 'CycloneDX');
  assert.match(
    serialNumber,
    /^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$/,
  );
  assert.deepEqual(
    [metadata.component.name, metadata.component.type, metadata.timestamp],
    ['gatehouse-services', 'application', undefined],
  );
  const lock = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')).packages[
    'node_modules/postgres'
  ];
  const packages = components.filter(isPackage);
  assert.deepEqual(
    packages.map(({ purl }) => purl),
    [`pkg:npm/postgres@${lock.version}`],
  );
  const digest = Buffer.from(lock.integrity.replace('sha512-', ''), 'base64').toString('hex');
  assert.deepEqual(packages[0]?.hashes, [{ alg: 'SHA-512', content: digest }]);
});

test('every entry has a license, those of Node by its SPDX expression', () => {
  for (const { name, purl, licenses = [] } of components) {
    const [{ expression, license } = {}] = licenses;
    assert.ok(expression ?? license?.id ?? license?.name, name);
    // The time zone data is in the public domain.
    if (purl.startsWith('pkg:generic/') && name !== 'tz') assert.ok(expression, name);
  }
});

test('the SBOM names Node and its OpenSSL as vulnerability databases do', () => {
  const cpeOf = (name: string) => components.find((one) => one.name === name)?.cpe;
  const { node, openssl } = process.versions;
  assert.equal(cpeOf('node'), `cpe:2.3:a:nodejs:node.js:${node}:*:*:*:*:*:*:*`);
  assert.equal(cpeOf('openssl'), `cpe:2.3:a:openssl:openssl:${openssl}:*:*:*:*:*:*:*`);
});

test(
  'the SBOM names the packages of all that the minimal image copies from the system',
  { skip: findProgram('dpkg-query') ? false : 'this system has no dpkg' },
  () => {
    const found = components.filter(({ purl }) => purl.startsWith('pkg:deb/debian/'));
    const names = found.map(({ name }) => name);
    for (const name of ['coreutils', 'libc6', 'libstdc++6', 'libgcc-s1'])
      assert.ok(names.includes(name), `${name} is not among ${names.join(', ')}`);
  },
);
