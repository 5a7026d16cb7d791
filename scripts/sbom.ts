/**
 * `make sbom`: prints what a production installation contains, as CycloneDX. The same files give
 * the same bytes.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { runMain, SetupError } from './setup-error.ts';

const root = dirname(import.meta.dirname);

interface Component {
  readonly type: string;
  readonly name: string;
  readonly version: string;
  readonly purl: string;
  readonly cpe?: string;
  readonly licenses: ReadonlyArray<
    Readonly<{ expression: string } | { license: { name: string } }>
  >;
}

/** By the names of `process.versions` and of Debian's packages, as SPDX expressions. */
const LICENSES: Readonly<Record<string, string>> = {
  ...ofAll('MIT', 'node napi acorn amaro ares brotli cjs_module_lexer llhttp nbytes ncrypto'),
  ...ofAll('MIT', 'nghttp2 nghttp3 ngtcp2 undici uv uvwasi'),
  ...ofAll('Apache-2.0 OR MIT', 'ada simdjson simdutf'),
  ...ofAll('Unicode-3.0', 'cldr icu unicode'),
  ...ofAll('Apache-2.0', 'openssl'),
  ...ofAll('BSD-3-Clause', 'v8 zstd'),
  ...ofAll('Zlib', 'zlib'),
  ...ofAll('blessing', 'sqlite'),
  ...ofAll('GPL-3.0-or-later', 'coreutils'),
  ...ofAll('LGPL-2.1-or-later', 'libc6'),
  ...ofAll('GPL-3.0-or-later WITH GCC-exception-3.1', 'libgcc-s1 libstdc++6'),
};

function ofAll(expression: string, names: string): Record<string, string> {
  return Object.fromEntries(names.split(' ').map((name) => [name, expression]));
}

/**
 * @param file with the license of what has no SPDX expression here, such as data in the public
 * domain
 */
function licensesOf(name: string, file: string): Component['licenses'] {
  const expression = LICENSES[name];
  return expression ? [{ expression }] : [{ license: { name: `see ${file}` } }];
}

interface Document {
  serialNumber?: string;
  components: Component[];
  metadata: { timestamp?: string; component: { name: string; type: string } };
}

/** Vendor and product of those that vulnerability databases know by a CPE name. */
const CPE: Readonly<Record<string, string>> = {
  node: 'nodejs:node.js',
  openssl: 'openssl:openssl',
  v8: 'google:v8',
  uv: 'libuv:libuv',
  zlib: 'zlib:zlib',
  brotli: 'google:brotli',
  ares: 'c-ares_project:c-ares',
  nghttp2: 'nghttp2:nghttp2',
  llhttp: 'llhttp:llhttp',
  undici: 'nodejs:undici',
};

/** Node, which runs this, and what it is built with. */
function nodeComponents(): Component[] {
  const versions = Object.entries(process.versions).filter(([name]) => name !== 'modules');
  return versions.map(([name, version = '']) => {
    const cpe = CPE[name];
    const component = {
      type: 'library',
      name,
      version,
      purl: `pkg:generic/${name}@${version}`,
      licenses: licensesOf(name, 'the LICENSE of Node'),
    };
    return cpe ? { ...component, cpe: `cpe:2.3:a:${cpe}:${version}:*:*:*:*:*:*:*` } : component;
  });
}

/** What Dockerfile.minimal copies from the system beside Node. */
const ENV = '/usr/bin/env';

/**
 * The packages of the system's libraries that Node loads, and of `env`; none on a system without
 * dpkg.
 */
function systemLibraries(): Component[] {
  const lines = (command: string, words: readonly string[]) =>
    (spawnSync(command, words, { encoding: 'utf8' }).stdout ?? '').split('\n').filter(Boolean);
  const loaded = lines('ldd', [process.execPath, ENV]);
  const paths = [ENV, ...loaded.flatMap((line) => line.match(/\s(\/\S+)/)?.[1] ?? [])];
  const owners = lines('dpkg-query', ['--search', ...paths, ...paths.map((path) => `/usr${path}`)]);
  const names = [...new Set(owners.map((line) => line.split(':')[0] ?? ''))].sort();
  const format = '${binary:Package} ${Version}\n';
  const found =
    names.length > 0 ? lines('dpkg-query', ['--show', `--showformat=${format}`, ...names]) : [];
  return found.map((line) => {
    const [name = '', version = ''] = line.replace(/:\S+/, '').split(' ');
    return {
      type: 'library',
      name,
      version,
      purl: `pkg:deb/debian/${name}@${version}`,
      licenses: licensesOf(name, `/usr/share/doc/${name}/copyright`),
    };
  });
}

/** npm names the product after the directory, and gives each document another number and time. */
export function createSbom(): string {
  const words = [
    'sbom',
    '--sbom-format=cyclonedx',
    '--omit=dev',
    '--omit=optional',
    '--package-lock-only',
    '--loglevel=error',
  ];
  const { status, stdout, stderr } = spawnSync('npm', words, { cwd: root, encoding: 'utf8' });
  if (status !== 0)
    throw new SetupError(`npm sbom failed, which needs npm 9.5 or newer: ${stderr}`);
  const document: Document = JSON.parse(stdout);
  const { name }: { name: string } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  Object.assign(document.metadata.component, { name, type: 'application' });
  document.components.push(...nodeComponents(), ...systemLibraries());
  delete document.serialNumber;
  delete document.metadata.timestamp;
  const hex = createHash('sha256').update(JSON.stringify(document)).digest('hex');
  // A UUID of version 8, RFC 9562: its bits are the maker's.
  const uuid = `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
  return `${JSON.stringify({ ...document, serialNumber: `urn:uuid:${uuid}` }, null, 2)}\n`;
}

if (process.argv[1] === import.meta.filename) {
  await runMain(async () => {
    process.stdout.write(createSbom());
    return 0;
  });
}
