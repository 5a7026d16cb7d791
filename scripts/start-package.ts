/**
 * `gatehouse start` of an installed package, compiled to dist/start/. Its data are in the present
 * directory.
 */
import { dirname, join } from 'node:path';
import { start } from './run-start.ts';
import { runMain } from './setup-error.ts';

const program = [join(dirname(import.meta.dirname), 'cli.js')];
await runMain(() =>
  start({ root: process.cwd(), program, shown: './node_modules/.bin/gatehouse' }),
);
