/**
 * `node --import tsx scripts/diagrams.ts`: draws docs/diagrams/*.dot as docs/pictures/*.svg. Needs
 * `dot` of Graphviz. The pictures follow the color scheme of the reader's system.
 */
import { execFileSync } from 'node:child_process';
import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const docs = join(import.meta.dirname, '../docs');
const FONT = 'fontname="Helvetica,Arial,sans-serif"';
const OPTIONS = [
  '-Gbgcolor=transparent',
  `-G${FONT}`,
  '-Gfontsize=12',
  '-Nshape=box',
  '-Nstyle=rounded',
  `-N${FONT}`,
  '-Nfontsize=13',
  `-E${FONT}`,
  '-Efontsize=11',
].map((option) => option.replaceAll('"', ''));
const STYLE = `<style>
text { fill: #1f2328 }
path, polygon, ellipse { stroke: #57606a }
.edge polygon { fill: #57606a }
.own path { stroke: #0969da; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  path, polygon, ellipse { stroke: #9198a1 }
  .edge polygon { fill: #9198a1 }
  .own path { stroke: #4493f8 }
}
</style>`;

for (const file of readdirSync(join(docs, 'diagrams')).filter((name) => name.endsWith('.dot'))) {
  const svg = execFileSync('dot', ['-Tsvg', ...OPTIONS, join(docs, 'diagrams', file)], {
    encoding: 'utf8',
  });
  const picture = svg.replace(/<!--[\s\S]*?-->\n?/g, '').replace(/(<svg[^>]*>)/, `$1\n${STYLE}`);
  writeFileSync(join(docs, 'pictures', file.replace('.dot', '.svg')), picture);
}
