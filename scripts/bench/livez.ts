/** A route that does no work, `/livez`, compared with node:http alone sending the same bytes. */
import { Agent, get, type IncomingMessage } from 'node:http';
import { once } from 'node:events';
import { join } from 'node:path';
import { compareCpu, compareRates, type Report } from './compare.ts';
import { writeRequests } from './load.ts';
import { type Bench, measureRounds, openTargets, type Subject, type Target } from './measure.ts';
import { CLIENTS } from './operation.ts';
import { type Service, startProgram } from './service.ts';

interface Reply {
  readonly headers: Array<[name: string, value: string]>;
  readonly body: string;
  /** On the wire, with the head. */
  readonly bytes: number;
}

async function fetchOnce({ port }: Service): Promise<Reply> {
  const agent = new Agent({ keepAlive: true });
  const sent = get({ agent, host: '127.0.0.1', port, path: '/livez' });
  const [response]: IncomingMessage[] = await once(sent, 'response');
  if (!response) throw new Error('no reply');
  // Read before the end of the body, when the response loses its socket.
  const { rawHeaders, socket } = response;
  let body = '';
  for await (const chunk of response.setEncoding('utf8')) body += chunk;
  const headers = rawHeaders.flatMap((name, index): Array<[string, string]> => {
    return index % 2 === 0 ? [[name, rawHeaders[index + 1] ?? '']] : [];
  });
  const reply = { headers, body, bytes: socket.bytesRead };
  agent.destroy();
  return reply;
}

/** Node writes these headers itself, the last one according to the server's limits. */
const WRITTEN_BY_NODE = new Set(['date', 'connection', 'keep-alive']);

/** Starts node:http alone with the headers and the body that Gatehouse sends. */
async function startBare(ours: Target): Promise<Target> {
  const { headers: fields, body, bytes } = await fetchOnce(ours.service);
  const headers = Object.fromEntries(
    fields.filter(([name]) => !WRITTEN_BY_NODE.has(name.toLowerCase())),
  );
  const keepAlive = fields.find(([name]) => name.toLowerCase() === 'keep-alive')?.[1] ?? '';
  const parameter = (name: string) =>
    Number(new RegExp(`${name}=(\\d+)`).exec(keepAlive)?.[1] ?? 0);
  const reply = {
    headers,
    body,
    keepAliveSeconds: parameter('timeout'),
    maxRequests: parameter('max'),
  };
  const script = join(import.meta.dirname, 'same-bytes.mjs');
  const service = await startProgram([script], ['same-bytes'], { REPLY: JSON.stringify(reply) });
  const bare = await fetchOnce(service);
  if (bare.bytes !== bytes)
    throw new Error(`node:http sends ${bare.bytes} bytes and gatehouse ${bytes}`);
  return { ...ours, name: 'bare node:http, same bytes', role: 'baseline', service };
}

export async function livez(bench: Bench): Promise<Report> {
  const targets = await openTargets(bench, { name: '/livez', service: 'identity' });
  const [ours] = targets;
  if (!ours) throw new Error('no build');
  const isAgainst = bench.builds.length > 1;
  const file = writeRequests(join(bench.directory, 'livez'), [{ method: 'GET', path: '/livez' }]);
  const replay = { file, status: 200, text: '"status":"alive"' };
  const all = isAgainst ? targets : [await startBare(ours), ...targets];
  const figures = await measureRounds(
    bench,
    CLIENTS,
    all.map((target): Subject => ({ ...target, replay })),
  );
  const { bytes } = await fetchOnce(ours.service);
  return {
    comparisons: [
      compareRates('`/livez`', figures),
      ...(isAgainst ? compareCpu('`/livez`', figures) : []),
    ],
    tables: [
      {
        heading: `\`/livez\`, ${CLIENTS} clients, ${bytes} bytes`,
        figures,
        caveat:
          'The load generator uses more CPU than either server, and both change their speed from one second to' +
          ' the next. It does not say what a route with work costs.',
      },
    ],
  };
}
