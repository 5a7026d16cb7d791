/**
 * `make start`.
 *
 *   node --import tsx scripts/start.ts           runs dist/
 *   node --import tsx scripts/start.ts --watch   runs src/ and restarts after every change
 */
import { dirname, join } from 'node:path';
import { start } from './run-start.ts';
import { runMain } from './setup-error.ts';

const root = dirname(import.meta.dirname);
const source = {
  program: ['--import', 'tsx', join(root, 'src/cli.ts')],
  watched: join(root, 'src'),
};
const compiled = { program: [join(root, 'dist/cli.js')] };

const place = process.argv.includes('--watch') ? source : compiled;
await runMain(() => start({ root, shown: 'node dist/cli.js', ...place }));
