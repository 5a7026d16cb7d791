/** Files of a container image, taken from this machine: the tests cannot fetch images. */
import { spawnSync } from 'node:child_process';
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  realpathSync,
  statSync,
  symlinkSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { SetupError } from '../../../scripts/setup-error.ts';
import { findProgram } from '../programs.ts';

/** Whether it is a program or a library: ldd takes long for the thousands of other files. */
function loadsLibraries(path: string): boolean {
  const found = statSync(path, { throwIfNoEntry: false });
  return found?.isFile() === true && (path.endsWith('.so') || (found.mode & 0o111) !== 0);
}

/** @param directory becomes the root directory of the image */
export function createImageFiles(directory: string) {
  const at = (path: string) => join(directory, path);
  mkdirSync(directory, { recursive: true });

  /** Copies a file, unless the image has it already. */
  function place(from: string, to: string): void {
    if (existsSync(at(to))) return;
    mkdirSync(dirname(at(to)), { recursive: true });
    copyFileSync(realpathSync(from), at(to));
  }

  function placeLibraries(files: readonly string[]): void {
    const { stdout } = spawnSync('ldd', files, { encoding: 'utf8' });
    const libraries = stdout.match(/(?<=^\t|=> )\/[^ :]*\.so[^ ]*/gm) ?? [];
    for (const library of libraries) place(library, library);
  }

  function placeProgram(name: string, to = `/usr/bin/${name}`): void {
    const found = findProgram(name);
    if (found === undefined) throw new SetupError(`This test needs the program ${name}.`);
    place(found, to);
    placeLibraries([found]);
  }

  return {
    at,
    place,
    /** Copies a program of this machine with the libraries that it loads. */
    placeProgram,
    /** Copies a directory of this machine to the same path, with the libraries of its programs. */
    placeDirectory(path: string): void {
      cpSync(path, at(path), { recursive: true, verbatimSymlinks: true });
      const names = readdirSync(path, { recursive: true, encoding: 'utf8' });
      const paths = names.map((name) => join(path, name)).filter(loadsLibraries);
      if (paths.length > 0) placeLibraries(paths);
    },
    placeShell(): void {
      placeProgram('bash');
      mkdirSync(at('bin'), { recursive: true });
      symlinkSync('/usr/bin/bash', at('bin/sh'));
      symlinkSync('/usr/bin/bash', at('bin/bash'));
    },
  };
}
