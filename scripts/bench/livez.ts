/** A route that does no work, `/livez`, compared with node:http alone sending the same bytes. */
import { Agent, get, type IncomingMessage } from 'node:http';
import { once } from 'node:events';
import { join } from 'node:path';
import { type Bench, compareRates, measureRounds, type Report } from './compare.ts';
import { writeRequests } from './load.ts';
import { type Service, startProgram, startServices } from './service.ts';

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

export async function livez(bench: Bench): Promise<Report> {
  const ours = await startServices(['identity'], bench.postgres.url);
  const { headers: fields, body, bytes } = await fetchOnce(ours);
  const headers = Object.fromEntries(fields.filter(([name]) => !WRITTEN_BY_NODE.has(name.toLowerCase())));
  const keepAlive = fields.find(([name]) => name.toLowerCase() === 'keep-alive')?.[1] ?? '';
  const parameter = (name: string) => Number(new RegExp(`${name}=(\\d+)`).exec(keepAlive)?.[1] ?? 0);
  const reply = { headers, body, keepAliveSeconds: parameter('timeout'), maxRequests: parameter('max') };
  const script = join(import.meta.dirname, 'same-bytes.mjs');
  const bare = await startProgram([script], ['same-bytes'], { REPLY: JSON.stringify(reply) });
  const bareReply = await fetchOnce(bare);
  if (bareReply.bytes !== bytes) throw new Error(`node:http sends ${bareReply.bytes} bytes and gatehouse ${bytes}`);
  const file = writeRequests(join(bench.directory, 'livez'), [{ method: 'GET', path: '/livez' }]);
  const replay = { file, status: 200, text: '"status":"alive"' };
  const figures = await measureRounds(bench, 64, [
    { name: 'bare node:http, same bytes', service: bare, replay },
    { name: 'gatehouse', service: ours, replay },
  ]);
  return {
    comparisons: [compareRates('`/livez`', figures, 0.9)],
    figures: [[`\`/livez\`, 64 clients, ${bytes} bytes`, figures]],
  };
}
